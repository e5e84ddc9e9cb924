"""What clients were told, and whether it is so: acknowledged means kept.

A client takes a `Ticket` before each call and says how it was answered. One that was never answered (the connection was
cut, the daemon died) may have happened or not, so until the next answer nothing is claimed of what it would have set.
Calls on one machine must not overlap; different machines are independent.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from hawker.ids import MachineId
from hawker.machine import State
from hawker.proof.violation import Invariant, Violation
from hawker.store.contract import Reader
from hawker.worker.records import BY_ORDER, DESTROYED, MACHINES, MachineRecord


class Call(StrEnum):
    CREATE = "create"
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    UPDATE = "update"
    DESTROY = "destroy"
    METADATA = "metadata"


_SETS_CONFIG = frozenset({Call.UPDATE, Call.METADATA})
_AFTER = {
    Call.STOP: frozenset({State.STOPPED, State.FAILED}),
    Call.DESTROY: frozenset[State](),
}
"""Where a machine may rest after the last call that was acknowledged; elsewhere its workload may have ended."""
_RESTS = frozenset({State.STARTED, State.STOPPED, State.FAILED})


@dataclass(frozen=True, slots=True)
class Told:
    """Of one machine: the last acknowledged call that moves it; `sure` while none since was left unanswered; `env` and
    `metadata` are known while `known`."""

    last: Call = Call.CREATE
    sure: bool = True
    known: bool = True
    env: Mapping[str, str] | None = None
    metadata: Mapping[str, str] | None = None


class Ticket:
    """One call under way. Say `acknowledged` or `refused` (nothing was changed), or nothing when no answer came."""

    def __init__(self, promises: "Promises", machine_id: MachineId, call: Call) -> None:
        self._told, self._machine_id, self._call = promises.told, machine_id, call
        self._before = before = promises.told[machine_id]
        moves = call is not Call.METADATA
        self._told[machine_id] = replace(
            before, sure=before.sure and not moves, known=before.known and call not in _SETS_CONFIG
        )

    def refused(self) -> None:
        self._told[self._machine_id] = self._before

    def acknowledged(self, *, env: Mapping[str, str] | None = None, metadata: Mapping[str, str] | None = None) -> None:
        """`env` and `metadata`: what the call has set. An update sets both, `metadata` its own part."""
        before = self._before
        match self._call:
            case Call.METADATA:
                now = replace(before, metadata=metadata)
            case Call.UPDATE:
                now = Told(last=self._call, env=env, metadata=metadata)
            case _:
                now = replace(before, last=self._call, sure=True)
        self._told[self._machine_id] = now


class Promises:
    """All that the clients of one worker were told."""

    def __init__(self) -> None:
        self.told: dict[MachineId, Told] = {}
        self.orders: dict[str, MachineId] = {}

    def created(self, machine_id: MachineId, order: str, *, env: Mapping[str, str] | None = None) -> list[Violation]:
        """A create was acknowledged under its idempotency key. The same key must always name the same machine."""
        first = self.orders.setdefault(order, machine_id)
        self.told.setdefault(machine_id, Told(env=env))
        twice = Violation(Invariant.KEPT, machine_id, f"order {order} had been filled by {first}")
        return [] if first == machine_id else [twice]

    def ask(self, machine_id: MachineId, call: Call) -> Ticket:
        return Ticket(self, machine_id, call)

    def broken(self, reader: Reader) -> list[Violation]:
        """At rest: whatever was acknowledged last is so."""
        machines = {record.id: record for _, record in reader.scan(MACHINES)}
        gone = {record.id for _, record in reader.scan(DESTROYED)}
        found = [
            Violation(Invariant.KEPT, machine_id, what)
            for machine_id, told in self.told.items()
            for what in _broken(machine_id, told, machines, gone)
        ]
        return found + list(_filled_twice(reader))


def _broken(
    machine_id: MachineId, told: Told, machines: Mapping[MachineId, MachineRecord], gone: set[MachineId]
) -> Iterator[str]:
    record = machines.get(machine_id)
    if record is None:
        if machine_id not in gone:
            yield "was acknowledged and is forgotten"
        elif told.sure and told.last is not Call.DESTROY:
            yield f"{told.last} was acknowledged, and it is destroyed"
        return
    if told.sure and record.state not in _AFTER.get(told.last, _RESTS):
        yield f"{told.last} was acknowledged, and it is {record.state.value}"
    if told.known and _plain(record.config.env) != _plain(told.env):
        yield f"env {told.env} was acknowledged, and it is {record.config.env}"
    if told.known and _plain(record.config.metadata) != _plain(told.metadata):
        yield f"metadata {told.metadata} was acknowledged, and it is {record.config.metadata}"


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
