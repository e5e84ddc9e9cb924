"""A whole worker in one process: everything that `up` joins, over a host and a store that are played, in virtual time.

A `SimWorld` is what outlives the daemon; `open` is one life of it. Leaving it is what SIGTERM is; `Death` raised in it,
or a store that freezes, is kill -9. A `MemoryWorld` has its store in memory, and its `crash` says what the disk kept. A
`VirtualWorld` has images that are pulled in virtual time.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.to_thread
from msgspec.structs import replace

from hawker.api.in_process import InProcessCaller
from hawker.archive.archive import Archive
from hawker.ids import Digest, MachineId, NodeId, VolumeId
from hawker.image.cache import ImageCache
from hawker.image.limits import BlockChoice, ImageSettings
from hawker.image.manifest import Resolved
from hawker.node import Capacity
from hawker.observe.metrics import build_metrics
from hawker.proof.host_state import HostState
from hawker.record.node import NodeRecord
from hawker.runtime.driver import ProcessState
from hawker.runtime.fake_host import Instance
from hawker.runtime.spec import Ends, InstanceSpec
from hawker.secret.certificates import Certificates
from hawker.secret.ownership import NameLookup
from hawker.secret.registry_logins import RegistryLogins
from hawker.secret.secret_keys import SecretKeyStore
from hawker.secret.secrets import Secrets
from hawker.settings import Settings
from hawker.sim.harness.loop import LoopClock, VirtualTimeLoop, eventually
from hawker.sim.node.crash_points import CrashPoints, Death, with_crash_points
from hawker.sim.node.fake_host import (
    FakeGpus,
    FakeImages,
    FakeNetworks,
    FakePolicies,
    FakeRegistry,
    FakeRootfs,
    SimHost,
    block_file,
)
from hawker.sim.node.fake_moved_files import FakeMovedFiles
from hawker.sim.node.fake_volumes import FakeBackups, FakeCopies, FakeVolumes
from hawker.sim.node.kit import FEATURES, GUEST_FEATURES, SOUND, WorkerKit
from hawker.sim.node.sim_worker import SimWorker
from hawker.store.contract import Store
from hawker.store.memory_store import MemoryStore, StoreFaults
from hawker.vault import KEY_BYTES, Vault
from hawker.volume.encryption import VolumeKeys
from hawker.volume.table import VolumeTable
from hawker.worker.assembly import AssembledWorker, assemble, begin, reconciler_of, supervisor_of
from hawker.worker.changes import Changes
from hawker.worker.health import Probe, ProbeResult
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.scrape import ScrapeFailed


def look(
    host: SimHost, rootfs: FakeRootfs, networks: FakeNetworks, disks: FakeVolumes, copies: FakeCopies
) -> HostState:
    launched_twice = {
        machine_id
        for machine_id, instances in host.ever.items()
        if any(host.launched[instance.spec.instance_id] > 1 for instance in instances)
    }
    return HostState(
        running=host.running(),
        suspended=host.suspended(),
        limits=host.limits(),
        gpus=host.gpus(),
        mounted={machine_id: instance for machine_id, (instance, _) in rootfs.mounted.items()},
        instances=frozenset(host.machines()),
        directories=frozenset(rootfs.directories),
        networks=frozenset(networks.plugged),
        ended={
            machine_id: [instance.exit for instance in instances if instance.exit is not None]
            for machine_id, instances in host.ever.items()
        },
        doubled=frozenset({*host.doubled, *launched_twice}),
        lost=dict(host.lost),
        felled=tuple(host.felled),
        processes=_processes(host),
        volumes={volume_id: block.size_bytes for volume_id, block in disks.files.items()},
        volumes_mounted=frozenset(disks.attached),
        volumes_remade=frozenset(volume_id for volume_id, count in disks.made.items() if count > 1),
        snapshots=frozenset(copies.snapshots),
        snapshots_retaken=frozenset(snapshot_id for snapshot_id, count in copies.taken.items() if count > 1),
        uses=volumes_used(host),
        memories=frozenset(host.memories),
    )


def _processes(host: SimHost) -> dict[MachineId, tuple[ProcessState, ...]]:
    return {
        instance.spec.machine_id: tuple(process.told() for process in instance.processes)
        for _, instance in host.alive()
        if instance.spec.ends is Ends.TOLD
    }


def volumes_used(host: SimHost) -> dict[MachineId, VolumeId]:
    """By what running instances were given to mount."""
    given = [_source(instance) for _, instance in host.alive()]
    return {each.machine_id: VolumeId(source.rsplit("/", 2)[-2]) for each, source in given if source}


def _source(instance: Instance) -> tuple[InstanceSpec, str]:
    spec = instance.spec
    return spec, next(iter([*(each.source for each in spec.mounts), *(each.file for each in spec.volumes)]), "")


ROOM = Capacity(cpus=4, memory_mib=1024, disk_mib=100_000)
HOST_ADDRESSES = {4: "192.0.2.10", 6: "2001:db8::10"}
LIFE_S = 365 * 86_400.0
ALONE = NodeRecord(id=NodeId("0123abcd"), region="local", created_at=0.0)


class FakeProber:
    """Answers probes as told, by port; passing otherwise. `asked` are those that came."""

    def __init__(self) -> None:
        self.answers: dict[int, ProbeResult] = {}
        self.asked: list[Probe] = []

    async def __call__(self, probe: Probe) -> ProbeResult:
        self.asked.append(probe)
        await anyio.lowlevel.checkpoint()
        return self.answers.get(probe.port, ProbeResult(True, "Success"))


class FakeMetricsFetcher:
    """Answers what is asked of metrics endpoints as told, by address; nobody answers otherwise."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}

    async def __call__(self, url: str, limit: int, timeout_s: float) -> bytes:
        await anyio.lowlevel.checkpoint()
        if url not in self.answers or len(self.answers[url]) > limit:
            raise ScrapeFailed("nobody answers")
        return self.answers[url]


