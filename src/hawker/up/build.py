"""What a node is built of: each object once, from the settings and what is on the host. Nothing here serves."""

import os
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import aiohttp
from anyio import to_thread

from hawker.api.server import PROGRAM_VERSION
from hawker.archive.archive import Archive
from hawker.archive.backend import open_backend
from hawker.clock import Clock
from hawker.fsm.runner import Runner
from hawker.gpu import parse_gpus
from hawker.host.facts import Facts
from hawker.host.luks import Luks
from hawker.host.machine_link import TappedLink, WiredLink
from hawker.host.network import NodeNetwork
from hawker.host.network_policy import NodePacketFilters
from hawker.host.uplink import own_address
from hawker.host.vfio import PciDevices
from hawker.host.vmm_user import user_of
from hawker.ids import NodeId
from hawker.image.cache import ImageCache
from hawker.image.limits import MIB, ImageLimits, ImageSettings
from hawker.netpolicy.enforcement import Fences
from hawker.observe.metrics import MetricsRegistry
from hawker.observe.span import SpanOrigin
from hawker.observe.span_queue import SpanQueue
from hawker.observe.spans import MakeExporter
from hawker.place import Place
from hawker.record.node import NodeRecord
from hawker.runtime.driver import NodeDriver
from hawker.runtime.driver_probe import DriverVerdict
from hawker.runtime.guest_volumes import GuestVolumes
from hawker.secret.secret_keys import SecretKeyStore
from hawker.secret.secrets import Secrets
from hawker.settings import Settings
from hawker.store.contract import Store
from hawker.vault import Vault, load_or_create_key
from hawker.volume.copies import Copies
from hawker.volume.disks import Disks
from hawker.volume.encryption import Ciphers, VolumeKeys
from hawker.volume.guest_disks import GuestCopies, GuestDisks, VolumeUse
from hawker.volume.host_copies import PARALLEL_COPIES, HostCopies
from hawker.volume.host_disks import HostDisks
from hawker.volume.table import VolumeTable
from hawker.worker.assembly import AssembledWorker, assemble
from hawker.worker.capacity import Room
from hawker.worker.changes import Changes
from hawker.worker.health import NetworkProber
from hawker.worker.lifecycle import FLOWS
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.lifecycle.host_adapters import Rootfs
from hawker.worker.lifecycle.machine_networks import HostNetworks
from hawker.worker.lifecycle.root_disks import DiskRootfs
from hawker.worker.lifecycle.rootfs import HostRootfs
from hawker.worker.scrape import HttpFetch
from hawker.worker.table import MachineTable
from hawker.worker.telemetry import Telemetry, Traces

_LAST_SPANS_S = 1.0


def archive_of(settings: Settings, place: Place) -> Archive | None:
    """Where histories go; whether it is there and takes them is seen later, since nothing may hold up a boot."""
    if settings.archive is None:
        return None
    endpoint, region = settings.archive_endpoint, settings.archive_region
    to = open_backend(settings.archive, endpoint=endpoint, region=region, environ=os.environ, base=Path.cwd())
    return Archive(to, place.archive)


def image_settings(settings: Settings) -> ImageSettings:
    return ImageSettings(
        allow_local=settings.allow_local_images,
        insecure_hosts=frozenset(settings.insecure_registries),
        auth_file=settings.registry_auth_file,
        limits=ImageLimits(
            max_layer_bytes=settings.max_layer_mib * MIB,
            max_image_bytes=settings.max_image_mib * MIB,
            max_import_bytes=settings.max_import_mib * MIB,
        ),
    )


