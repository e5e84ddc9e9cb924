"""A client of the simulated worker: does its operations one after the other and holds the worker to what it answered.

A call dies with the daemon that it was made to: no answer comes. Who is cut off asks again for an order, by its key; of
any other call it does not know, and looks later.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import anyio

from hawker.api.contract.machine import Machine
from hawker.api.contract.volume import Volume
from hawker.clock import Clock
from hawker.errors import DeadlineExceeded, Fault, HawkerError
from hawker.ids import MachineId, SnapshotId, VolumeId
from hawker.machine import State
from hawker.proof import invariants
from hawker.proof.promises import ClientCall, Promises, Ticket
from hawker.proof.violation import Invariant, Violation
from hawker.proof.volume_checks import SnapshotPromises, VolumePromises
from hawker.record.volume import VolumeState
from hawker.sim.harness.loop import LoopClock
from hawker.sim.harness.plan import do_in_turn
from hawker.sim.harness.trace import RunLedger, Speaker, Trace
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.worker.plan import WorkerOperation, WorkerVerb
from hawker.store.contract import Reader
from hawker.time_window import DAY_S

T = TypeVar("T")


class SimConnectionLost(Exception):
    """The connection was cut: whether the call took effect is not known."""


class _Reply(Generic[T]):
    def __init__(self) -> None:
        self.came = anyio.Event()
        self.value: T | None = None
        self.error: HawkerError | SimConnectionLost | None = SimConnectionLost()


class ClientGate:
    def __init__(self) -> None:
        self.worker: SimWorker | None = None
        self._opened = anyio.Event()
        self._awaited: list[_Reply[object]] = []

    def open(self, worker: SimWorker) -> None:
        self.worker = worker
        self._opened.set()

    def shut(self) -> None:
        self.worker = None
        if self._opened.is_set():
            self._opened = anyio.Event()
        for reply in self._awaited:
            reply.came.set()
        self._awaited.clear()

    async def call(self, act: Callable[[SimWorker], Awaitable[T]]) -> T:
        """What the daemon answers, once there is one. Raises what it refuses with, and `SimConnectionLost`."""
        while self.worker is None:
            await self._opened.wait()
        reply: _Reply[object] = _Reply()
        self._awaited.append(reply)
        if not self.worker.tasks.cancel_scope.cancel_called:  # a task of one that is dying would never be cancelled
            self.worker.tasks.start_soon(self._answer, self.worker, act, reply)
        await reply.came.wait()
        if reply.error is not None:
            raise reply.error
        return reply.value  # type: ignore[return-value]

    async def _answer(self, worker: SimWorker, act: Callable[[SimWorker], Awaitable[T]], reply: _Reply[object]) -> None:
        """In a task of the daemon's. What is no refusal breaks the daemon."""
        try:
            reply.value, reply.error = await act(worker), None
        except HawkerError as error:
            reply.error = error
        if reply in self._awaited:
            self._awaited.remove(reply)
            reply.came.set()


class WorkerLedger(RunLedger):
    """Which order became which machine, and what is promised of it."""

    def __init__(self, clock: Clock, trace: Trace, alarm: Callable[[], None]) -> None:
        super().__init__(clock, trace, alarm)
        self.promises = Promises()
        self.volume_promises = VolumePromises()
        self.volumes: dict[str, VolumeId] = {}  # by label
        self.snapshot_promises = SnapshotPromises()
        self.snapshots: dict[str, SnapshotId] = {}  # the last of a volume, by its label
        self.machines: dict[str, MachineId] = {}  # by label
        self.nonces: dict[tuple[str, str], str] = {}  # of leases, by client and label
        self.touched: set[MachineId] = set()

    def check(self, reader: Reader) -> None:
        """At any moment between two transactions; what was not touched since the last time is as it was."""
        if self.touched and not self.found:
            self.find(invariants.of_store(reader, self.touched))
            self.touched.clear()


WORDS = ("containers", "batch")


def containers_for(word: str) -> list[dict[str, Any]] | None:
    """The containers of an order that says so, None for any other order."""
    return {"containers": containers, "batch": batch}[word]() if word in WORDS else None


def containers() -> list[dict[str, Any]]:
    needs = [{"name": "init", "condition": "exited_successfully"}, {"name": "db", "condition": "healthy"}]
    check = {"name": "db-up", "tcp": {"port": 5432}, "interval": 5, "unhealthy": "stop"}
    return [
        _container("web", "serve", _again(), depends_on=needs),
        _container("db", "serve", _again(), healthchecks=[check]),
        _container("init", "sleep 2", {"policy": "no"}),
        _container("job", "sleep 3; exit 1", _again(), depends_on=[{"name": "db"}]),
    ]


