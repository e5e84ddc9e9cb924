import click
import pytest

from hawker.cli.access import Access
from hawker.cli.machines import Owned, chosen, complete_machine
from hawker.errors import BadRequest, NotFound, Unavailable
from hawker.machine import State
from tests.cli.conftest import Hawker
from tests.cli.fake_node import TOKEN, FakeNode, machine

WEB = Owned("shop", machine("3d8f0000000001", name="web"))
JOB = Owned("shop", machine("3d8f0000000002", name="job"))
OLD = Owned("shop", machine("9aaa0000000003", name="web", state=State.DESTROYED))
HEX = Owned("shop", machine("b0000000000004", name="3d8f"))
ALL = (WEB, JOB, OLD, HEX)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("3d8f0000000001", WEB),
        ("job", JOB),
        ("web", WEB),
        ("9aaa", OLD),
        ("3d8f", HEX),  # a name wins over the beginning of an id
        ("3d8f0000000002", JOB),
    ],
)
def test_the_best_match_is_chosen(reference: str, expected: Owned) -> None:
    assert chosen(ALL, reference, None) is expected


def test_an_ambiguous_beginning_names_all_that_fit() -> None:
    with pytest.raises(BadRequest, match=r"3d8f0000000001 \(shop/web\), 3d8f0000000002 \(shop/job\)"):
        chosen((WEB, JOB), "3d8f", None)


@pytest.mark.parametrize("reference", ["", "nothing"])
def test_a_missing_machine_is_not_found(reference: str) -> None:
    with pytest.raises(NotFound, match="in app 'shop'"):
        chosen(ALL, reference, "shop")


def test_an_app_that_goes_meanwhile_has_no_machines(node: FakeNode, hawker: Hawker) -> None:
    node.add("front", machine("aa00000000000a", name="web"))
    node.failures["list_machines"] = NotFound("app 'front' not found")
    assert hawker("machine", "list", "-q").out == ""
    assert hawker("machine", "list", "-q", "-a", "front").status == 3


def test_a_name_is_looked_for_in_all_apps_unless_one_is_named(node: FakeNode, hawker: Hawker) -> None:
    node.add("front", machine("aa00000000000a", name="web"))
    node.add("back", machine("bb00000000000b", name="web"))
    assert hawker("machine", "cordon", "web").status == 1
    assert hawker("machine", "cordon", "-a", "back", "web").out == "bb00000000000b\n"


def test_one_whose_node_is_away_is_not_said_to_be_gone(node: FakeNode, hawker: Hawker) -> None:
    """A list goes without it."""
    node.add("front", machine("aa00000000000a", name="web"))
    assert hawker("machine", "status", "bb00000000000b", "-a", "front").status == 3
    node.failures["get_machine"] = Unavailable("node 0badcafe in region mad is down")
    told = hawker("machine", "status", "bb00000000000b", "-a", "front")
    assert told.status == 5 and "node 0badcafe in region mad is down" in told.err


def offered(url: str, incomplete: str) -> list[str]:
    ctx = click.Context(click.Command("stop"), obj=Access(url, TOKEN))
    return [item.value for item in complete_machine(ctx, click.Argument(["machine"]), incomplete)]


@pytest.mark.parametrize(
    ("incomplete", "values"), [("", ["web", "3d8f0000000001"]), ("w", ["web"]), ("3d", ["3d8f0000000001"]), ("x", [])]
)
def test_names_and_ids_are_offered(node: FakeNode, url: str, incomplete: str, values: list[str]) -> None:
    node.add("shop", machine(name="web"))
    assert offered(url, incomplete) == values


def test_nothing_is_offered_when_the_node_does_not_answer() -> None:
    assert offered("http://127.0.0.1:1", "") == []
