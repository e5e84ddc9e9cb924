"""Hosts between which machines move: each is a worker's own code over a store in memory and a played host, and calls
the others over the played network. What the nodes know of each other they know at once.
"""

from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from hawker.api.caller import Caller
from hawker.api.directory import Node
from hawker.api.handlers import Handlers
from hawker.errors import WrongState
from hawker.fleet.app_bundle import AppBundler, vaults_of
from hawker.fleet.other_nodes import SEALED_FOR
from hawker.host.changed_blocks import BLOCK_BYTES
from hawker.ids import AppName, MachineId, NodeId, VolumeId
from hawker.node import Capacity
from hawker.proof.move_checks import NodeSight, owned_at
from hawker.record.app import AppRecord
from hawker.record.machine import MACHINES, MachineRecord
from hawker.record.move import INCOMING, RETIRED, RETIRED_KEPT_S, RETIRED_UNITS, IncomingState
from hawker.record.node import NODE, NodeRecord
from hawker.runtime.fake_host import HEAP_BITS
from hawker.sim.fleet.network import CallNetwork, SimEndpoint, SimPeers
from hawker.sim.node.crash_points import Death
from hawker.sim.node.fake_host import FakeRegistry
from hawker.sim.node.fake_moved_files import PIECES
from hawker.sim.node.kit import WorkerKit
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import VirtualWorld, volumes_used
from hawker.store.contract import Reader, Tx
from hawker.store.memory_store import MemoryStore
from hawker.up.wiring import node_handlers
from hawker.value_object import ValueObject

REGION = "mad"
ROOM = Capacity(cpus=4, memory_mib=4096, disk_mib=100_000)
_KEY = bytes(range(32))


class MoveWorld(VirtualWorld):
    store: MemoryStore


def memory_key(heap: int) -> str:
    return f"memory of {heap >> HEAP_BITS}"


MoveMoment = tuple[MemoryStore, int, frozenset[MachineId], frozenset[str]]
"""What a host's owners and writers depend on: its store and how many commits it made, which machines run, and which
volumes and root filesystems are mounted. Between equal moments no check of `of_moves` can come out otherwise."""


class MoveFleet(ValueObject, frozen=True):
    """What the hosts share."""

    call_network: CallNetwork
    kit: WorkerKit
    hosts: dict[NodeId, "MoveHost"] = msgspec.field(default_factory=dict)

    def sights(self) -> list[NodeSight]:
        return [host.sight() for host in self.hosts.values()]


class SimOtherNodes:
    """Keeps `worker.lifecycle.deps.OtherNodes`. A node that `refuses` owns nothing that it is granted."""

    def __init__(self, fleet: MoveFleet, worker: SimWorker) -> None:
        self._fleet = fleet
        self._deps = worker.parts.deps
        self._me = worker.parts.node.id
        self._vaults = vaults_of(lambda: [_KEY], self._deps.clock)
        self.bundler = AppBundler(self._deps.store, self._deps.secrets, self._deps.clock, self._me, self._vaults)
        self._peers = SimPeers(fleet.call_network, self._me)

    @property
    def me(self) -> NodeId:
        return self._me

    def caller(self, node: NodeId) -> Caller:
        caller: Caller = self._peers.caller(node, behalf="move")
        return caller

    def nodes(self) -> Sequence[Node]:
        return [Node(id=host.id, region=REGION, labels={}) for host in self._fleet.hosts.values()]

    def nodes_of_app(self, app: AppName) -> Sequence[NodeId]:
        return list(self._fleet.hosts)

    def seen_at(self, machine: MachineId) -> NodeId | None:
        return self._seen(machine)[1]

    def volume_seen_at(self, volume: VolumeId) -> NodeId | None:
        return self._seen(volume)[1]

    def seen_generation(self, machine: MachineId) -> int:
        return self._seen(machine)[0]

    def _seen(self, unit: str) -> tuple[int, NodeId | None]:
        """Of who owns it under the greatest generation."""
        found: tuple[int, NodeId | None] = (0, None)
        for host in self._fleet.hosts.values():
            for owned, generation in () if host.forgotten else owned_at(host.world.store):
                if owned == unit and generation > found[0]:
                    found = (generation, host.id)
        return found

    async def lost_since(self, node: NodeId) -> float | None:
        """A daemon that was killed is away; its host answers for as long as it has power."""
        return self._fleet.hosts[node].lost_at

    def is_forgotten(self, node: NodeId) -> bool:
        return self._fleet.hosts[node].forgotten

    def pack(self, reader: Reader, app: AppRecord) -> bytes:
        return self.bundler.pack(reader, app)

    def unpack(self, tx: Tx, app: AppRecord, packed: bytes) -> None:
        if self._fleet.hosts[self._me].refuses:
            raise WrongState("this node does not want it")
        self.bundler.unpack(tx, app, packed)

    def seal(self, data: bytes) -> bytes:
        return self._vaults()[0].seal(SEALED_FOR, data)

    def open(self, sealed: bytes) -> bytes:
        return self._vaults()[0].open(SEALED_FOR, sealed)