async def deps_of(
    settings: Settings,
    place: Place,
    driver: NodeDriver,
    node_id: NodeId,
    store: Store,
    images: ImageCache,
    clock: Clock,
    archive: Archive | None,
) -> FlowDeps:
    network = _network(place, node_id, driver)
    if network is not None:
        await network.boot()
    vault = Vault(load_or_create_key(place.key, clock), clock)
    secrets = Secrets(store, vault, clock)
    keys = VolumeKeys(vault, clock)
    disks, copies = _volumes(settings, place, driver, store, Ciphers(Luks(), keys, node_id))
    return FlowDeps(
        store=store,
        table=MachineTable(clock, Changes()),
        images=images,
        driver=driver,
        rootfs=_rootfs(settings, place, driver, images),
        networks=HostNetworks(network, kernels=driver.features.disks) if network is not None else None,
        settings=settings,
        clock=clock,
        secrets=secrets,
        secret_keys=SecretKeyStore(store, vault, secrets, clock),
        fences=Fences(store, NodePacketFilters(node_id) if network is not None else None),
        volumes=VolumeTable(clock, settings.deleted_volumes_kept_s),
        disks=disks,
        copies=copies,
        volume_keys=keys,
        gpus=PciDevices([gpu.address for gpu in parse_gpus(settings.gpu_devices)]) if settings.gpu_devices else None,
        archive=archive,
    )


def _network(place: Place, node_id: NodeId, driver: NodeDriver) -> NodeNetwork | None:
    if not driver.features.network:
        return None
    return NodeNetwork(node_id, place.networks, TappedLink(user_of) if driver.features.disks else WiredLink())


def _rootfs(settings: Settings, place: Place, driver: NodeDriver, images: ImageCache) -> Rootfs | None:
    """Block files for machines with a kernel of their own, mounts for all others."""
    if driver.features.disks:
        return DiskRootfs(place.root, images, settings.machine_disk_mib)
    return HostRootfs(place.root, images) if driver.features.rootfs else None


def _volumes(
    settings: Settings, place: Place, driver: NodeDriver, store: Store, ciphers: Ciphers
) -> tuple[Disks | None, Copies | None]:
    """The same of volumes and their copies."""
    floor_bytes = settings.free_disk_floor_mib * MIB
    if isinstance(driver, GuestVolumes) and driver.features.disks:
        use = VolumeUse(store, driver)
        guest_disks = GuestDisks(place.volumes, driver, use)
        return guest_disks, GuestCopies(place.snapshots, guest_disks.file, driver, use, floor_bytes)
    if not driver.features.mounts:
        return None, None
    disks = HostDisks(place.volumes, ciphers)
    return disks, HostCopies(place.snapshots, disks.file, disks.mount_point, floor_bytes)


def traces_of(
    stack: AsyncExitStack, exporter: MakeExporter, settings: Settings, node: NodeRecord, metrics: MetricsRegistry
) -> Traces:
    """Spans of what the engine does; at the end, a collector gets a moment to take the last ones."""
    origin = SpanOrigin(node=node.id, region=node.region, version=PROGRAM_VERSION)
    spool = SpanQueue(exporter(settings.otel_endpoint or "", origin), metrics.spans)
    stack.push_async_callback(to_thread.run_sync, spool.close, _LAST_SPANS_S)
    return Traces(spool)


def parts_of(
    deps: FlowDeps,
    node: NodeRecord,
    facts: Facts,
    http: aiohttp.ClientSession,
    metrics: MetricsRegistry,
    traces: Traces | None,
    drivers: tuple[DriverVerdict, ...],
) -> AssembledWorker:
    settings, room = deps.settings, Room(deps.settings, facts)
    queues = {"pulls": settings.parallel_pulls, "copies": PARALLEL_COPIES}
    keep, epoch = settings.runs_kept, facts.boot_id
    watcher = Telemetry(metrics.runs, traces)
    runner = Runner(deps.store, FLOWS, deps, deps.clock, queues=queues, epoch=epoch, keep_runs=keep, observer=watcher)
    prober, fetch = NetworkProber(http), HttpFetch(http)
    parts = assemble(deps, runner, node, room=room, prober=prober, outward=own_address, fetch=fetch, metrics=metrics)
    return replace(parts, drivers=drivers)