def batch() -> list[dict[str, Any]]:
    after = [{"name": "init", "condition": "exited_successfully"}]
    return [
        _container("init", "sleep 2", {"policy": "no"}),
        _container("job", "sleep 3; exit 1", _again(), depends_on=after),
        _container("late", "sleep 1; exit 2", {"policy": "no"}, depends_on=[{"name": "job"}]),
    ]


def _container(name: str, command: str, restart: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "hawker/hello", "exec": ["sh", "-c", command], "restart": restart, **more}


def _again() -> dict[str, Any]:
    return {"policy": "on-failure", "max_retries": 2}


# What clients of the simulated worker do with snapshots and copies of volumes, and what they then hold it to.

Try: TypeAlias = Callable[[WorkerOperation, Callable[[SimWorker], Awaitable[Any]]], Awaitable[Any]]

SNAPSHOT_VERBS = frozenset({WorkerVerb.SNAPSHOT, WorkerVerb.RESTORE, WorkerVerb.FORK, WorkerVerb.TAKE_BACK})


class SnapshotOperations:
    """`attempt` makes a call and answers None when it was refused or never answered."""

    def __init__(self, ledger: WorkerLedger, clock: Clock, attempt: Try) -> None:
        self._ledger = ledger
        self._clock = clock
        self._attempt = attempt

    async def do(self, operation: WorkerOperation) -> None:
        volume_id = self._ledger.volumes.get(operation.label)
        if volume_id is None:
            return
        match operation.verb:
            case WorkerVerb.SNAPSHOT:
                await self._snapshot(operation, volume_id)
            case WorkerVerb.TAKE_BACK:
                await self._take_back(operation, volume_id)
            case WorkerVerb.FORK:
                await self._copy(operation, source_volume_id=volume_id)
            case _:
                snapshot_id = self._ledger.snapshots.get(operation.label)
                if snapshot_id is not None:
                    await self._copy(operation, snapshot_id=snapshot_id)

    async def _snapshot(self, operation: WorkerOperation, volume_id: VolumeId) -> None:
        asked = self._clock.now()
        made = await self._attempt(operation, lambda worker: worker.snapshot(volume_id))
        if made is not None:
            self._ledger.snapshots[operation.label] = SnapshotId(made.id)
            self._ledger.snapshot_promises.promised(SnapshotId(made.id), asked + made.retention_days * DAY_S)

    async def _copy(self, operation: WorkerOperation, **source: str) -> None:
        """A copy that is made is a volume like any other."""
        label = f"{operation.label}-{operation.number}"
        made: Volume | None = await self._attempt(operation, lambda worker: worker.volume(label, **source))
        if made is not None and made.state == VolumeState.CREATED:
            self._ledger.volumes[label] = VolumeId(made.id)
            self._ledger.volume_promises.created(VolumeId(made.id), made.size_gb)

    async def _take_back(self, operation: WorkerOperation, volume_id: VolumeId) -> None:
        turn = self._ledger.volume_promises.ask_back(volume_id)
        if await self._attempt(operation, lambda worker: worker.undelete_volume(volume_id)) is not None:
            self._ledger.volume_promises.had_back(volume_id, turn)


# What machines of several containers run in the simulator: servers, one of which waits for the health of another
# and for the end of a third, beside a job that fails until its tries are used up; or jobs alone, whose end is its
# own.

_TRIES = 20


