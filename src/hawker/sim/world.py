"""A whole worker in one process: everything that `up` joins, over a host and a store that are played, in virtual time.

A `World` is what outlives the daemon; `open` is one life of it. Leaving it is what SIGTERM is; `Death` raised in it, or
a store that freezes, is kill -9. A `Stall` is a world over a store in memory, whose `crash` says what the disk kept.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.to_thread

from hawker.archive.archive import Archive
from hawker.ids import Digest, NodeId
from hawker.image.cache import ImageCache
from hawker.image.limits import BlockChoice, ImageSettings
from hawker.image.resolve import Resolved
from hawker.node import Capacity
from hawker.observe.metrics import build_metrics
from hawker.proof.host_state import HostState
from hawker.record.node import NodeRecord
from hawker.secret.secret_keys import SecretKeyStore
from hawker.secret.secrets import Secrets
from hawker.settings import Settings
from hawker.sim.copies import Prints
from hawker.sim.disks import Crates
from hawker.sim.fuse import Death, Fuse, fused
from hawker.sim.gallery import block_file
from hawker.sim.host import Cellar, Shelves, Wires
from hawker.sim.inspect import look, volumes_used
from hawker.sim.kit import FEATURES, GUEST_FEATURES, SOUND, Kit
from hawker.sim.life import Worker
from hawker.sim.loop import Hourglass, LoopClock, eventually
from hawker.sim.palings import Palings
from hawker.sim.slots import Slots
from hawker.store.contract import Store
from hawker.store.memory import Faults, MemoryStore
from hawker.vault import KEY_BYTES, Vault
from hawker.volume.table import VolumeTable
from hawker.worker.assembly import AssembledWorker, assemble, begin, reconciler_of, supervisor_of
from hawker.worker.changes import Changes
from hawker.worker.health import Probe, ProbeResult
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.scrape import ScrapeFailed

ROOM = Capacity(cpus=4, memory_mib=1024, disk_mib=100_000)
HOST_ADDRESSES = {4: "192.0.2.10", 6: "2001:db8::10"}
LIFE_S = 365 * 86_400.0
ALONE = NodeRecord(id=NodeId("0123abcd"), region="local", created_at=0.0)


class Prober:
    """Answers probes as told, by port; passing otherwise. `asked` are those that came."""

    def __init__(self) -> None:
        self.answers: dict[int, ProbeResult] = {}
        self.asked: list[Probe] = []

    async def __call__(self, probe: Probe) -> ProbeResult:
        self.asked.append(probe)
        await anyio.lowlevel.checkpoint()
        return self.answers.get(probe.port, ProbeResult(True, "Success"))


class Fetcher:
    """Answers what is asked of metrics endpoints as told, by address; nobody answers otherwise."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}

    async def __call__(self, url: str, limit: int, timeout_s: float) -> bytes:
        await anyio.lowlevel.checkpoint()
        if url not in self.answers or len(self.answers[url]) > limit:
            raise ScrapeFailed("nobody answers")
        return self.answers[url]


class Mortal(Store, Protocol):
    """A store that can stop for good. Who waits for it then waits for ever; the daemon is dead."""

    frozen: anyio.Event


