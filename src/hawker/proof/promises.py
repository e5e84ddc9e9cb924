"""What clients were told, and whether it is so: acknowledged means kept; and what they may see while a daemon recovers.

A client takes a `Ticket` before each call and says how it was answered. One that was never answered (the connection was
cut, the daemon died) may have happened or not, so until the next answer nothing is claimed of what it would have set;
nor of two calls on one machine that overlapped. Different machines are independent.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise

from msgspec.structs import replace

from hawker.api.contract.machine import Machine, MachineEvent
from hawker.ids import MachineId
from hawker.machine import OFF, State
from hawker.proof.violation import Invariant, Violation
from hawker.record.machine import BY_ORDER, DESTROYED, EVENTS, MACHINES, EventRecord, MachineRecord
from hawker.store.contract import Reader
from hawker.value_object import ValueObject


class ClientCall(StrEnum):
    CREATE = "create"
    START = "start"
    STOP = "stop"
    SUSPEND = "suspend"
    RESTART = "restart"
    UPDATE = "update"
    DESTROY = "destroy"
    METADATA = "metadata"


_SETS_CONFIG = frozenset({ClientCall.UPDATE, ClientCall.METADATA})
_AFTER = {
    ClientCall.STOP: frozenset({State.STOPPED, State.FAILED}),
    ClientCall.SUSPEND: frozenset({State.SUSPENDED, State.STOPPED}),
    ClientCall.DESTROY: frozenset[State](),
}
"""Where a machine may rest after the last call that was acknowledged; elsewhere its workload may have ended."""
_RESTS = frozenset({State.STARTED, State.STOPPED, State.FAILED})


class ToldMachine(ValueObject, frozen=True):
    """What clients know of one machine: the last acknowledged call that moves it; `sure` while none since was left
    unanswered; `env` and `metadata` are known while `known`. `vanishes`: it is destroyed when its workload is done."""

    last: ClientCall = ClientCall.CREATE
    sure: bool = True
    known: bool = True
    env: Mapping[str, str] | None = None
    metadata: Mapping[str, str] | None = None
    vanishes: bool = False


class _Held(ValueObject, frozen=True):
    """A lease that a client was given, by the worker's clock."""

    nonce: str
    until: float


class Ticket:
    """One call under way. Say `acknowledged` or `refused` (nothing was changed), or nothing when no answer came."""

    def __init__(self, promises: "Promises", machine_id: MachineId, call: ClientCall) -> None:
        self._promises, self._told = promises, promises.told
        self._machine_id, self._call = machine_id, call
        self._before = before = promises.told[machine_id]
        moves = call is not ClientCall.METADATA
        self._told[machine_id] = replace(
            before, sure=before.sure and not moves, known=before.known and call not in _SETS_CONFIG
        )
        self._turn = promises.turn(machine_id)
        self._held = promises.leases.get(machine_id)

    def refused(self) -> None:
        if self._alone():
            self._told[self._machine_id] = self._before

    def acknowledged(
        self,
        *,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        nonce: str | None = None,
        now: float | None = None,
    ) -> list[Violation]:
        """`env` and `metadata`: what the call has set. An update sets both, `metadata` its own part. `nonce` is of the
        caller's lease, `now` the worker's time: while a client holds a lease, nobody else's call is taken but for
        metadata."""
        if self._alone():
            self._told[self._machine_id] = self._after(env, metadata)
        held = self._promises.leases.get(self._machine_id)
        if self._call is ClientCall.DESTROY:
            self._promises.leases.pop(self._machine_id, None)
        if held is not self._held or self._call is ClientCall.METADATA:  # it was given while this call was under way
            return []
        if now is None or held is None or held.nonce == nonce or held.until <= now:
            return []
        what = f"{self._call} was acknowledged without the lease that is held until {held.until:.3f}"
        return [Violation(Invariant.KEPT, self._machine_id, what)]

    def _after(self, env: Mapping[str, str] | None, metadata: Mapping[str, str] | None) -> ToldMachine:
        before = self._before
        match self._call:
            case ClientCall.METADATA:
                return replace(before, metadata=metadata)
            case ClientCall.UPDATE:
                return replace(before, last=self._call, sure=True, known=True, env=env, metadata=metadata)
            case _:
                return replace(before, last=self._call, sure=True)

    def _alone(self) -> bool:
        """Whether no other call on the machine was asked or answered since this one was asked."""
        alone = self._promises.turns[self._machine_id] == self._turn
        self._promises.turn(self._machine_id)
        return alone


