"""Who waits for a machine to change, and how they hear of it. In memory: a waiter always re-reads the record."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import anyio

from hawker.errors import Conflict, DeadlineExceeded, NotFound
from hawker.ids import MachineId
from hawker.machine import SETTLED, State
from hawker.record.machine import EventRecord, MachineRecord
from hawker.value_object import ValueObject

T = TypeVar("T")


class Changes:
    """The events of machines that somebody waits for, one for each; it is set and dropped at each change."""

    def __init__(self) -> None:
        self._waiting: dict[MachineId, anyio.Event] = {}
        self._listeners: list[Callable[[MachineId], None]] = []

    def listen(self, listener: Callable[[MachineId], None]) -> None:
        """Call `listener` after each committed change; it must not block."""
        self._listeners.append(listener)

    def notify(self, machine_id: MachineId) -> None:
        """Wake everyone who waits for this machine. Called after the commit."""
        event = self._waiting.pop(machine_id, None)
        if event is not None:
            event.set()
        for listener in self._listeners:
            listener(machine_id)

    async def until(self, machine_id: MachineId, check: Callable[[], T | None]) -> T:
        """The first answer of `check` that is not None, asked now and after each change. The caller sets a deadline."""
        while (answer := check()) is None:
            event = self._waiting.setdefault(machine_id, anyio.Event())
            try:
                await event.wait()
            finally:
                self._leave(machine_id, event)
        return answer

    @property
    def waiting(self) -> int:
        """The number of machines that somebody waits for."""
        return len(self._waiting)

    def _leave(self, machine_id: MachineId, event: anyio.Event) -> None:
        """The last who gives up takes the event with him."""
        if not event.is_set() and event.statistics().tasks_waiting == 0:
            self._waiting.pop(machine_id, None)


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
    begun = record_of().last_event

    def check() -> tuple[State, MachineRecord] | None:
        record = record_of()
        state = reached(record, wanted, events_since, begun)
        return None if state is None else (state, record)

    with anyio.move_on_after(timeout_s):
        return await changes.until(record_of().id, check)
    raise DeadlineExceeded(
        f"machine failed to reach desired state, {','.join(wanted.words)}, currently {record_of().state}"
    )
