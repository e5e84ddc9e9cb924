"""What clients were told, and whether it is so: acknowledged means kept.

A client takes a `Ticket` before each call and says how it was answered. One that was never answered (the connection was
cut, the daemon died) may have happened or not, so until the next answer nothing is claimed of what it would have set;
nor of two calls on one machine that overlapped. Different machines are independent.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from hawker.ids import MachineId
from hawker.machine import State
from hawker.proof.violation import Invariant, Violation
from hawker.record.machine import BY_ORDER, DESTROYED, EVENTS, MACHINES, EventRecord, MachineRecord
from hawker.store.contract import Reader


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


@dataclass(frozen=True, slots=True)
class ToldMachine:
    """What clients know of one machine: the last acknowledged call that moves it; `sure` while none since was left
    unanswered; `env` and `metadata` are known while `known`. `vanishes`: it is destroyed when its workload is done."""

    last: ClientCall = ClientCall.CREATE
    sure: bool = True
    known: bool = True
    env: Mapping[str, str] | None = None
    metadata: Mapping[str, str] | None = None
    vanishes: bool = False


@dataclass(frozen=True, slots=True)
class _Held:
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
