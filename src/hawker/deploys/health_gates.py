"""Whether a changed machine serves: started, up for a while, its checks passing. Pure: what was seen, and when."""

from enum import Enum

from hawker.api.contract.machine import ExitEvent, Machine, MachineEvent
from hawker.machine import GONE, State
from hawker.value_object import ValueObject

_PASSING = "passing"
_FELL_BACK = "update"
_CRASHES = 2
"""The number of exits in a row, that nobody asked for, which are a crash loop."""


class GateState(Enum):
    OPEN = "open"
    WAITING = "waiting"
    SHUT = "shut"


class GateVerdict(ValueObject, frozen=True):
    """`text` says what is waited for, or why it never comes."""

    gate: GateState
    text: str = ""


class Expected(ValueObject, frozen=True):
    """The version that the deploy made, how long it must stay up in seconds, and whether its checks count."""

    version: str
    """The machine's version, a ULID: with another one the gate is not this deploy's any more."""
    smoke_s: float
    """The seconds from the machine's start, 0 or more."""
    checks: bool = True
    """The machine's own checks and its services' have to pass, too."""


def judged(machine: Machine, expected: Expected, up_s: float | None) -> GateVerdict:
    """`up_s` is for how long the machine has been seen with the same start, None when it is not up."""
    shut = _shut(machine, expected.version)
    if shut is not None:
        return GateVerdict(GateState.SHUT, shut)
    if machine.state is State.STOPPED and _was_asked(machine):
        return GateVerdict(GateState.OPEN)
    if machine.state is not State.STARTED:
        return GateVerdict(GateState.WAITING, str(machine.state))
    if up_s is None or up_s < expected.smoke_s:
        return GateVerdict(GateState.WAITING, f"watched for {expected.smoke_s:g} s")
    failing = [check for check in machine.checks if check.status != _PASSING]
    if expected.checks and failing:
        first = failing[0]
        said = f": {first.output.strip()[:200]}" if first.output.strip() else ""
        return GateVerdict(GateState.WAITING, f"check {first.name} is {first.status}{said}")
    return GateVerdict(GateState.OPEN)


def fallen(machine: Machine) -> str | None:
    """Why a machine that had passed its gates would not pass them any more; None while it serves."""
    shut = _shut(machine, machine.version)
    failing = next((check for check in machine.checks if check.status == "critical"), None)
    if shut is not None or failing is None or machine.state is not State.STARTED:
        return shut
    return f"check {failing.name} is critical again: {failing.output.strip()[:200]}"


def start_of(machine: Machine) -> str | None:
    """The id of its latest start; a machine that was started again has another one."""
    if machine.state is not State.STARTED:
        return None
    return next((event.id for event in machine.events if event.type == "start" and event.status == "started"), "")


def exit_of(event: MachineEvent) -> ExitEvent | None:
    return event.request.exit_event if event.request is not None else None


def _shut(machine: Machine, version: str) -> str | None:
    if machine.version != version:
        return _other_version(machine)
    if machine.state in GONE:
        return f"it is gone{_why(machine)}"
    if machine.state is State.FAILED:
        return f"it did not start{_why(machine)}"
    if machine.state in (State.STOPPED, State.SUSPENDED) and not _was_asked(machine):
        return f"it ended{_why(machine)}"
    crashes = _crashes(machine)
    if crashes >= _CRASHES:
        return f"it crashes again and again{_why(machine)}"
    return None


def _other_version(machine: Machine) -> str:
    for event in machine.events:
        if event.type == _FELL_BACK and event.status == "failed":
            return f"it fell back to its old version: {event.error}"
    return "somebody else changed it meanwhile"


def _crashes(machine: Machine) -> int:
    """Exits since the last update, or since it was made, that nobody asked for."""
    found = 0
    for event in machine.events:
        if event.type in ("update", "launch", "restart"):
            break
        ended = exit_of(event)
        if ended is not None and not ended.requested_stop and ended.exit_code != 0:
            found += 1
    return found


def _was_asked(machine: Machine) -> bool:
    """Whether the latest end of a machine at rest was somebody's wish, be it a user's or the edge's."""
    for event in machine.events:
        ended = exit_of(event)
        if ended is not None:
            return ended.requested_stop
        if event.type == "stop":
            return True
    return False


def _why(machine: Machine) -> str:
    for event in machine.events:
        ended = exit_of(event)
        if ended is not None:
            return f": {ended.reason or ended.fault}" if ended.reason or ended.fault else f" with {_status(ended)}"
        if event.error:
            return f": {event.error}"
    return ""


def _status(ended: ExitEvent) -> str:
    if ended.oom_killed:
        return "no memory left"
    return f"signal {ended.guest_signal}" if ended.guest_signal > 0 else f"status {ended.exit_code}"
