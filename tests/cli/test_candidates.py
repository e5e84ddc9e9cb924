import click
import pytest

from hawker.cli.access import Access
from hawker.cli.candidates import complete_machine
from hawker.log import Secret
from tests.cli.fake_node import TOKEN, FakeNode, machine


def offered(url: str, incomplete: str) -> list[str]:
    ctx = click.Context(click.Command("stop"), obj=Access(url, Secret(TOKEN)))
    return [item.value for item in complete_machine(ctx, click.Argument(["machine"]), incomplete)]


@pytest.mark.parametrize(
    ("incomplete", "values"), [("", ["web", "3d8f0000000001"]), ("w", ["web"]), ("3d", ["3d8f0000000001"]), ("x", [])]
)
def test_names_and_ids_are_offered(node: FakeNode, url: str, incomplete: str, values: list[str]) -> None:
    node.add("shop", machine(name="web"))
    assert offered(url, incomplete) == values


def test_nothing_is_offered_when_the_node_does_not_answer() -> None:
    assert offered("http://127.0.0.1:1", "") == []