class Promises:
    """All that the clients of one worker were told. `turns` counts what was asked and answered of each machine."""

    def __init__(self) -> None:
        self.told: dict[MachineId, ToldMachine] = {}
        self.orders: dict[str, MachineId] = {}
        self.turns: Counter[MachineId] = Counter()
        self.leases: dict[MachineId, _Held] = {}

    def created(
        self, machine_id: MachineId, order: str, *, env: Mapping[str, str] | None = None, vanishes: bool = False
    ) -> list[Violation]:
        """A create was acknowledged under its idempotency key. The same key must always name the same machine."""
        first = self.orders.setdefault(order, machine_id)
        self.told.setdefault(machine_id, ToldMachine(env=env, vanishes=vanishes))
        twice = Violation(Invariant.KEPT, machine_id, f"order {order} had been filled by {first}")
        return [] if first == machine_id else [twice]

    def ask(self, machine_id: MachineId, call: ClientCall) -> Ticket:
        return Ticket(self, machine_id, call)

    def leased(self, machine_id: MachineId, nonce: str, until: float) -> None:
        """A client was given a lease, until this moment by the worker's clock."""
        self.leases[machine_id] = _Held(nonce, until)

    def unleased(self, machine_id: MachineId) -> None:
        """It was given back, or may have been: no answer came."""
        self.leases.pop(machine_id, None)

    def turn(self, machine_id: MachineId) -> int:
        self.turns[machine_id] += 1
        return self.turns[machine_id]

    def broken(self, reader: Reader) -> list[Violation]:
        """At rest: whatever was acknowledged last is so, or the machine's history says why it could not be."""
        found = [
            Violation(Invariant.KEPT, machine_id, what)
            for machine_id, told in self.told.items()
            for what in _broken(reader, machine_id, told)
        ]
        return found + list(_filled_twice(reader))


def _broken(reader: Reader, machine_id: MachineId, told: ToldMachine) -> Iterator[str]:
    record = reader.get(MACHINES, machine_id)
    if record is None:
        yield from _broken_and_gone(reader, machine_id, told)
        return
    rests = _AFTER.get(told.last, _RESTS)
    if told.last is ClientCall.SUSPEND and _ended_first(reader, machine_id):
        rests = _RESTS
    if told.sure and record.state not in rests:
        yield f"{told.last} was acknowledged, and it is {record.state.value}"
    if not told.known or _fell_back(reader, machine_id):
        return
    if _plain(record.config.env) != _plain(told.env):
        yield f"env {told.env} was acknowledged, and it is {record.config.env}"
    if _plain(record.config.metadata) != _plain(told.metadata):
        yield f"metadata {told.metadata} was acknowledged, and it is {record.config.metadata}"


def _broken_and_gone(reader: Reader, machine_id: MachineId, told: ToldMachine) -> Iterator[str]:
    record = reader.get(DESTROYED, machine_id)
    if record is None:
        yield "was acknowledged and is forgotten"
        return
    events = list(_events(reader, machine_id))
    taken_back = bool(events) and events[-1].status == "launch_failed"  # whatever was asked of it meanwhile
    if told.sure and told.last is not ClientCall.DESTROY and not told.vanishes and not taken_back:
        yield f"{told.last} was acknowledged, and it is destroyed"


def _ended_first(reader: Reader, machine_id: MachineId) -> bool:
    """Whether an instance of it was ever gone before it could be suspended, so that its restart policy decided."""
    return any((event.type, event.status) == ("suspend", "failed") for event in _events(reader, machine_id))


def _fell_back(reader: Reader, machine_id: MachineId) -> bool:
    """Whether an update of it ever could not be prepared, so that an older config is the right one."""
    return any((event.type, event.status) == ("update", "failed") for event in _events(reader, machine_id))


def _events(reader: Reader, machine_id: MachineId) -> Iterator[EventRecord]:
    return (event for _, event in reader.scan(EVENTS, f"{machine_id}/"))


def _plain(values: Mapping[str, str] | None) -> dict[str, str]:
    return dict(values or {})


def _filled_twice(reader: Reader) -> Iterator[Violation]:
    """Two machines for one order, whoever asked."""
    filled: defaultdict[str, list[MachineId]] = defaultdict(list)
    for record in _all(reader):
        if record.order:
            filled[f"{record.app}/{record.order}"].append(record.id)
    for order, machine_ids in filled.items():
        if len(machine_ids) > 1:
            yield Violation(Invariant.KEPT, order, f"was filled by {', '.join(machine_ids)}")
        elif reader.get(BY_ORDER, order) is None:
            yield Violation(Invariant.KEPT, order, f"filled by {machine_ids[0]} is no longer known")


def _all(reader: Reader) -> list[MachineRecord]:
    return [record for bucket in (MACHINES, DESTROYED) for _, record in reader.scan(bucket)]


# What a client may see of machines, at any moment and while a daemon recovers: no operation is half-visible. Of one
# answer: state and events belong together. Of two, one asked after the other was answered: what was seen stays
# seen. Checks return what they find and raise nothing.

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
    if before.version > after.version and not _was_put_back(after):
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


def _was_put_back(machine: Machine) -> bool:
    return any(_pair(event) == ("update", "failed") for event in machine.events)


def _pair(event: MachineEvent) -> tuple[str, str]:
    return event.type, event.status


def _name(event: MachineEvent) -> str:
    return f"{event.type}/{event.status} ({event.id})"