def _is_same_instance(record: MachineRecord, before: MachineRecord | None) -> bool:
    return (
        before is not None
        and record.running is not None
        and before.running is not None
        and record.running.instance_id == before.running.instance_id
    )


class MoveHost:
    """`worker` is what is up now; between two lives nobody even refuses a connection. The catalog has no rows of one
    that is `forgotten` until it begins again."""

    world_type: type[MoveWorld] = MoveWorld

    def __init__(
        self,
        fleet: MoveFleet,
        number: int,
        seed: int,
        region: str = REGION,
        kit: WorkerKit | None = None,
        *,
        guests: bool = False,
    ) -> None:
        self.id = NodeId(f"{number:08x}")
        self._fleet = fleet
        record = NodeRecord(id=self.id, region=region, created_at=0.0)
        self.world = self.world_type(
            MemoryStore(),
            Path("node"),
            seed=seed,
            room=ROOM,
            kit=kit or fleet.kit,
            guests=guests,
            node=record,
            nameservers=("fdaa::3",),
        )
        self.world.registry = FakeRegistry()
        self.world.disks.encrypts = True
        self.worker: SimWorker | None = None
        self.refuses = self.dud = False
        self.world.rootfs.duds = self._is_dud
        self.kills = 0
        self.lost_at: float | None = None
        self.forgotten = False
        self._dark = False
        self._end = anyio.Event()
        self._ended = anyio.Event()
        self._endpoint: SimEndpoint | None = None

    async def begin(self, tasks: TaskGroup) -> None:
        """A new life, unless there is one; returns once it answers."""
        if self.worker is None:
            if self._endpoint is not None or self.kills:
                await self._ended.wait()
            if self._dark:
                self.cut_power()
            self._end, self._ended = anyio.Event(), anyio.Event()
            await tasks.start(self._live)

    async def kill(self, *, kept: float = 1.0, power: bool = False) -> None:
        """At this moment; returns once nothing of that life is left. `kept` is the share of what was not yet synced."""
        if self.worker is not None:
            self.fall(kept=kept)
            await self._ended.wait()
            if power:
                self.cut_power()
                self.lost_at = self.world.clock.now()

    def fall(self, *, kept: float, power: bool = False) -> None:
        """Killed at this moment: nothing that it does from now on counts; without power until it begins again."""
        if self.worker is None:
            return
        self._dark = power
        self.lost_at = self.world.clock.now() if power else None
        self.worker = None
        self.kills += 1
        old = self.world.store
        self.world.store = old.crash(round(old.pending * kept))
        self.world.moved_files.forget_watches()
        self._shut()

    def cut_power(self) -> None:
        """Between two lives."""
        if self.worker is None:
            self._dark = False
            self.world.moved_files.cut_power()
            self.world.reboot()

    async def age(self) -> None:
        """What was left of moves was left a day ago."""

        def apply(tx: Tx) -> None:
            for key, unit in list(tx.scan(RETIRED_UNITS)):
                tx.put(RETIRED_UNITS, key, msgspec.structs.replace(unit, until=unit.until - RETIRED_KEPT_S))
            for key, file in list(tx.scan(RETIRED)):
                tx.put(RETIRED, key, msgspec.structs.replace(file, until=file.until - RETIRED_KEPT_S))

        await self.world.store.write(apply)

    async def _live(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        if self.world.store.get(NODE, "self") is None:
            await self.world.store.write(lambda tx: tx.put(NODE, "self", self.world.node))
        try:
            async with self.world.open() as worker:
                handlers = self.meet(worker)
                self._endpoint = SimEndpoint(clock=self.world.clock, handlers=handlers, tasks=worker.tasks)
                self._fleet.call_network.peers[self.id] = self._endpoint
                self.worker, self.lost_at, self.forgotten = worker, None, False
                task_status.started()
                await self._end.wait()
        except Death:
            pass
        finally:
            self.worker = None
            self._shut()
            self._ended.set()

    def meet(self, worker: SimWorker) -> Handlers:
        """The others, in this life. What it answers them."""
        worker.parts.deps.others.meet(SimOtherNodes(self._fleet, worker))
        return node_handlers(worker.parts)

    def _shut(self) -> None:
        if self._endpoint is not None:
            self._fleet.call_network.peers.pop(self.id, None)
            self._endpoint.over.set()
            self._endpoint = None

    def _is_dud(self, machine_id: MachineId) -> bool:
        """A host that is a `dud` starts nothing that came to it; what has run there, or comes back, it does."""
        store = self.world.store
        record = store.get(MACHINES, machine_id)
        if not self.dud or record is None or record.previous is not None:
            return False
        came = (each for _, each in store.scan(INCOMING) if each.state is IncomingState.ACCEPTED and not each.back_of)
        by = (each for each in came if (each.unit, each.generation) == (machine_id, record.generation))
        return any(record.running is None or _is_same_instance(record, each.machine) for each in by)

    def moment(self) -> MoveMoment:
        world = self.world
        return world.store, world.store.commits, self._running(), self._mounted()

    def _running(self) -> frozenset[MachineId]:
        """Nothing without power; what is suspended to disk does not run."""
        return frozenset() if self._dark else frozenset(self.world.host.running().keys() - self._asleep())

    def _asleep(self) -> frozenset[MachineId]:
        return frozenset(self.world.host.memories)

    def _mounted(self) -> frozenset[str]:
        """Nobody writes to what a machine has that is suspended to disk."""
        world, asleep = self.world, self._asleep()
        held = (
            {volume for machine, volume in volumes_used(world.host).items() if machine in asleep} if asleep else set()
        )
        there = {*world.disks.attached, *world.rootfs.mounted} - held - asleep
        return frozenset() if self._dark else frozenset(there)

    def sight(self) -> NodeSight:
        world = self.world
        return NodeSight(
            node=self.id,
            reader=world.store,
            running=self._running(),
            mounted=self._mounted(),
            contents={
                **{volume_id: file.content for volume_id, file in world.disks.files.items()},
                **{machine_id: count for (machine_id, _), count in world.rootfs.writes.items()},
            },
            drafts=frozenset(world.moved_files.drafted),
            holes={
                volume_id: tuple((number * BLOCK_BYTES, BLOCK_BYTES) for number in sorted(file.holes))
                for volume_id, file in world.disks.files.items()
                if file.holes
            },
            snapshots={snapshot_id: file.content for snapshot_id, file in world.copies.snapshots.items()},
        )

    def write(self) -> dict[str, int]:
        """Each machine that runs writes to its volume and to the root filesystem that it keeps, and is told that it is
        on disk; what each then has. One with a kernel of its own writes to its memory, too: each that began is another
        one."""
        told, running = dict[str, int](), self._running()
        if not running:
            return told
        rootfs, heaps = self.world.rootfs, self.world.host.heaps
        if self.world.features.disks:
            for machine_id in sorted(running):
                heaps[machine_id] += 1
                told[memory_key(heaps[machine_id])] = heaps[machine_id]
        for layer in [each for each in rootfs.writes if each[0] in rootfs.mounted]:
            if layer[0] in running:
                rootfs.writes[layer] += 1
                told[layer[0]] = rootfs.writes[layer]
        for machine_id, volume_id in volumes_used(self.world.host).items():
            file = self.world.disks.files.get(volume_id)
            if file is not None and machine_id in running and volume_id in self.world.disks.attached:
                file.content += 1
                file.holes -= {file.content % PIECES}
                told[volume_id] = file.content
        return told
