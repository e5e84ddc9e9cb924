import click
import pytest
from click.shell_completion import CompletionItem

from hawker.cli import completions
from hawker.cli.access import Access
from tests.cli.fake_node import TOKEN, FakeNode, image


def offered(items: list[CompletionItem]) -> list[str]:
    return [item.value for item in items]


@pytest.fixture
def ctx(url: str) -> click.Context:
    return click.Context(click.Command("x"), obj=Access(url=url, token=TOKEN))


PARAM = click.Argument(["x"])


def test_apps_images_and_nodes_are_offered(node: FakeNode, ctx: click.Context) -> None:
    node.add("shop")
    node.add("jobs")
    node.images = (image("registry.local/web:3"), image("docker.io/library/other:1"))
    assert offered(completions.apps(ctx, PARAM, "")) == ["jobs", "shop"]
    assert offered(completions.images(ctx, PARAM, "reg")) == ["registry.local/web:3"]
    assert offered(completions.images(ctx, PARAM, "oth")) == ["other:1"]
    assert "0badcafe" in offered(completions.nodes(ctx, PARAM, "0bad"))


def test_a_node_that_does_not_answer_offers_nothing() -> None:
    ctx = click.Context(click.Command("x"), obj=Access(url="http://127.0.0.1:1", token=None))
    assert completions.apps(ctx, PARAM, "") == completions.mounts(ctx, PARAM, "") == []
