"""Whether a machine has proven itself, by what its node says of it. Pure."""

from datetime import UTC, datetime
from typing import Any

import pytest

from hawker.api.contract.machine import CheckStatus, EventRequest, ExitEvent, ImageRef, Machine, MachineEvent
from hawker.deploys.health_gates import Expected, GateState, fallen, judged, start_of
from hawker.machine import State

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def event(number: int, type: str, status: str, **fields: Any) -> MachineEvent:
    return MachineEvent(id=f"{number:03}", type=type, status=status, source="flyd", timestamp=number, **fields)


def ended(number: int, code: int, *, asked: bool = False) -> MachineEvent:
    found = ExitEvent(
        exit_code=code,
        guest_exit_code=code,
        guest_signal=-1,
        oom_killed=False,
        requested_stop=asked,
        restarting=True,
        signal=-1,
        exited_at=NOW,
    )
    return event(number, "exit", "stopped", request=EventRequest(exit_event=found, restart_count=1))


STARTED = event(3, "start", "started")


def machine(
    *events: MachineEvent, state: State = State.STARTED, checks: tuple[str, ...] = (), version: str = "v2"
) -> Machine:
    return Machine(
        id="m1",
        name="one",
        state=state,
        region="ord",
        image_ref=ImageRef(registry="", repository="", tag="", digest=""),
        instance_id=version,
        version=version,
        private_ip="::1",
        created_at=NOW,
        updated_at=NOW,
        host_status="ok",
        events=events,
        checks=tuple(CheckStatus(name="up", status=each, output="refused", updated_at=NOW) for each in checks),
    )


@pytest.mark.parametrize(
    ("seen", "up_s", "state", "text"),
    [
        (machine(STARTED), 10.0, GateState.OPEN, ""),
        (machine(STARTED), 9.0, GateState.WAITING, "watched for 10 s"),
        (machine(state=State.STARTING), None, GateState.WAITING, "starting"),
        (machine(STARTED, checks=("passing", "critical")), 10.0, GateState.WAITING, "check up is critical: refused"),
        (machine(STARTED, checks=("warning",)), 10.0, GateState.WAITING, "check up is warning: refused"),
        (machine(STARTED, checks=("passing",)), 10.0, GateState.OPEN, ""),
        (machine(STARTED, ended(2, 1)), 10.0, GateState.OPEN, ""),
        (machine(STARTED, ended(2, 1), ended(1, 1)), 10.0, GateState.SHUT, "it crashes again and again with status 1"),
        (machine(STARTED, event(2, "update", "updating"), ended(1, 1), ended(0, 1)), 10.0, GateState.OPEN, ""),
        (machine(STARTED, ended(2, 1, asked=True), ended(1, 1, asked=True)), 10.0, GateState.OPEN, ""),
        (machine(ended(2, 0), state=State.STOPPED), None, GateState.SHUT, "it ended with status 0"),
        (machine(ended(2, 0, asked=True), state=State.STOPPED), None, GateState.OPEN, ""),
        (
            machine(event(2, "start", "failed", error="no such file"), state=State.FAILED),
            None,
            GateState.SHUT,
            "it did not start: no such file",
        ),
        (machine(STARTED, version="v3"), 10.0, GateState.SHUT, "somebody else changed it meanwhile"),
        (
            machine(event(2, "update", "failed", error="no image"), version="v1"),
            None,
            GateState.SHUT,
            "it fell back to its old version: no image",
        ),
        (machine(state=State.DESTROYED), None, GateState.SHUT, "it is gone"),
    ],
)
def test_a_gate_is_open_shut_or_waits(seen: Machine, up_s: float | None, state: GateState, text: str) -> None:
    verdict = judged(seen, Expected("v2", 10.0), up_s)
    assert (verdict.gate, verdict.text) == (state, text)


def test_a_machine_that_was_started_again_has_another_start() -> None:
    assert start_of(machine(STARTED)) == "003"
    assert start_of(machine(event(5, "start", "started"), ended(4, 1), STARTED)) == "005"
    assert start_of(machine(STARTED, state=State.STARTING)) is None


def test_a_machine_falls_when_it_crashes_again_or_a_check_turns_critical() -> None:
    assert fallen(machine(STARTED)) is None
    assert fallen(machine(STARTED, checks=("warning",))) is None
    assert fallen(machine(STARTED, checks=("passing", "critical"))) is not None
    assert fallen(machine(ended(5, 1), ended(4, 1), STARTED)) is not None
