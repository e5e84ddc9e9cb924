"""A client of the simulated worker: does its deeds one after the other and holds the worker to what it answered.

Whoever is cut off asks again for an order, by its key; of any other call it does not know, and looks later.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hawker.api.bodies import Machine
from hawker.errors import DeadlineExceeded, Fault, HawkerError
from hawker.ids import MachineId, VolumeId
from hawker.machine import State
from hawker.proof.promises import Call, Ticket
from hawker.proof.violation import Invariant, Violation
from hawker.sim.harness.loop import LoopClock
from hawker.sim.harness.trace import Speaker
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.worker.client_gate import ClientGate, ConnectionLost
from hawker.sim.worker.containers import containers_for
from hawker.sim.worker.ledger import WorkerLedger
from hawker.sim.worker.operation import WorkerOperation, WorkerVerb
from hawker.sim.worker.snapshot_deeds import SNAPSHOT_VERBS, SnapshotOperations
from hawker.worker.volumes.records import VolumeState

_TRIES = 20


class WorkerClient:
    def __init__(self, name: str, door: ClientGate, ledger: WorkerLedger, clock: LoopClock) -> None:
        self._name = name
        self._door = door
        self._ledger = ledger
        self._clock = clock
        self._snapshots = SnapshotOperations(ledger, clock, self._try)

    async def work(self, deeds: Sequence[WorkerOperation]) -> None:
        for deed in deeds:
            await self._clock.sleep(max(0.0, deed.at - self._clock.monotonic()))
            await self._do(deed)

    async def _do(self, deed: WorkerOperation) -> None:
        machine_id = self._ledger.machines.get(deed.label)
        if deed.verb is WorkerVerb.CREATE:
            await self._create(deed)
        elif deed.verb in (WorkerVerb.VOLUME, WorkerVerb.EXTEND, WorkerVerb.LET_GO):
            await self._on_volume(deed)
        elif deed.verb in SNAPSHOT_VERBS:
            await self._snapshots.do(deed)
        elif machine_id is not None:
            await self._on_machine(deed, machine_id)

    # Orders.

    async def _create(self, deed: WorkerOperation) -> None:
        for _ in range(_TRIES):
            try:
                machine = await self._call(deed, lambda worker: _order(worker, deed, self._mounts(deed.label)))
            except ConnectionLost:
                continue
            except HawkerError:
                return
            self._ledger.machines.setdefault(deed.label, MachineId(machine.id))
            vanishes = deed.word == "auto-destroy"
            self._ledger.find(self._ledger.promises.created(MachineId(machine.id), deed.label, vanishes=vanishes))
            return

    # Volumes.

    async def _on_volume(self, deed: WorkerOperation) -> None:
        ledger, volume_id = self._ledger, self._ledger.volumes.get(deed.label)
        if deed.verb is WorkerVerb.VOLUME:
            made = await self._try(deed, lambda worker: worker.volume(deed.label, size_gb=int(deed.amount)))
            if made is not None and made.state == VolumeState.CREATED:
                ledger.volumes[deed.label] = VolumeId(made.id)
                ledger.volume_promises.created(VolumeId(made.id), made.size_gb)
        elif volume_id is not None and deed.verb is WorkerVerb.EXTEND:
            size_gb = int(deed.amount)
            ledger.volume_promises.ask_size(volume_id, size_gb)
            if await self._try(deed, lambda worker: worker.extend_volume(volume_id, size_gb)) is not None:
                ledger.volume_promises.extended(volume_id, size_gb)
        elif volume_id is not None:
            turn = ledger.volume_promises.ask_end(volume_id)
            if await self._try(deed, lambda worker: worker.delete_volume(volume_id)) is not None:
                ledger.volume_promises.let_go(volume_id, turn)

    def _mounts(self, label: str) -> list[dict[str, str]]:
        volume_id = self._ledger.volumes.get(label)
        return [] if volume_id is None else [{"volume": volume_id, "path": "/data"}]

    # Calls on a machine.

    async def _on_machine(self, deed: WorkerOperation, machine_id: MachineId) -> None:
        match deed.verb:
            case WorkerVerb.LOOK:
                await self._try(deed, lambda worker: self._look(worker, machine_id))
            case WorkerVerb.WAIT:
                await self._try(deed, lambda worker: worker.wait(machine_id, deed.word, timeout=deed.amount))
            case WorkerVerb.MEMORY:
                await self._try(deed, lambda worker: self._set_memory(worker, deed, machine_id))
            case WorkerVerb.LEASE:
                await self._lease(deed, machine_id)
            case WorkerVerb.RELEASE:
                await self._release(deed, machine_id)
            case _:
                await self._change(deed, machine_id)

    async def _change(self, deed: WorkerOperation, machine_id: MachineId) -> None:
        told, nonce = self._ledger.promises.told[machine_id], self._nonce(deed)
        value, metadata = {"key": f"{deed.amount:g}"}, dict(told.metadata or {})
        ticket = self._ledger.promises.ask(machine_id, Call(deed.verb.value))
        try:
            await self._call(deed, lambda worker: self._changed(worker, deed, machine_id, metadata, ticket))
        except (Fault, DeadlineExceeded, ConnectionLost):
            return  # it may have happened
        except HawkerError:
            return ticket.refused()
        sets = value if deed.verb is WorkerVerb.METADATA else metadata
        now = self._clock.now()
        self._ledger.find(ticket.acknowledged(env=value, metadata=sets, nonce=nonce, now=now))

    async def _changed(
        self, worker: SimWorker, deed: WorkerOperation, machine_id: MachineId, metadata: dict[str, str], ticket: Ticket
    ) -> None:
        nonce, value = self._nonce(deed), {"key": f"{deed.amount:g}"}
        match deed.verb:
            case WorkerVerb.START:
                await worker.start(machine_id, nonce)
            case WorkerVerb.STOP:
                await worker.stop(machine_id, nonce, timeout=f"{deed.amount:g}s")
            case WorkerVerb.SUSPEND:
                await worker.suspend(machine_id, nonce)
            case WorkerVerb.RESTART:
                await worker.restart(machine_id, nonce)
            case WorkerVerb.UPDATE:
                order = {"skip_launch": deed.word == "no launch"}
                config: dict[str, Any] = {"env": value, "metadata": metadata, "guest": _guest(256)}
                config |= _made_of(deed, self._mounts(deed.label))
                await worker.update(machine_id, nonce=nonce, order=order, **config)
            case WorkerVerb.METADATA:
                await worker.set_metadata(machine_id, "key", value["key"])
            case _:
                assert deed.verb is WorkerVerb.DESTROY, deed.verb
                await worker.destroy(machine_id, force=deed.word == "force", nonce=nonce)

    async def _lease(self, deed: WorkerOperation, machine_id: MachineId) -> None:
        """For a little less than it was given, as one who minds his watch."""
        ttl_s, nonce = int(deed.amount), self._nonce(deed)
        asked = self._clock.now()
        try:
            answer = await self._call(deed, lambda worker: worker.lease(machine_id, ttl_s, nonce))
        except ConnectionLost:
            return self._ledger.promises.unleased(machine_id)
        except HawkerError:
            return
        self._ledger.nonces[self._name, deed.label] = answer.nonce
        self._ledger.promises.leased(machine_id, answer.nonce, asked + ttl_s)

    async def _release(self, deed: WorkerOperation, machine_id: MachineId) -> None:
        nonce = self._ledger.nonces.pop((self._name, deed.label), None)
        if nonce is not None:
            self._ledger.promises.unleased(machine_id)
            await self._try(deed, lambda worker: worker.release(machine_id, nonce))

    async def _set_memory(self, worker: SimWorker, deed: WorkerOperation, machine_id: MachineId) -> None:
        await worker.set_memory(machine_id, int(deed.amount), self._nonce(deed))

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

    async def _try(self, deed: WorkerOperation, act: Callable[[SimWorker], Awaitable[Any]]) -> Any:
        try:
            return await self._call(deed, act)
        except (HawkerError, ConnectionLost):
            return None

    async def _call(self, deed: WorkerOperation, act: Callable[[SimWorker], Awaitable[Any]]) -> Any:
        """Notes the call and its answer; looks at the store after each."""
        self._ledger.say(Speaker.CLIENT, f"{self._name}: {_told(deed)}")
        try:
            answer = await self._door.call(act)
        except HawkerError as error:
            self._ledger.say(Speaker.CLIENT, f"{self._name} is refused {deed.verb.value} {deed.label}: {error}")
            self._answered()
            raise
        except ConnectionLost:
            self._ledger.say(Speaker.CLIENT, f"{self._name} hears nothing of {deed.verb.value} {deed.label}")
            raise
        self._ledger.say(
            Speaker.CLIENT, f"{self._name} is told: {deed.verb.value} {deed.label} {_shown(answer)}".rstrip()
        )
        self._answered()
        return answer

    def _answered(self) -> None:
        self._ledger.operations += 1
        if self._door.worker is not None:
            self._ledger.check(self._door.worker.store)

    def _nonce(self, deed: WorkerOperation) -> str | None:
        return self._ledger.nonces.get((self._name, deed.label))


async def _order(worker: SimWorker, deed: WorkerOperation, mounts: list[dict[str, str]]) -> Machine:
    policy = {"policy": deed.word if deed.word in ("no", "always", "on-failure") else "no"}
    return await worker.create(
        key=deed.label,
        order={"skip_launch": True} if deed.word == "not launched" else {},
        guest=_guest(int(deed.amount)),
        auto_destroy=deed.word == "auto-destroy",
        **{"restart": policy, **_made_of(deed, mounts)},
    )


def _made_of(deed: WorkerOperation, mounts: list[dict[str, str]]) -> dict[str, Any]:
    """A machine of several containers has no volume that outlives it, and is done when they are."""
    containers = containers_for(deed.word)
    return {"mounts": mounts} if containers is None else {"containers": containers, "restart": {"policy": "no"}}


def _guest(memory_mib: int) -> dict[str, object]:
    return {"cpu_kind": "shared", "cpus": 1, "memory_mb": memory_mib, "max_memory_mb": 2 * memory_mib}


def _has_begun(shown: Machine) -> bool:
    return any(event.status == "started" for event in shown.events)


def _told(deed: WorkerOperation) -> str:
    amount = f"{deed.amount:g}" if deed.amount else ""
    return " ".join(filter(None, [deed.verb.value, deed.label, deed.word, amount]))


def _shown(answer: object) -> str:
    return f"is {answer.id}, {answer.state}" if isinstance(answer, Machine) else ""
