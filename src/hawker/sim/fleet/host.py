"""A host of a simulated fleet: what outlives its daemons, and their lives one after the other."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import anyio

from hawker.ids import NodeId
from hawker.node import Capacity
from hawker.record.node import NODE, NodeRecord
from hawker.sim.fleet.cluster import LiveNode, SimCluster, joined, shut
from hawker.sim.fleet.fake_catalog_disk import FakeCatalogDisk
from hawker.sim.node.crash_points import Death
from hawker.sim.node.fake_images import FakeRegistry
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import VirtualWorld
from hawker.store.memory_store import MemoryStore


class NodeWorld(VirtualWorld):
    """The worker's part of a node."""

    store: MemoryStore


class FleetHost:
    """`node` is what is up now. Between two lives the host may be off: then nobody even refuses a connection."""

    made: type[NodeWorld] = NodeWorld

    def __init__(
        self, cluster: SimCluster, node_id: NodeId, region: str, folder: Path, *, seed: int, room: Capacity
    ) -> None:
        self.id, self.region, self._cluster = node_id, region, cluster
        self.catalog_disk = FakeCatalogDisk(folder / str(node_id))
        kit = replace(cluster.kit.worker, store=lambda store: cluster.kit.store(cluster.kit.worker.store(store)))
        record = NodeRecord(id=node_id, region=region, created_at=0.0)
        self.place = self.made(
            MemoryStore(), Path("node"), seed=seed, room=room, kit=kit, node=record, nameservers=("fdaa::3",)
        )
        self.place.registry = FakeRegistry()
        self.node: LiveNode | None = None
        self.lives = self.kills = 0
        self.since = 0.0  # when it came up last
        self._end = anyio.Event()
        self.ended = anyio.Event()

    async def begin(self, tasks: anyio.abc.TaskGroup) -> None:
        """A new life; returns once it answers."""
        self._end, self.ended = anyio.Event(), anyio.Event()
        await tasks.start(self._live)

    async def stop(self) -> None:
        """In good order."""
        node, self.node = self.node, None
        if node is None:
            return
        shut(self._cluster.call_network, self.id, node)
        self._end.set()
        await self.ended.wait()
        store = self.place.store
        await store.close()
        self.place.store = store.crash(0)

    async def kill(self, *, kept: float = 1.0, power: bool = False) -> None:
        """Returns once nothing of that life is left."""
        self.fall(kept=kept, power=power)
        await self.ended.wait()

    def fall(self, *, kept: float = 1.0, power: bool = False) -> None:
        """Killed at this moment: nothing that it does from now on counts. `kept` is the share of what was not yet
        synced."""
        node, self.node = self.node, None
        if node is None:
            return
        self.kills += 1
        self.catalog_disk.kill()
        old = self.place.store
        self.place.store = old.crash(round(old.pending * kept))
        if power:
            self.catalog_disk.reboot()
            self.place.reboot()
        shut(self._cluster.call_network, self.id, node)

    async def _live(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        self.lives += 1
        if self.place.store.get(NODE, "self") is None:
            await self.place.store.write(lambda tx: tx.put(NODE, "self", self.place.node))
        try:
            async with self.place.open() as worker:
                await self._serve(worker, task_status)
        except Death:
            pass
        finally:
            self.node = None
            self.ended.set()

    async def _serve(self, worker: SimWorker, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with self._joined(worker) as node:
            self.node, self.since = node, self.place.clock.monotonic()
            task_status.started()
            await self._end.wait()
            self.node = None

    def _joined(self, worker: SimWorker) -> AbstractAsyncContextManager[LiveNode]:
        return joined(self._cluster, worker, self.place.store, self.catalog_disk)
