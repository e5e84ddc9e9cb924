"""What a client may see of machines, at any moment and while a daemon recovers: no operation is half-visible.

Of one answer: state and events belong together. Of two, one asked after the other was answered: what was seen stays
seen. Checks return what they find and raise nothing.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from hawker.api.contract.machine import Machine, MachineEvent
from hawker.machine import OFF, State
from hawker.proof.violation import Invariant, Violation

WHOLE_BELOW = 20
"""An answer with fewer events has all there are."""

_ENDS = frozenset({("destroy", "destroyed"), ("launch", "launch_failed")})
_STARTED, _HELD = ("start", "started"), ("suspend", "suspended")


def impossible(machine: Machine) -> list[Violation]:
    """What cannot be so in one answer."""
    return [Violation(Invariant.WHOLE, machine.id, what) for what in _combinations(machine)]


def vanished(before: Machine, after: Machine) -> list[Violation]:
    """`after` was asked for once `before` was answered: its history only grows."""
    newest = {event.id for event in after.events}
    oldest = min(newest, default="")
    lost = [event for event in before.events if event.id >= oldest and event.id not in newest]
    found = [f"{_name(event)} was seen, and later not" for event in lost]
    if before.state is State.DESTROYED and after.state is not State.DESTROYED:
        found.append(f"was seen destroyed, and later {after.state}")
    if before.version > after.version and not _fell_back(after):
        found.append(f"was seen with version {before.version}, and later with {after.version}")
    return [Violation(Invariant.WHOLE, before.id, what) for what in found]


def unknown(listed: Sequence[Machine], missing: Collection[str]) -> list[Violation]:
    """`missing` were asked for by id once the list had been answered, and were not there."""
    what = "was in the list, and is not there by its id"
    return [Violation(Invariant.WHOLE, machine.id, what) for machine in listed if machine.id in missing]


def _combinations(machine: Machine) -> Iterator[str]:
    events = machine.events
    if not events:
        yield f"is {machine.state} without any event"
        return
    if any(older.id >= newer.id for newer, older in pairwise(events)):
        yield "its events are not newest first"
    if len(events) < WHOLE_BELOW and _pair(events[-1]) != ("launch", "created"):
        yield f"its history begins with {_name(events[-1])}"
    if (machine.state is State.DESTROYED) != (_pair(events[0]) in _ENDS):
        yield f"is {machine.state}, and its last event is {_name(events[0])}"
    if machine.instance_id != machine.version:
        yield f"has instance_id {machine.instance_id} and version {machine.version}"
    yield from _running(machine)


def _running(machine: Machine) -> Iterator[str]:
    """An instance runs from its start to its exit, or is held still: then it may be on its way to run again."""
    last = next((event for event in machine.events if _pair(event) in (_STARTED, _HELD) or event.type == "exit"), None)
    held, runs = last is not None and _pair(last) == _HELD, last is not None and _pair(last) == _STARTED
    if machine.state is State.STARTED and not runs and (last is not None or len(machine.events) < WHOLE_BELOW):
        yield f"is started, and {'nothing says so' if last is None else f'the last is {_name(last)}'}"
    if machine.state in OFF | {State.CREATED, State.STARTING, State.SUSPENDED} and runs:
        yield f"is {machine.state}, and what started has not ended"
    if machine.state in OFF | {State.CREATED} and held:
        yield f"is {machine.state}, and what was suspended has not ended"


def _fell_back(machine: Machine) -> bool:
    return any(_pair(event) == ("update", "failed") for event in machine.events)


def _pair(event: MachineEvent) -> tuple[str, str]:
    return event.type, event.status


def _name(event: MachineEvent) -> str:
    return f"{event.type}/{event.status} ({event.id})"
