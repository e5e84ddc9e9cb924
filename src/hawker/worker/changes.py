"""Who waits for a machine to change, and how they hear of it. In memory: those who wait re-read the record after each
change, once for all of them.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import anyio

from hawker.errors import Conflict, DeadlineExceeded, NotFound
from hawker.ids import MachineId
from hawker.machine import SETTLED, State
from hawker.record.machine import EventRecord, MachineRecord
from hawker.value_object import ValueObject

T = TypeVar("T")


class _Lull:
    """The time between two changes of a machine, while somebody waits: what one of them reads holds for all."""

    __slots__ = ("ended", "events", "record", "since", "waiting")

    def __init__(self, waiting: int = 0) -> None:
        self.ended = anyio.Event()
        self.waiting = waiting
        """The number of those who wait, from their first look to their last."""
        self.record: MachineRecord | None = None
        self.events: list[EventRecord] = []
        self.since: str | None = None
        """The event after which `events` begin; None: they were not read."""


class Changes:
    """The machines that somebody waits for, each until its next change."""

    def __init__(self) -> None:
        self._waiting: dict[MachineId, _Lull] = {}
        self._listeners: list[Callable[[MachineId], None]] = []

    def listen(self, listener: Callable[[MachineId], None]) -> None:
        """Call `listener` after each committed change; it must not block."""
        self._listeners.append(listener)

    def notify(self, machine_id: MachineId) -> None:
        """Wake everyone who waits for this machine. Called after the commit."""
        lull = self._waiting.get(machine_id)
        if lull is not None:
            self._waiting[machine_id] = _Lull(lull.waiting)
            lull.ended.set()
        for listener in self._listeners:
            listener(machine_id)

    async def until(self, machine_id: MachineId, check: Callable[[], T | None]) -> T:
        """The first answer of `check` that is not None, asked now and after each change. The caller sets a deadline."""
        self._waiting.setdefault(machine_id, _Lull()).waiting += 1
        try:
            while (answer := check()) is None:
                await self._waiting[machine_id].ended.wait()
            return answer
        finally:
            self._leave(machine_id)

    def record(self, machine_id: MachineId, read: Callable[[], MachineRecord]) -> MachineRecord:
        """What `read` has: for a check of `until`, read once between two changes."""
        lull = self._waiting.get(machine_id)
        if lull is None:
            return read()
        if lull.record is None:
            lull.record = read()
        return lull.record

    def events(
        self, machine_id: MachineId, after: str, read_after: Callable[[str], list[EventRecord]]
    ) -> list[EventRecord]:
        """As `record`, the events after one; read twice at most, whatever each of those who wait asks for."""
        lull = self._waiting.get(machine_id)
        if lull is None:
            return read_after(after)
        if lull.since is None or after < lull.since:
            lull.since = after if lull.since is None else ""
            lull.events = read_after(lull.since)
        return [event for event in lull.events if event.id > after]

    @property
    def waiting(self) -> int:
        """The number of machines that somebody waits for."""
        return len(self._waiting)

    def _leave(self, machine_id: MachineId) -> None:
        """The last who leaves takes what was read with him."""
        lull = self._waiting[machine_id]
        lull.waiting -= 1
        if not lull.waiting:
            del self._waiting[machine_id]


# Waiting for a machine to reach a state: what counts as reached, and what can no longer be reached.

SETTLED_WORD = "settled"
WAITABLE = ("started", "stopped", "suspended", "destroyed", "failed", SETTLED_WORD)


class WaitTarget(ValueObject, frozen=True):
    """Any of `states`; of that `version`, if given; reached after the event `from_event_id`, if given."""

    states: frozenset[State]
    words: tuple[str, ...]  # as asked, for the refusal's text
    version: str | None = None
    from_event_id: str | None = None


def wanted(words: tuple[str, ...], version: str | None, from_event_id: str | None) -> WaitTarget:
    """Read the query's words; the caller has checked that each is in `WAITABLE`."""
    states = {State(word) for word in words if word != SETTLED_WORD}
    if SETTLED_WORD in words:
        states |= SETTLED
    return WaitTarget(states=frozenset(states), words=words, version=version, from_event_id=from_event_id)


def reached(
    record: MachineRecord,
    wanted: WaitTarget,
    events_since: Callable[[str], list[EventRecord]],
    begun: str | None = None,
) -> State | None:
    """The state that answers the wait, or None to go on waiting.

    A state that was passed through since `from_event_id` counts, so that a machine that started and exited between two
    calls is not missed; so does a start since the last event when the wait `begun`. Raises `Conflict` when the wait can
    never be answered, `NotFound` when the machine is gone.
    """
    if wanted.version is not None and wanted.version != record.version:
        if wanted.version > record.version:
            return None
        raise Conflict(f"version {wanted.version} was replaced by {record.version}")
    if record.state in wanted.states:
        if wanted.from_event_id is None or record.last_event > wanted.from_event_id:
            return record.state
    elif wanted.from_event_id is not None:
        events = events_since(wanted.from_event_id)
        for index, event in enumerate(events):
            if event.status in wanted.states and not _goes_on(event, events[index + 1 :], record.state):
                return State(event.status)
    elif begun is not None and State.STARTED in wanted.states and _started(events_since(begun)):
        return State.STARTED
    if record.state is State.DESTROYED:
        raise NotFound("machine not found")
    return None


def _started(events: list[EventRecord]) -> bool:
    return any(event.status == State.STARTED for event in events)


_LAUNCHING = frozenset({State.RESTARTING, State.UPDATING, State.REPLACING, State.STARTING, State.STARTED})
_STATES = frozenset(State)


def _goes_on(event: EventRecord, later: Sequence[EventRecord], state: State) -> bool:
    """Whether it is an exit in the middle of a restart or an update, which is no stop. What is said of a start behind a
    stop is first that it begins; a restart that was begun before says at once how its start, or its instance, ended.
    `state` is the machine's now."""
    if event.type != "exit":
        return False
    if event.detail is not None and event.detail.restarting:
        return True
    following = next((each for each in later if each.status in _STATES), None)
    if following is None:
        return state in _LAUNCHING
    return following.type == "exit" or following.status in (State.STARTED, State.FAILED)


async def wait(
    changes: Changes,
    record_of: Callable[[], MachineRecord],
    wanted: WaitTarget,
    timeout_s: float,
    events_since: Callable[[str], list[EventRecord]],
) -> tuple[State, MachineRecord]:
    """Block until reached, be it for a moment. Raises `DeadlineExceeded` with the text that clients match on."""
    first = record_of()

    def shared_events(after: str) -> list[EventRecord]:
        return changes.events(first.id, after, events_since)

    def check() -> tuple[State, MachineRecord] | None:
        record = changes.record(first.id, record_of)
        state = reached(record, wanted, shared_events, first.last_event)
        return None if state is None else (state, record)

    with anyio.move_on_after(timeout_s):
        return await changes.until(first.id, check)
    raise DeadlineExceeded(
        f"machine failed to reach desired state, {','.join(wanted.words)}, currently {record_of().state}"
    )
