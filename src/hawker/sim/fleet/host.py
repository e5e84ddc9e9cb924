"""A host of a simulated fleet: what outlives its daemons, and their lives one after the other."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import anyio

from hawker.ids import NodeId
from hawker.node import Capacity
from hawker.record.node import NODE, NodeRecord
from hawker.sim.fleet.joined import Town, Up, joined, shut
from hawker.sim.fleet.shelf import Shelf
from hawker.sim.fuse import Death
from hawker.sim.gallery import Gallery, Registry
from hawker.sim.life import Worker
from hawker.sim.world import World
from hawker.store.memory import MemoryStore


class Place(World):
    """The worker's part, with images that come in virtual time."""

    registry: Registry
    store: MemoryStore

    def images(self) -> Gallery:
        return Gallery(self.registry, self.clock)


class Host:
    """`node` is what is up now. Between two lives the host may be off: then nobody even refuses a connection."""

    made: type[Place] = Place

    def __init__(self, town: Town, node_id: NodeId, region: str, folder: Path, *, seed: int, room: Capacity) -> None:
        self.id, self.region, self._town = node_id, region, town
        self.shelf = Shelf(folder / str(node_id))
        kit = replace(town.kit.worker, store=lambda store: town.kit.store(town.kit.worker.store(store)))
        record = NodeRecord(id=node_id, region=region, created_at=0.0)
        self.place = self.made(
            MemoryStore(), Path("node"), seed=seed, room=room, kit=kit, node=record, nameservers=("fdaa::3",)
        )
        self.place.registry = Registry()
        self.node: Up | None = None
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
        shut(self._town.wire, self.id, node)
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
        self.shelf.kill()
        old = self.place.store
        self.place.store = old.crash(round(old.pending * kept))
        if power:
            self.shelf.reboot()
            self.place.reboot()
        shut(self._town.wire, self.id, node)

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

    async def _serve(self, worker: Worker, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with self._joined(worker) as node:
            self.node, self.since = node, self.place.clock.monotonic()
            task_status.started()
            await self._end.wait()
            self.node = None

    def _joined(self, worker: Worker) -> AbstractAsyncContextManager[Up]:
        return joined(self._town, worker, self.place.store, self.shelf)