class WorkerClient:
    def __init__(self, name: str, gate: ClientGate, ledger: WorkerLedger, clock: LoopClock) -> None:
        self._name = name
        self._gate = gate
        self._ledger = ledger
        self._clock = clock
        self._snapshots = SnapshotOperations(ledger, clock, self._try)

    async def work(self, operations: Sequence[WorkerOperation]) -> None:
        await do_in_turn(operations, self._clock, self._do)

    async def _do(self, operation: WorkerOperation) -> None:
        machine_id = self._ledger.machines.get(operation.label)
        if operation.verb is WorkerVerb.CREATE:
            await self._create(operation)
        elif operation.verb in (WorkerVerb.VOLUME, WorkerVerb.EXTEND, WorkerVerb.LET_GO):
            await self._on_volume(operation)
        elif operation.verb in SNAPSHOT_VERBS:
            await self._snapshots.do(operation)
        elif machine_id is not None:
            await self._on_machine(operation, machine_id)

    # Orders.

    async def _create(self, operation: WorkerOperation) -> None:
        for _ in range(_TRIES):
            try:
                machine = await self._call(
                    operation, lambda worker: _order(worker, operation, self._mounts(operation.label))
                )
            except SimConnectionLost:
                continue
            except HawkerError:
                return
            self._ledger.machines.setdefault(operation.label, MachineId(machine.id))
            vanishes = operation.word == "auto-destroy"
            self._ledger.find(self._ledger.promises.created(MachineId(machine.id), operation.label, vanishes=vanishes))
            return

    # Volumes.

    async def _on_volume(self, operation: WorkerOperation) -> None:
        ledger, volume_id = self._ledger, self._ledger.volumes.get(operation.label)
        if operation.verb is WorkerVerb.VOLUME:
            made = await self._try(
                operation, lambda worker: worker.volume(operation.label, size_gb=int(operation.amount))
            )
            if made is not None and made.state == VolumeState.CREATED:
                ledger.volumes[operation.label] = VolumeId(made.id)
                ledger.volume_promises.created(VolumeId(made.id), made.size_gb)
        elif volume_id is not None and operation.verb is WorkerVerb.EXTEND:
            size_gb = int(operation.amount)
            ledger.volume_promises.ask_size(volume_id, size_gb)
            if await self._try(operation, lambda worker: worker.extend_volume(volume_id, size_gb)) is not None:
                ledger.volume_promises.extended(volume_id, size_gb)
        elif volume_id is not None:
            turn = ledger.volume_promises.ask_end(volume_id)
            if await self._try(operation, lambda worker: worker.delete_volume(volume_id)) is not None:
                ledger.volume_promises.let_go(volume_id, turn)

    def _mounts(self, label: str) -> list[dict[str, str]]:
        volume_id = self._ledger.volumes.get(label)
        return [] if volume_id is None else [{"volume": volume_id, "path": "/data"}]

    # Calls on a machine.

    async def _on_machine(self, operation: WorkerOperation, machine_id: MachineId) -> None:
        match operation.verb:
            case WorkerVerb.LOOK:
                await self._try(operation, lambda worker: self._look(worker, machine_id))
            case WorkerVerb.WAIT:
                await self._try(
                    operation, lambda worker: worker.wait(machine_id, operation.word, timeout=operation.amount)
                )
            case WorkerVerb.MEMORY:
                await self._try(operation, lambda worker: self._set_memory(worker, operation, machine_id))
            case WorkerVerb.LEASE:
                await self._lease(operation, machine_id)
            case WorkerVerb.RELEASE:
                await self._release(operation, machine_id)
            case _:
                await self._change(operation, machine_id)

    async def _change(self, operation: WorkerOperation, machine_id: MachineId) -> None:
        told, nonce = self._ledger.promises.told[machine_id], self._nonce(operation)
        value, metadata = {"key": f"{operation.amount:g}"}, dict(told.metadata or {})
        ticket = self._ledger.promises.ask(machine_id, ClientCall(operation.verb.value))
        try:
            await self._call(operation, lambda worker: self._changed(worker, operation, machine_id, metadata, ticket))
        except (Fault, DeadlineExceeded, SimConnectionLost):
            return  # it may have happened
        except HawkerError:
            return ticket.refused()
        sets = value if operation.verb is WorkerVerb.METADATA else metadata
        now = self._clock.now()
        self._ledger.find(ticket.acknowledged(env=value, metadata=sets, nonce=nonce, now=now))

    async def _changed(
        self,
        worker: SimWorker,
        operation: WorkerOperation,
        machine_id: MachineId,
        metadata: dict[str, str],
        ticket: Ticket,
    ) -> None:
        nonce, value = self._nonce(operation), {"key": f"{operation.amount:g}"}
        match operation.verb:
            case WorkerVerb.START:
                await worker.start(machine_id, nonce)
            case WorkerVerb.STOP:
                await worker.stop(machine_id, nonce, timeout=f"{operation.amount:g}s")
            case WorkerVerb.SUSPEND:
                await worker.suspend(machine_id, nonce)
            case WorkerVerb.RESTART:
                await worker.restart(machine_id, nonce)
            case WorkerVerb.UPDATE:
                order = {"skip_launch": operation.word == "no launch"}
                config: dict[str, Any] = {"env": value, "metadata": metadata, "guest": _guest(256)}
                config |= _made_of(operation, self._mounts(operation.label))
                await worker.update(machine_id, nonce=nonce, order=order, **config)
            case WorkerVerb.METADATA:
                await worker.set_metadata(machine_id, "key", value["key"])
            case _:
                assert operation.verb is WorkerVerb.DESTROY, operation.verb
                await worker.destroy(machine_id, force=operation.word == "force", nonce=nonce)

    async def _lease(self, operation: WorkerOperation, machine_id: MachineId) -> None:
        """For a little less than it was given, as one who minds his watch."""
        ttl_s, nonce = int(operation.amount), self._nonce(operation)
        asked = self._clock.now()
        try:
            answer = await self._call(operation, lambda worker: worker.lease(machine_id, ttl_s, nonce))
        except SimConnectionLost:
            return self._ledger.promises.unleased(machine_id)
        except HawkerError:
            return
        self._ledger.nonces[self._name, operation.label] = answer.nonce
        self._ledger.promises.leased(machine_id, answer.nonce, asked + ttl_s)

    async def _release(self, operation: WorkerOperation, machine_id: MachineId) -> None:
        nonce = self._ledger.nonces.pop((self._name, operation.label), None)
        if nonce is not None:
            self._ledger.promises.unleased(machine_id)
            await self._try(operation, lambda worker: worker.release(machine_id, nonce))

    async def _set_memory(self, worker: SimWorker, operation: WorkerOperation, machine_id: MachineId) -> None:
        await worker.set_memory(machine_id, int(operation.amount), self._nonce(operation))

    async def _look(self, worker: SimWorker, machine_id: MachineId) -> Machine:
        """What the API shows is one moment of the records: state, version and the newest event belong together."""
        shown = await worker.get(machine_id)
        record = worker.parts.deps.table.lookup(worker.store, machine_id)
        if record is not None and (shown.state, shown.instance_id) != (record.state, record.version):
            what = f"shown as {shown.state} {shown.instance_id}, recorded as {record.state} {record.version}"
            self._ledger.find([Violation(Invariant.WHOLE, machine_id, what)])
        if shown.state == State.STARTED and not _has_begun(shown):
            self._ledger.find(
                [Violation(Invariant.WHOLE, machine_id, "shown as started, and its events have no start")]
            )
        return shown

    # How a call goes.

    async def _try(self, operation: WorkerOperation, act: Callable[[SimWorker], Awaitable[Any]]) -> Any:
        try:
            return await self._call(operation, act)
        except (HawkerError, SimConnectionLost):
            return None

    async def _call(self, operation: WorkerOperation, act: Callable[[SimWorker], Awaitable[Any]]) -> Any:
        """Notes the call and its answer; looks at the store after each."""
        self._ledger.say(Speaker.CLIENT, f"{self._name}: {_told(operation)}")
        try:
            answer = await self._gate.call(act)
        except HawkerError as error:
            self._ledger.say(
                Speaker.CLIENT, f"{self._name} is refused {operation.verb.value} {operation.label}: {error}"
            )
            self._answered()
            raise
        except SimConnectionLost:
            self._ledger.say(Speaker.CLIENT, f"{self._name} hears nothing of {operation.verb.value} {operation.label}")
            raise
        self._ledger.say(
            Speaker.CLIENT, f"{self._name} is told: {operation.verb.value} {operation.label} {_shown(answer)}".rstrip()
        )
        self._answered()
        return answer

    def _answered(self) -> None:
        self._ledger.operations += 1
        if self._gate.worker is not None:
            self._ledger.check(self._gate.worker.store)

    def _nonce(self, operation: WorkerOperation) -> str | None:
        return self._ledger.nonces.get((self._name, operation.label))


