"""Planted bugs of the daemon: tables of machines that break what a transaction keeps together, stores that promise too
much, flows with a wrong row, supervisors that see too little, policies that are not as recorded.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

import anyio
import msgspec
from anyio.abc import TaskStatus
from msgspec.structs import replace

from hawker.clock import Clock
from hawker.fsm import journal
from hawker.fsm.contract import Done, Flow, Outcome, Step
from hawker.fsm.run import State
from hawker.fsm.runner import Runner
from hawker.host.network_policy import PacketFilter
from hawker.ids import AppName, InstanceId, MachineId, OrderId
from hawker.netpolicy.policies import HostFilters, PolicyEnforcer
from hawker.node import Resources
from hawker.record.machine import EVENTS, MACHINES, EventRecord, MachineRecord, machine_id_of
from hawker.record.volume import VOLUMES
from hawker.runtime.driver import Exit
from hawker.sim.node.faulty_store import StoreOver
from hawker.store.contract import Bucket, Durability, Reader, Store, Tx
from hawker.volume.attachment import volume_id_of
from hawker.worker.changes import Changes
from hawker.worker.lifecycle import FLOWS
from hawker.worker.lifecycle.deps import Context, FlowDeps
from hawker.worker.supervisor import ExitHandler, Supervisor
from hawker.worker.table import Happened, MachineTable


class CountsTwice(MachineTable):
    """Takes the room of a new machine once for the order and once for the machine."""

    def insert(self, tx: Tx, record: MachineRecord) -> None:
        super().insert(tx, record)
        self._hold(tx, Resources(), record.holds)


class KeepsRoom(MachineTable):
    """Does not give back what a destroyed machine held."""

    def remove(self, tx: Tx, record: MachineRecord, event: Happened) -> None:
        self._hold(tx, Resources(), record.holds)
        super().remove(tx, record, event)


class KeepsVolumes(MachineTable):
    """Does not give back the volume of a machine that is gone."""

    def remove(self, tx: Tx, record: MachineRecord, event: Happened) -> None:
        volume_id = volume_id_of(record.config)
        volume = None if volume_id is None else tx.get(VOLUMES, volume_id)
        super().remove(tx, record, event)
        if volume is not None:
            tx.put(VOLUMES, volume.id, volume)


class ForgetsOrders(MachineTable):
    """Keeps in memory which orders were filled."""

    def __init__(self, clock: Clock, changes: Changes) -> None:
        super().__init__(clock, changes)
        self._filled: set[OrderId] = set()

    def insert(self, tx: Tx, record: MachineRecord) -> None:
        super().insert(tx, record)
        self._filled |= {record.order} if record.order is not None else set()

    def made_for(self, reader: Reader, app: AppName, order: OrderId | None) -> MachineRecord | None:
        return super().made_for(reader, app, order) if order in self._filled else None


class WritesEventsLater(MachineTable):
    """Writes an event with the next change of anything, not with its own."""

    def __init__(self, clock: Clock, changes: Changes) -> None:
        super().__init__(clock, changes)
        self._late: list[tuple[str, EventRecord]] = []

    def _append(self, tx: Tx, record: MachineRecord, happened: Happened) -> dict[str, Any]:
        fields = super()._append(tx, record, happened)
        key = f"{record.id}/{fields['last_event']}"
        event = tx.get(EVENTS, key)
        assert event is not None
        tx.delete(EVENTS, key)
        for late_key, late in self._late:
            tx.put(EVENTS, late_key, late)
        self._late = [(key, event)]
        return fields


class RemembersTooSoon(MachineTable):
    """Keeps records in memory, as they are before the transaction is committed."""

    def __init__(self, clock: Clock, changes: Changes) -> None:
        super().__init__(clock, changes)
        self._known: dict[MachineId, MachineRecord] = {}

    def lookup(self, reader: Reader, machine_id: MachineId) -> MachineRecord | None:
        return self._known.get(machine_id) or super().lookup(reader, machine_id)

    def change(self, tx: Tx, record: MachineRecord, event: Happened | None = None, **fields: Any) -> MachineRecord:
        self._known[record.id] = super().change(tx, record, event, **fields)
        return self._known[record.id]

    def remove(self, tx: Tx, record: MachineRecord, event: Happened) -> None:
        super().remove(tx, record, event)
        self._known.pop(record.id, None)


class DropsLeases(MachineTable):
    """A machine that changes its state loses its lease."""

    def change(self, tx: Tx, record: MachineRecord, event: Happened | None = None, **fields: Any) -> MachineRecord:
        moved = fields.get("state", record.state) != record.state
        return super().change(tx, record, event, **(fields | {"lease": None} if moved else fields))


class LosesMetadata(MachineTable):
    """A machine that is started runs with the config of its version, without what was set since."""

    def change(self, tx: Tx, record: MachineRecord, event: Happened | None = None, **fields: Any) -> MachineRecord:
        if event is not None and event.status == "started":
            fields |= {"config": msgspec.structs.replace(record.config, metadata=None)}
        return super().change(tx, record, event, **fields)


# Stores that promise too much.

T = TypeVar("T")
R = TypeVar("R")


class Unsynced(StoreOver):
    """Answers before anything is on disk."""

    async def write(self, apply: Callable[[Tx], R], durability: Durability = Durability.DURABLE) -> R:
        return await self._inner.write(apply, Durability.ORDERED)


class Halved(StoreOver):
    """Writes what belongs to runs in a transaction of its own, after that of the records."""

    async def write(self, apply: Callable[[Tx], R], durability: Durability = Durability.DURABLE) -> R:
        later: list[_Half] = []

        def first(tx: Tx) -> R:
            half = _Half(tx)
            later[:] = [half]
            return apply(half)

        result = await self._inner.write(first, durability)
        await self._inner.write(later[0].replay, durability)
        return result


class _Half:
    """Keeps back the changes to the buckets of runs; they are read from here."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._held: dict[tuple[str, str], tuple[Bucket[Any], Any]] = {}
        self._calls: list[Callable[[], None]] = []

    def get(self, bucket: Bucket[T], key: str) -> T | None:
        held = self._held.get((bucket.name, key))
        found: T | None = held[1] if held is not None else self._tx.get(bucket, key)
        return found

    def scan(self, bucket: Bucket[T], prefix: str = "", **options: Any) -> Iterator[tuple[str, T]]:
        return self._tx.scan(bucket, prefix, **options)

    def count(self, bucket: Bucket[T], prefix: str = "") -> int:
        return self._tx.count(bucket, prefix)

    def sizes(self, bucket: Bucket[Any], prefix: str = "", **options: Any) -> list[tuple[str, int]]:
        return self._tx.sizes(bucket, prefix, **options)

    def put(self, bucket: Bucket[T], key: str, value: T) -> None:
        self._change(bucket, key, value)

    def delete(self, bucket: Bucket[T], key: str) -> None:
        self._change(bucket, key, None)

    def on_commit(self, call: Callable[[], None]) -> None:
        self._calls.append(call)

    def replay(self, tx: Tx) -> None:
        for (_, key), (bucket, value) in self._held.items():
            _apply(tx, bucket, key, value)
        for call in self._calls:
            tx.on_commit(call)

    def _change(self, bucket: Bucket[T], key: str, value: T | None) -> None:
        if bucket.name.startswith("fsm."):
            self._held[bucket.name, key] = (bucket, value)
        else:
            _apply(self._tx, bucket, key, value)


