import msgspec
import pytest

from hawker.cli.exits import ExitStatus
from hawker.machine import State
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, machine


@pytest.fixture(autouse=True)
def _machines(node: FakeNode) -> None:
    node.add("shop", machine("aa00000000000a", name="web"))
    node.add("jobs", machine("bb00000000000b", name="job", state=State.STOPPED))


def test_machines_of_all_apps_are_listed_with_their_app(hawker: Hawker) -> None:
    _, *rows = hawker("machine", "list").out.splitlines()
    assert [row.split()[:4] for row in rows] == [
        ["aa00000000000a", "web", "shop", "started"],
        ["bb00000000000b", "job", "jobs", "stopped"],
    ]


def test_one_app_is_asked_for_alone(node: FakeNode, hawker: Hawker) -> None:
    assert hawker("machine", "list", "-a", "jobs", "-q").out == "bb00000000000b\n"
    assert "list_apps" not in node.calls


def test_the_selection_is_the_nodes_to_make(node: FakeNode, hawker: Hawker) -> None:
    hawker("machine", "list", "-a", "shop", "-s", "started", "-s", "failed", "-r", "ams", "--metadata", "a=b", "--all")
    query = node.call("list_machines").query
    assert query.state == (State.STARTED, State.FAILED)
    assert (query.region, query.metadata, query.include_deleted, query.summary) == ("ams", {"a": "b"}, True, True)


def test_json_has_the_app_and_the_whole_machine(node: FakeNode, hawker: Hawker) -> None:
    shown = msgspec.json.decode(hawker("machine", "list", "-a", "shop", "-o", "json").out)
    assert [(each["app"], each["machine"]["name"]) for each in shown] == [("shop", "web")]
    assert node.call("list_machines").query.summary is False


def test_nothing_is_no_line_for_programs_and_a_head_for_people(node: FakeNode, hawker: Hawker) -> None:
    node.apps.clear()
    assert hawker("machine", "list", "-q").out == ""
    assert hawker("machine", "list").out.split()[0] == "ID"


def test_an_unknown_app_is_not_found(hawker: Hawker) -> None:
    assert hawker("machine", "list", "-a", "nothing").status == ExitStatus.NOT_FOUND


@pytest.mark.parametrize("form", [(), ("-q",), ("-o", "json")])
def test_a_list_says_that_a_host_did_not_answer(node: FakeNode, hawker: Hawker, form: tuple[str, ...]) -> None:
    assert hawker("machine", "list", *form).err == ""
    node.missing_regions = ("ams",)
    said = hawker("machine", "list", *form)
    assert said.status is ExitStatus.OK and "aa00000000000a" in said.out
    assert said.err == (
        "note: a host in region 'ams' does not answer: what it has is not listed; see `hawker node list`\n"
    )


def test_a_machine_of_a_silent_host_stays_and_its_host_is_named(node: FakeNode, hawker: Hawker) -> None:
    lost = msgspec.structs.replace(node.apps["shop"]["aa00000000000a"], host_status="unreachable", host="0000000a")
    node.apps["shop"][lost.id] = lost
    node.missing_regions, node.missing_nodes = ("ams",), ("0000000a",)
    said = hawker("machine", "list")
    assert "0000000a away" in said.out and "no answer from 0000000a" in said.err and "HOST" in said.out
    assert '"host_status": "unreachable"' in hawker("machine", "list", "-o", "json").out