async def _order(worker: SimWorker, operation: WorkerOperation, mounts: list[dict[str, str]]) -> Machine:
    policy = {"policy": operation.word if operation.word in ("no", "always", "on-failure") else "no"}
    return await worker.create(
        key=operation.label,
        order={"skip_launch": True} if operation.word == "not launched" else {},
        guest=_guest(int(operation.amount)),
        auto_destroy=operation.word == "auto-destroy",
        **{"restart": policy, **_made_of(operation, mounts)},
    )


def _made_of(operation: WorkerOperation, mounts: list[dict[str, str]]) -> dict[str, Any]:
    """A machine of several containers has no volume that outlives it, and is done when they are."""
    containers = containers_for(operation.word)
    return {"mounts": mounts} if containers is None else {"containers": containers, "restart": {"policy": "no"}}


def _guest(memory_mib: int) -> dict[str, object]:
    return {"cpu_kind": "shared", "cpus": 1, "memory_mb": memory_mib, "max_memory_mb": 2 * memory_mib}


def _has_begun(shown: Machine) -> bool:
    return any(event.status == "started" for event in shown.events)


def _told(operation: WorkerOperation) -> str:
    amount = f"{operation.amount:g}" if operation.amount else ""
    return " ".join(filter(None, [operation.verb.value, operation.label, operation.word, amount]))


def _shown(answer: object) -> str:
    return f"is {answer.id}, {answer.state}" if isinstance(answer, Machine) else ""