def _apply(tx: Tx, bucket: Bucket[T], key: str, value: T | None) -> None:
    if value is None:
        tx.delete(bucket, key)
    else:
        tx.put(bucket, key, value)


# Tables of flows with a wrong row, and an engine that takes them up at the wrong one.

Change = Callable[[Flow[Any], Step], Step | None]


def _flows(change: Change) -> Sequence[Flow[Any]]:
    """The flows, each row as `change` has it; None leaves it out."""
    return [
        replace(flow, steps=tuple(row for step in flow.steps if (row := change(flow, step)) is not None))
        for flow in FLOWS
    ]


def without_undo() -> Sequence[Flow[Any]]:
    return _flows(lambda flow, step: replace(step, undo=None, points=()))


def without_release() -> Sequence[Flow[Any]]:
    return _flows(lambda flow, step: None if flow.name == "stop" and step.name == "release" else step)


def undoes_for_all() -> Sequence[Flow[Any]]:
    """A start that is undone ends whatever instance the machine has."""

    async def undo(context: Context[msgspec.Struct]) -> None:
        await context.deps.driver.destroy(machine_id_of(context))

    return _flows(lambda flow, step: replace(step, undo=undo) if step.name in ("rootfs", "launch") else step)


def records_first() -> Sequence[Flow[Any]]:
    """The network of a machine is recorded as removed, and removed when there is time."""
    late: list[Callable[[], Awaitable[Outcome]]] = []

    async def unplug(context: Context[Any]) -> Outcome:
        late.append(lambda: _named(FLOWS, "destroy", "unplug").do(context))
        return Done()

    async def forget(context: Context[Any]) -> Outcome:
        await context.clock.sleep(2.0)
        while late:
            await late.pop()()
        return await _named(FLOWS, "destroy", "forget").do(context)

    calls = {"unplug": unplug, "forget": forget}
    return _flows(lambda flow, step: replace(step, do=calls[step.name]) if step.name in calls else step)


