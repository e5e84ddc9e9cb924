from datetime import UTC, datetime

import msgspec
import pytest

from hawker.api.contract.run import RunList, RunState, RunSummary
from hawker.cli.commands.runs import runs_table
from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import AT, FakeNode, machine
from tests.cli.fake_volumes import volume


def test_runs_are_listed(node: FakeNode, hawker: Hawker) -> None:
    row = hawker("runs", "list").out.splitlines()[1].split()
    assert row[:5] == ["01RUN", "create", "3d8f0000000001", "done", "1.00"]


def test_runs_are_selected_by_machine_flow_and_state(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    hawker("runs", "list", "--machine", "web", "--flow", "start", "-s", "stuck", "-s", "active", "-n", "5")
    query = node.call("list_runs").query
    assert (query.resource_id, query.flow, query.limit) == ("3d8f0000000001", "start", 5)
    assert query.state == (RunState.STUCK, RunState.ACTIVE)


def test_runs_are_selected_by_volume(node: FakeNode, hawker: Hawker) -> None:
    hawker("runs", "list", "--volume", "vol_0000000000000001")
    assert node.call("list_runs").query.resource_id == "vol_0000000000000001"


def test_runs_of_a_volume_are_found_by_its_name(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop")
    node.keep("shop", volume("vol_0000000000000002", name="logs"))
    hawker("runs", "list", "--volume", "logs")
    assert node.call("list_runs").query.resource_id == "vol_0000000000000002"
    assert hawker("runs", "list", "--volume", "nothing").status == ExitStatus.NOT_FOUND


def test_errors_have_a_column_only_where_a_run_has_one_and_a_run_under_way_says_its_step() -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    done = RunSummary(
        id="01RUN", flow="create", resource_kind="machine", resource_id="3d8f", state=RunState.DONE, created_at=AT
    )
    done = msgspec.structs.replace(done, ended_at=AT)
    assert "ERROR" not in runs_table(RunList(runs=(done,)), now)
    failed = msgspec.structs.replace(done, state=RunState.STUCK, step="launch", ended_at=None, error="no room")
    row = runs_table(RunList(runs=(done, failed)), now).splitlines()[2]
    assert "no room" in row and "stuck at launch" in row


@pytest.mark.parametrize(("word", "call"), [("show", "get_run"), ("retry", "retry_run"), ("abort", "abort_run")])
def test_a_run_is_shown_with_its_steps(node: FakeNode, hawker: Hawker, word: str, call: str) -> None:
    said = hawker("runs", word, "01RUN")
    assert ["rootfs", "done", "1", "37.1", "ms", "-"] in [line.split() for line in said.out.splitlines()]
    assert node.call(call).params.run_id == "01RUN"


def test_an_unknown_run_is_not_found(hawker: Hawker) -> None:
    assert hawker("runs", "show", "nothing").status == ExitStatus.NOT_FOUND
