import pytest

from hawker.api.contract.machine import MachineEvent
from hawker.cli import outcome
from hawker.machine import State
from tests.cli.fake_node import LAUNCHED, STARTED, event, exit_event, machine

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
    assert outcome.failure(machine(state=State.STOPPED, events=events)) == text


def test_a_command_that_was_never_executed_is_told_apart() -> None:
    assert outcome.never_executed(machine(events=(MISSING, LAUNCHED))) == "no such file"
    assert outcome.never_executed(machine(events=(exit_event(1), LAUNCHED))) is None
    assert outcome.never_executed(machine(events=())) is None


def test_an_earlier_instances_end_does_not_count_after_a_new_order() -> None:
    halted = exit_event(0, requested=True)
    assert outcome.never_executed(machine(events=(STARTED, RESTART, MISSING, LAUNCHED))) is None
    assert not outcome.ended_well(machine(state=State.STOPPED, events=(halted, RESTART, exit_event(0), LAUNCHED)))


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
    assert outcome.ended_well(machine(state=state, events=(exit_event(code), STARTED, LAUNCHED))) is well


def test_the_last_exit_counts_also_when_it_was_asked_for() -> None:
    stopped = machine(events=(exit_event(130, requested=True), event("stop", "stopping", "user"), exit_event(1)))
    found = outcome.last_exit(stopped)
    assert found is not None and found.exit_code == 130
    assert outcome.last_exit(machine(events=(LAUNCHED,))) is None
