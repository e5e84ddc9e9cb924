import pytest

from hawker.api.contract.run import RunState
from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, machine


def test_runs_are_listed(node: FakeNode, hawker: Hawker) -> None:
    row = hawker("runs", "list").out.splitlines()[1].split()
    assert row[:5] == ["01RUN", "create", "machine", "3d8f0000000001", "done"]


def test_runs_are_selected_by_machine_flow_and_state(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    hawker("runs", "list", "--machine", "web", "--flow", "start", "-s", "stuck", "-s", "active", "-n", "5")
    query = node.call("list_runs").query
    assert (query.resource_id, query.flow, query.limit) == ("3d8f0000000001", "start", 5)
    assert query.state == (RunState.STUCK, RunState.ACTIVE)


def test_runs_are_selected_by_volume(node: FakeNode, hawker: Hawker) -> None:
    hawker("runs", "list", "--volume", "vol_0000000000000001")
    assert node.call("list_runs").query.resource_id == "vol_0000000000000001"


@pytest.mark.parametrize(("word", "call"), [("show", "get_run"), ("retry", "retry_run"), ("abort", "abort_run")])
def test_a_run_is_shown_with_its_steps(node: FakeNode, hawker: Hawker, word: str, call: str) -> None:
    said = hawker("runs", word, "01RUN")
    assert ["rootfs", "done", "1", "37.1", "ms", "-"] in [line.split() for line in said.out.splitlines()]
    assert node.call(call).params.run_id == "01RUN"


def test_an_unknown_run_is_not_found(hawker: Hawker) -> None:
    assert hawker("runs", "show", "nothing").status == ExitStatus.NOT_FOUND