class MortalStore(Store, Protocol):
    """A store that can stop for good. Who waits for it then waits for ever; the daemon is dead."""

    frozen: anyio.Event


class SimWorld(ABC):
    """`room` is what the host has to sell; without `reconciles` nobody tidies up after a flow; where machines are
    `guests` they have kernels of their own, and are suspended by snapshots. Where it `meets_fleet`, who opens a life
    says what a client's calls are answered by."""

    meets_fleet = False

    def __init__(
        self,
        store: MortalStore,
        directory: Path,
        *,
        seed: int = 0,
        room: Capacity = ROOM,
        reconciles: bool = True,
        kit: WorkerKit = SOUND,
        guests: bool = False,
        node: NodeRecord = ALONE,
        **settings: Any,
    ) -> None:
        self.node = node
        self.clock = LoopClock(seed)
        self.crash_points = CrashPoints()
        self.host = SimHost(self.clock, self.crash_points)
        self.rootfs, self.networks, self.disks = (
            FakeRootfs(self.crash_points),
            FakeNetworks(self.crash_points),
            FakeVolumes(self.crash_points),
        )
        self.policies, self.copies = FakePolicies(self.crash_points), FakeCopies(self.crash_points, self.disks)
        self.backups = FakeBackups(self.crash_points, self.copies, self.disks)
        self.moved_files = FakeMovedFiles(self.crash_points, self.disks, self.rootfs, self.copies, self.host)
        self.gpus = FakeGpus(self.crash_points, self.host)
        self.prober, self.fetcher = FakeProber(), FakeMetricsFetcher()
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
        self.policies.standing = ()

    def seen(self) -> HostState:
        seen = look(self.host, self.rootfs, self.networks, self.disks, self.copies)
        return seen if self.features.disks else replace(seen, memories=None)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[SimWorker]:
        """A life of the daemon. Raises `Death` if it is killed."""
        try:
            with anyio.fail_after(LIFE_S):
                async with self._life() as worker:
                    yield worker
        except BaseExceptionGroup as group:
            raise _cause(group) from None

    @asynccontextmanager
    async def _life(self) -> AsyncIterator[SimWorker]:
        loop, threads = asyncio.get_running_loop(), anyio.to_thread.current_default_thread_limiter()
        if isinstance(loop, VirtualTimeLoop):
            loop.mind_threads()
        images = self.images()
        try:
            await images.open()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._die_with_the_store)
                parts = self._parts(images)
                reconciler = reconciler_of(parts)
                supervisor = supervisor_of(parts, self._kit.supervisor, self._kit.exits)
                worker = SimWorker(parts, reconciler, self.host, tasks)
                if not self.meets_fleet:
                    parts.deps.fleet.meet(InProcessCaller(worker.handlers, self.clock, "deploy"))
                await begin(tasks, parts, supervisor, reconciler if self.reconciles else None)
                yield worker
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
        vault = Vault(self.node.id.encode().ljust(KEY_BYTES, b"."), self.clock)
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
            certificates=Certificates(self.store, vault, self.clock),
            logins=RegistryLogins(self.store, vault, self.clock),
            enforcer=kit.enforcer(self.store, self.policies),
            archive=self.archive,
            volumes=VolumeTable(self.clock, self.settings.deleted_volumes_kept_s),
            disks=kit.disks(self.disks),
            copies=kit.copies(self.copies),
            moved_files=kit.moved_files(self.moved_files),
            volume_keys=VolumeKeys(vault, self.clock),
            backups=self.backups,
            gpus=self.gpus,
        )
        flows = [with_crash_points(flow, self.crash_points) for flow in kit.flows()]
        runner = kit.runner(
            deps.store,
            flows,
            deps,
            self.clock,
            queues={"pulls": 3, "copies": 2, "backups": 2, "restores": 2, "snapshots": 1},
            epoch=f"boot {self.boots}",
        )
        metrics = build_metrics("sim")
        return assemble(
            deps,
            runner,
            self.node,
            room=lambda: self.room,
            prober=self.prober,
            outward=HOST_ADDRESSES.get,
            lookup=NameLookup(_nowhere, _unsaid),
            fetch=self.fetcher,
            metrics=metrics,
            moves=kit.moves,
        )