def launches_unawaited() -> Sequence[Flow[Any]]:
    """A start that was overtaken is done all the same."""

    async def rootfs(context: Context[Any]) -> Outcome:
        def await_it(tx: Tx) -> None:
            record = tx.get(MACHINES, machine_id_of(context))
            if record is not None and context.input.launch:
                tx.put(MACHINES, record.id, msgspec.structs.replace(record, awaited=context.input.instance_id))

        await context.deps.store.write(await_it)
        return await _named(FLOWS, "start", "rootfs").do(context)

    return _flows(lambda flow, step: replace(step, do=rootfs) if step.name == "rootfs" else step)


def _named(flows: Sequence[Flow[Any]], flow: str, step: str) -> Step:
    row = next(each for each in flows if each.name == flow).find(step)
    assert row is not None
    return row


class SkipsAStep(Runner[FlowDeps]):
    """Takes the step that was under way when the daemon died for one that was done."""

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        await self._store.write(self._skip)
        await super().serve(task_status=task_status)

    def _skip(self, tx: Tx) -> None:
        for run in list(journal.open_runs(tx)):
            flow = self._engine.flows.get(run.flow)
            following = flow.following(run.step) if flow is not None and run.state is State.RUNNING else None
            if following is not None:
                journal.save(tx, msgspec.structs.replace(run, step=following.name, finished=(*run.finished, run.step)))


# Supervisors that see too little or too much.


class WatchesOnlyItsOwn(Supervisor):
    """Watches what is started in its time, not what an earlier daemon started."""

    async def _record_missed(self) -> None:
        for _, record in self._store.scan(MACHINES):
            if record.running is not None:
                self._watched[record.id] = record.running.instance_id


class RecordsTwice(ExitHandler):
    """Does not ask whether a flow has recorded the exit already."""

    def _exited(self, tx: Tx, machine_id: MachineId, instance_id: InstanceId, exit: Exit) -> None:
        record = tx.get(MACHINES, machine_id)
        if record is not None and record.running is not None and record.running.instance_id == instance_id:
            running = msgspec.structs.replace(record.running, exit=None)
            tx.put(MACHINES, machine_id, msgspec.structs.replace(record, running=running))
        super()._exited(tx, machine_id, instance_id, exit)


class Remembers(PolicyEnforcer):
    """Works out once in a daemon's life what policies say, and does not look at the records again."""

    def __init__(self, store: Store, host: HostFilters | None) -> None:
        super().__init__(store, host)
        self._remembered: Sequence[PacketFilter] | None = None

    async def _wanted(self, without: Collection[MachineId]) -> Sequence[PacketFilter]:
        if self._remembered is None:
            self._remembered = await super()._wanted(without)
        return self._remembered
