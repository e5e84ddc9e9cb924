from collections.abc import Iterator

import click
import pytest
from click.shell_completion import CompletionItem

from hawker.cli import completions
from hawker.cli.access import Access
from hawker.cli.lazy import LazyGroup
from hawker.cli.main import ROOT
from tests.cli.fake_node import TOKEN, FakeNode, image, machine


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
    assert offered(completions.regions(ctx, PARAM, "")) == ["fra", "mad"]


def test_machines_and_apps_are_offered_for_a_connection(node: FakeNode, ctx: click.Context) -> None:
    node.add("shop", machine())
    assert {machine().id, machine().name, "shop"} == {*offered(completions.targets(ctx, PARAM, ""))}


def test_machines_are_offered_by_their_ids_alone_for_a_token(node: FakeNode, ctx: click.Context) -> None:
    node.add("shop", machine())
    assert offered(completions.machine_ids(ctx, PARAM, "")) == [machine().id]


def test_a_node_that_does_not_answer_offers_nothing() -> None:
    ctx = click.Context(click.Command("x"), obj=Access(url="http://127.0.0.1:1", token=None))
    assert completions.apps(ctx, PARAM, "") == completions.mounts(ctx, PARAM, "") == []


# Whatever names an app, a machine, a volume, an image, a node or a region is completed, in every command.

_OPTIONS = {"--app", "--machine", "--node", "--to", "--to-node", "--image", "--region"}
_ARGUMENTS = {"app", "machine", "machines", "volume", "volumes", "image", "images", "node", "nodes", "target"}
_OTHER_THINGS = {
    "hawker up --region": "a name of one's own",
    "hawker join --region": "the same",
    "hawker worker --region": "the same",
    "hawker volumes verify --region": "of a bucket",
    "hawker volumes extract --region": "the same",
    "hawker volumes prune --region": "the same",
    "hawker volumes contents --region": "the same",
    "hawker volumes forget --region": "the same",
    "hawker volumes key export --region": "the same",
    "hawker volumes key import --region": "the same",
    "hawker volumes key passphrase --region": "the same",
    "hawker kernel import --image": "a file",
    "hawker images push target": "a new name",
}


def parameters(command: click.Command, path: str) -> Iterator[tuple[str, click.Parameter]]:
    table = command.table if isinstance(command, LazyGroup) else {}
    below = {name: place.load() for name, place in table.items() if not place.hidden and name not in ("sim", "chaos")}
    for name, each in (below or (command.commands if isinstance(command, click.Group) else {})).items():
        yield from parameters(each, f"{path} {name}")
    for parameter in command.params:
        named = _ARGUMENTS & {parameter.name} if isinstance(parameter, click.Argument) else _OPTIONS & {*parameter.opts}
        if named:
            yield f"{path} {sorted(named)[0]}", parameter


@pytest.mark.parametrize(
    ("name", "parameter"), [pytest.param(*each, id=each[0]) for each in parameters(ROOT, "hawker")]
)
def test_a_parameter_that_names_something_is_completed(name: str, parameter: click.Parameter) -> None:
    assert (parameter._custom_shell_complete is None) is (name in _OTHER_THINGS)
