"""A whole worker in one process: everything that `up` joins, over a host and a store in memory, in virtual time.

A `Stall` is what outlives the daemon; `open` is one life of it. Leaving a life is what SIGTERM is; `Death` raised in it
is kill -9, and `crash` is then what the disk kept.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from hawker.fsm.runner import Runner
from hawker.ids import NodeId
from hawker.image.cache import ImageCache
from hawker.image.limits import BlockChoice, ImageSettings
from hawker.image.resolve import Resolved
from hawker.node import Capacity
from hawker.runtime.driver import Features
from hawker.runtime.fake import FakeDriver
from hawker.settings import Settings
from hawker.sim.fuse import Death, Fuse, fused
from hawker.sim.host import Cellar, Shelves, Wires
from hawker.sim.life import Worker
from hawker.sim.loop import Hourglass, LoopClock, eventually
from hawker.store.memory import Faults, MemoryStore
from hawker.worker.apps import Apps
from hawker.worker.changes import Changes
from hawker.worker.health import Health
from hawker.worker.lifecycle import FLOWS
from hawker.worker.lifecycle.deps import Deps
from hawker.worker.operations import Operations
from hawker.worker.parts import Parts
from hawker.worker.probe import Finding, Probe
from hawker.worker.reconcile import Reconciler
from hawker.worker.records import NodeRecord
from hawker.worker.serve import begin
from hawker.worker.supervisor import Supervisor
from hawker.worker.table import MachineTable

ROOM = Capacity(cpus=4, memory_mib=1024, disk_mib=100_000)
LIFE_S = 7 * 86_400.0


class Prober:
    """Answers probes as told, by port; passing otherwise. `asked` are those that came."""

    def __init__(self) -> None:
        self.answers: dict[int, Finding] = {}
        self.asked: list[Probe] = []

    async def __call__(self, probe: Probe) -> Finding:
        self.asked.append(probe)
        await anyio.lowlevel.checkpoint()
        return self.answers.get(probe.port, Finding(True, "Success"))


class Images(ImageCache):
    """The real cache; fetching waits for the event that `held` has for the reference."""

    held: dict[str, anyio.Event]

    async def fetch(self, resolved: Resolved, *arguments: Any, **named: Any) -> None:
        if resolved.reference in self.held:
            await self.held[resolved.reference].wait()
        await super().fetch(resolved, *arguments, **named)


class Stall:
    """`room` is what the host has to sell; without `reconciles` nobody tidies up after a flow."""

    def __init__(
        self, directory: Path, *, seed: int = 0, room: Capacity = ROOM, reconciles: bool = True, **settings: Any
    ) -> None:
        self.clock = LoopClock(seed)
        self.fuse = Fuse()
        self.host = Cellar(self.clock, self.fuse)
        self.rootfs, self.networks = Shelves(self.fuse), Wires(self.fuse)
        self.prober = Prober()
        self.store = MemoryStore()
        self.room = room
        self.reconciles = reconciles
        self.held: dict[str, anyio.Event] = {}
        self.directory = directory
        self.settings = Settings(data_dir=directory, **settings)

    def crash(self, keep: int | None = None, faults: Faults | None = None) -> None:
        """What the next life finds: `keep` of the commits that were not yet durable, all by default."""
        self.store = self.store.crash(self.store.pending if keep is None else keep, faults)

    def hold(self, reference: str = "hawker/hello:latest") -> anyio.Event:
        """Pulls of this image wait until the event is set."""
        return self.held.setdefault(reference, anyio.Event())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Worker]:
        """A life of the daemon. Raises `Death` if it is killed."""
        try:
            with anyio.fail_after(LIFE_S):
                async with self._life() as worker:
                    yield worker
        except BaseExceptionGroup as group:
            raise _cause(group) from None

    @asynccontextmanager
    async def _life(self) -> AsyncIterator[Worker]:
        loop, threads = asyncio.get_running_loop(), anyio.to_thread.current_default_thread_limiter()
        if isinstance(loop, Hourglass):
            loop.mind_threads()
        images = Images(self.directory / "images", ImageSettings(block=BlockChoice.NONE), self.clock)
        images.held = self.held
        try:
            await images.open()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._die_with_the_store)
                parts = self._parts(images)
                reconciler = Reconciler(parts.deps, parts.runner)
                supervisor = Supervisor(parts.deps, parts.runner, parts.changes)
                await begin(tasks, parts, supervisor, reconciler if self.reconciles else None)
                yield Worker(parts, reconciler, self.host)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await images.aclose()
                await eventually(self.clock, lambda: not threads.borrowed_tokens, 10)  # threads die, too

    async def _die_with_the_store(self) -> None:
        await self.store.frozen.wait()
        raise Death

    def _parts(self, images: ImageCache) -> Parts:
        changes = Changes()
        deps = Deps(
            store=self.store,
            table=MachineTable(self.clock, changes),
            images=images,
            driver=FakeDriver(self.host, Features(rootfs=True, network=True, limits=True)),
            rootfs=self.rootfs,
            networks=self.networks,
            settings=self.settings,
            clock=self.clock,
        )
        flows = [fused(flow, self.fuse) for flow in FLOWS]
        runner = Runner(self.store, flows, deps, self.clock, queues={"pulls": 3})
        return Parts(
            node=NodeRecord(id=NodeId("0123abcd"), region="local", created_at=0.0),
            deps=deps,
            runner=runner,
            operations=Operations(deps, runner, lambda: self.room),
            apps=Apps(self.store, self.clock),
            health=Health(self.store, self.clock, changes, self.prober),
            changes=changes,
            room=lambda: self.room,
            started_at=self.clock.now(),
        )


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Death if anything died of it, else what the group is about."""
    deaths = group.subgroup(Death)
    if deaths is not None:
        return Death()
    while isinstance(group, BaseExceptionGroup) and len(group.exceptions) == 1:
        only = group.exceptions[0]
        if not isinstance(only, BaseExceptionGroup):
            return only
        group = only
    return group