async def _nowhere(name: str) -> tuple[str, ...]:
    """A world without name servers."""
    return ()


async def _unsaid(name: str, kind: str) -> tuple[str, ...]:
    return ()


class HeldImages(ImageCache):
    """The real cache; fetching waits for the event that `held` has for the reference."""

    held: dict[str, anyio.Event]

    async def fetch(self, resolved: Resolved, *arguments: Any, **named: Any) -> None:
        if resolved.reference in self.held:
            await self.held[resolved.reference].wait()
        await super().fetch(resolved, *arguments, **named)

    def block_path(self, digest: Digest) -> Path:
        return block_file(digest)


class MemoryWorld(SimWorld):
    """A world for one scene at a time: the store is the twin in memory, the images are the real cache."""

    store: MemoryStore

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(MemoryStore(), directory, **options)
        self.held: dict[str, anyio.Event] = {}

    def crash(self, keep: int | None = None, faults: StoreFaults | None = None) -> None:
        """What the next life finds: `keep` of the commits that were not yet durable, all by default."""
        self.store = self.store.crash(self.store.pending if keep is None else keep, faults)

    def hold(self, reference: str = "hawker/hello:latest") -> anyio.Event:
        """Pulls of this image wait until the event is set."""
        return self.held.setdefault(reference, anyio.Event())

    def images(self) -> ImageCache:
        images = HeldImages(
            self.directory / "images", ImageSettings(allow_local=True, block=BlockChoice.NONE), self.clock
        )
        images.held = self.held
        return images


class VirtualWorld(SimWorld):
    """A world whose images are pulled in virtual time from `registry`, which is set before the first life."""

    registry: FakeRegistry

    def images(self) -> FakeImages:
        return FakeImages(self.registry, self.clock)


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