class World(ABC):
    """`room` is what the host has to sell; without `reconciles` nobody tidies up after a flow; where machines are
    `guests` they have kernels of their own, and are suspended by snapshots."""

    def __init__(
        self,
        store: Mortal,
        directory: Path,
        *,
        seed: int = 0,
        room: Capacity = ROOM,
        reconciles: bool = True,
        kit: Kit = SOUND,
        guests: bool = False,
        node: NodeRecord = ALONE,
        **settings: Any,
    ) -> None:
        self.node = node
        self.clock = LoopClock(seed)
        self.fuse = Fuse()
        self.host = Cellar(self.clock, self.fuse)
        self.rootfs, self.networks, self.disks = Shelves(self.fuse), Wires(self.fuse), Crates(self.fuse)
        self.palings, self.copies = Palings(self.fuse), Prints(self.fuse, self.disks)
        self.slots = Slots(self.fuse, self.host)
        self.prober, self.fetcher = Prober(), Fetcher()
        self.store = store
        self.room = room
        self.reconciles = reconciles
        self.directory = directory
        self.settings = Settings(data_dir=directory, **settings)
        self.archive: Archive | None = None
        self.boots = 0
        self.features = GUEST_FEATURES if guests else FEATURES
        self._kit = kit

    @abstractmethod
    def images(self) -> ImageCache:
        """The cache of one life; opened and closed with it."""

    def reboot(self) -> None:
        """The host loses what runs, its mounts and its networks; files stay, also those that a suspended guest is to go
        on with. Between two lives."""
        self.boots += 1
        self.host.reboot()
        kept = self.host.memories
        self.rootfs.mounted = {each: what for each, what in self.rootfs.mounted.items() if each in kept}
        self.disks.attached &= set(volumes_used(self.host).values())
        self.networks.plugged.clear()
        self.palings.standing = ()

    def seen(self) -> HostState:
        seen = look(self.host, self.rootfs, self.networks, self.disks, self.copies)
        return seen if self.features.disks else replace(seen, memories=None)

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
        images = self.images()
        try:
            await images.open()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._die_with_the_store)
                parts = self._parts(images)
                reconciler = reconciler_of(parts)
                supervisor = supervisor_of(parts, self._kit.supervisor, self._kit.exits)
                await begin(tasks, parts, supervisor, reconciler if self.reconciles else None)
                yield Worker(parts, reconciler, self.host, tasks)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await images.aclose()
                await eventually(self.clock, lambda: not threads.borrowed_tokens, 10)  # threads die, too

    async def _die_with_the_store(self) -> None:
        await self.store.frozen.wait()
        raise Death

    def _parts(self, images: ImageCache) -> AssembledWorker:
        changes, kit = Changes(), self._kit
        vault = Vault(bytes(KEY_BYTES), self.clock)
        secrets = Secrets(self.store, vault, self.clock)
        deps = FlowDeps(
            store=kit.store(self.store),
            table=kit.table(self.clock, changes),
            images=images,
            driver=kit.driver(self.host, self.features),
            rootfs=kit.rootfs(self.rootfs),
            networks=kit.networks(self.networks),
            settings=self.settings,
            clock=self.clock,
            secrets=secrets,
            secret_keys=SecretKeyStore(self.store, vault, secrets, self.clock),
            fences=kit.fences(self.store, self.palings),
            archive=self.archive,
            volumes=VolumeTable(self.clock, self.settings.deleted_volumes_kept_s),
            disks=kit.disks(self.disks),
            copies=kit.copies(self.copies),
            gpus=self.slots,
        )
        flows = [fused(flow, self.fuse) for flow in kit.flows()]
        runner = kit.runner(
            deps.store, flows, deps, self.clock, queues={"pulls": 3, "copies": 2}, epoch=f"boot {self.boots}"
        )
        metrics = build_metrics("sim")
        return assemble(
            deps,
            runner,
            self.node,
            room=lambda: self.room,
            prober=self.prober,
            outward=HOST_ADDRESSES.get,
            fetch=self.fetcher,
            metrics=metrics,
        )


class Images(ImageCache):
    """The real cache; fetching waits for the event that `held` has for the reference."""

    held: dict[str, anyio.Event]

    async def fetch(self, resolved: Resolved, *arguments: Any, **named: Any) -> None:
        if resolved.reference in self.held:
            await self.held[resolved.reference].wait()
        await super().fetch(resolved, *arguments, **named)

    def block_path(self, digest: Digest) -> Path:
        return block_file(digest)


class Stall(World):
    """A world for one scene at a time: the store is the twin in memory, the images are the real cache."""

    store: MemoryStore

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(MemoryStore(), directory, **options)
        self.held: dict[str, anyio.Event] = {}

    def crash(self, keep: int | None = None, faults: Faults | None = None) -> None:
        """What the next life finds: `keep` of the commits that were not yet durable, all by default."""
        self.store = self.store.crash(self.store.pending if keep is None else keep, faults)

    def hold(self, reference: str = "hawker/hello:latest") -> anyio.Event:
        """Pulls of this image wait until the event is set."""
        return self.held.setdefault(reference, anyio.Event())

    def images(self) -> ImageCache:
        images = Images(self.directory / "images", ImageSettings(block=BlockChoice.NONE), self.clock)
        images.held = self.held
        return images


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
