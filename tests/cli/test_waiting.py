from collections.abc import Sequence

import pytest

from hawker.api.contract.machine import Machine, MachineEvent, MachineParams, WaitState
from hawker.api.in_process import InProcessCaller
from hawker.cli import waiting
from hawker.cli.exits import Failure
from hawker.cli.waiting import AT_REST, reach, started
from hawker.clock import ManualClock
from hawker.errors import DeadlineExceeded, NotFound
from hawker.machine import State
from tests.cli.fake_node import LAUNCHED, STARTED, FakeNode, event, exit_event, machine

RESTART = event("restart", "restarting", "user")
MISSING = exit_event(127, reason="no such file")


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ((exit_event(3), STARTED, LAUNCHED), "it exited with status 3"),
        ((exit_event(137, signal=9), STARTED, LAUNCHED), "it was ended by signal 9"),
        ((exit_event(137, signal=9, oom=True), STARTED, LAUNCHED), "it ran out of memory"),
        ((MISSING, LAUNCHED), "its command could not be executed: no such file"),
        (
            (event("start", "failed", error="pull failed: layer 2"), LAUNCHED),
            "pull failed: layer 2",
        ),
        ((LAUNCHED,), "it is stopped, and its events do not say why"),
        ((RESTART, exit_event(3), STARTED, LAUNCHED), "it is stopped, and its events do not say why"),
    ],
)
def test_the_newest_event_since_the_order_says_why(events: tuple[MachineEvent, ...], text: str) -> None:
    assert waiting.failure(machine(state=State.STOPPED, events=events)) == text


def test_a_command_that_was_never_executed_is_told_apart() -> None:
    assert waiting.never_executed(machine(events=(MISSING, LAUNCHED))) == "no such file"
    assert waiting.never_executed(machine(events=(exit_event(1), LAUNCHED))) is None
    assert waiting.never_executed(machine(events=())) is None


def test_an_earlier_instances_end_does_not_count_after_a_new_order() -> None:
    halted = exit_event(0, requested=True)
    assert waiting.never_executed(machine(events=(STARTED, RESTART, MISSING, LAUNCHED))) is None
    assert not waiting.ended_well(machine(state=State.STOPPED, events=(halted, RESTART, exit_event(0), LAUNCHED)))


@pytest.mark.parametrize(
    ("state", "code", "well"),
    [
        (State.STOPPED, 0, True),
        (State.DESTROYED, 0, True),
        (State.DESTROYING, 0, True),
        (State.STOPPED, 3, False),
        (State.STARTING, 0, False),
    ],
)
def test_a_machine_ended_well_when_it_is_off_after_exit_zero(state: State, code: int, well: bool) -> None:
    assert waiting.ended_well(machine(state=state, events=(exit_event(code), STARTED, LAUNCHED))) is well


def test_the_last_exit_counts_also_when_it_was_asked_for() -> None:
    stopped = machine(events=(exit_event(130, requested=True), event("stop", "stopping", "user"), exit_event(1)))
    found = waiting.last_exit(stopped)
    assert found is not None and found.exit_code == 130
    assert waiting.last_exit(machine(events=(LAUNCHED,))) is None


pytestmark = pytest.mark.anyio

PARAMS = MachineParams(app_name="shop", machine_id="3d8f0000000001")
NEVER = exit_event(127, reason="no such file", restarting=True)


class PassingClock(ManualClock):
    """Each look at it is a second later, as if the calls in between had taken that long."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


def caller(node: FakeNode) -> InProcessCaller:
    return InProcessCaller(node.handlers(), ManualClock(), "tester")


def node_with(state: State, *events: MachineEvent, version: str = "01V1") -> FakeNode:
    node = FakeNode()
    node.add("shop", machine(state=state, events=events, version=version))
    return node


async def start(node: FakeNode, within_s: float = 10.0) -> Machine:
    return await started(caller(node), PARAMS, "01V1", PassingClock(), within_s)


async def test_a_state_that_is_reached_ends_the_wait() -> None:
    node = node_with(State.STOPPED)
    answer = await reach(caller(node), PARAMS, AT_REST, ManualClock(), 5.0, version="01V1")
    assert answer.state is State.STOPPED
    assert node.call("wait_machine").query.version == "01V1"


async def test_a_long_wait_is_many_short_ones() -> None:
    node = node_with(State.STARTING)
    with pytest.raises(DeadlineExceeded, match="currently starting"):
        await reach(caller(node), PARAMS, (WaitState.STARTED,), PassingClock(), 150.0)
    timeouts = [call.query.timeout for call in node.calls["wait_machine"]]
    assert len(timeouts) > 2
    assert max(timeouts) == 60.0 and min(timeouts) >= 1.0


async def test_another_error_ends_the_wait_at_once() -> None:
    node = node_with(State.STARTING)
    node.failures["wait_machine"] = NotFound("machine not found")
    with pytest.raises(NotFound):
        await reach(caller(node), PARAMS, (WaitState.STARTED,), PassingClock(), 150.0)
    assert len(node.calls["wait_machine"]) == 1


async def test_a_started_machine_is_returned() -> None:
    assert (await start(node_with(State.STARTED, STARTED, LAUNCHED))).state is State.STARTED


@pytest.mark.parametrize("state", [State.STOPPED, State.DESTROYED])
async def test_a_machine_that_came_to_a_good_end_did_start(state: State) -> None:
    assert (await start(node_with(state, exit_event(0), STARTED, LAUNCHED))).state is state


@pytest.mark.parametrize(
    ("state", "events", "text"),
    [
        (State.STOPPED, (exit_event(3), STARTED, LAUNCHED), "did not start: it exited with status 3"),
        (State.STARTING, (NEVER, LAUNCHED), "does not start: no such file; see `hawker machine status"),
        (State.FAILED, (LAUNCHED,), "events do not say why"),
        (State.STARTING, (LAUNCHED,), "still starting after 10 s"),
    ],
)
async def test_a_machine_that_does_not_start_is_a_failure_that_says_why(
    state: State, events: Sequence[MachineEvent], text: str
) -> None:
    with pytest.raises(Failure, match=text):
        await start(node_with(state, *events))


async def test_of_a_destroyed_machine_nothing_more_is_to_be_seen() -> None:
    with pytest.raises(Failure) as caught:
        await start(node_with(State.DESTROYED, exit_event(1), LAUNCHED))
    assert "hawker machine status" not in caught.value.message


async def test_an_earlier_instance_s_events_do_not_count() -> None:
    node = node_with(State.STARTED, STARTED, event("start", "starting", "user"), NEVER, LAUNCHED)
    assert (await start(node)).state is State.STARTED


async def test_an_update_that_fell_back_is_a_failure() -> None:
    with pytest.raises(Failure, match="kept its version 01V0"):
        await start(node_with(State.STARTED, STARTED, event("update", "updating", "user"), version="01V0"))


async def test_state_of_a_machine_is_told_once_where_its_start_takes_long() -> None:
    node, told = node_with(State.CREATED), list[str]()
    with pytest.raises(Failure, match="is still created"):
        await started(caller(node), PARAMS, "01V1", PassingClock(), 60.0, tell=told.append)
    words = f"waiting: machine {PARAMS.machine_id} is created on node 0badcafe"
    assert told == [f"{words}, which pulls registry.local/web:3 unless it has it"]


async def test_start_that_takes_as_long_as_usual_is_not_told() -> None:
    told = list[str]()
    await started(caller(node_with(State.STARTED, STARTED)), PARAMS, "01V1", PassingClock(), 60.0, tell=told.append)
    assert told == []
