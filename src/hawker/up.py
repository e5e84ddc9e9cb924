"""`hawker up`: every role of a node in one process. Builds each object once, joins them, serves until told to stop.

Stopping leaves machines running; the next `up` on the same directory takes them up again and resumes every run.
"""

import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import anyio
import msgspec
from anyio import to_thread

from hawker import log
from hawker.api.handlers import Handlers
from hawker.api.listener import bind, serving
from hawker.api.server import PROGRAM_VERSION, Server
from hawker.archive.archive import Archive
from hawker.archive.place import open_place
from hawker.broker.handlers import TokenHandlers
from hawker.broker.rate_limits import RateLimits
from hawker.broker.revocations import Revocations
from hawker.broker.tokens import Tokens, load_or_create_token
from hawker.clock import Clock, system_clock
from hawker.errors import CannotStart, Unavailable
from hawker.fsm.runner import Runner
from hawker.gpu import parse_gpus
from hawker.host.facts import Facts, read_facts
from hawker.host.fencing import NodeFences
from hawker.host.luks import Luks
from hawker.host.network import NodeNetwork
from hawker.host.outward import own_address
from hawker.host.plug import Tapped, Wired
from hawker.host.systemd import Notifier, handed_over
from hawker.host.users import user_of
from hawker.host.vfio import PciDevices
from hawker.ids import NodeId, new_node_id
from hawker.image.cache import ImageCache
from hawker.image.limits import MIB, ImageSettings, Limits
from hawker.observe.metrics import Metrics, build_metrics
from hawker.observe.span import Origin
from hawker.observe.spans import MakeExporter, load_exporter
from hawker.observe.spool import Spool
from hawker.observe.stall import Patience
from hawker.observe.watchdog import Watchdog
from hawker.place import Place
from hawker.runtime.driver import Driver
from hawker.runtime.guest_volumes import GuestVolumes
from hawker.runtime.probe import Verdict
from hawker.runtime.roster import Roster
from hawker.settings import Settings
from hawker.store.contract import Store
from hawker.store.sqlite import SqliteStore
from hawker.worker.capacity import Room
from hawker.worker.changes import Changes
from hawker.worker.ephemeral import destroy_everything
from hawker.worker.fences import Fences
from hawker.worker.format import enter
from hawker.worker.handlers import worker_handlers
from hawker.worker.lifecycle import FLOWS
from hawker.worker.lifecycle.ciphers import Ciphers
from hawker.worker.lifecycle.copies import PARALLEL_COPIES, HostCopies
from hawker.worker.lifecycle.deps import Deps, Rootfs
from hawker.worker.lifecycle.disks import HostDisks
from hawker.worker.lifecycle.guest_copies import GuestCopies
from hawker.worker.lifecycle.guest_disks import GuestDisks
from hawker.worker.lifecycle.network import HostNetworks
from hawker.worker.lifecycle.root_disks import DiskRootfs
from hawker.worker.lifecycle.rootfs import HostRootfs
from hawker.worker.lifecycle.volume_use import VolumeUse
from hawker.worker.parts import Parts
from hawker.worker.probe import NetworkProber
from hawker.worker.reconcile import Reconciler
from hawker.worker.records import APPS, NODE, NodeRecord
from hawker.worker.refusal import or_refuse, wrapped_in
from hawker.worker.scrape import HttpFetch
from hawker.worker.secret_keys import SecretKeys
from hawker.worker.secrets import Secrets
from hawker.worker.serve import begin, join
from hawker.worker.supervisor import Supervisor
from hawker.worker.table import MachineTable
from hawker.worker.telemetry import Telemetry
from hawker.worker.traces import Traces
from hawker.worker.vault import Vault, load_or_create_key
from hawker.worker.volumes.copies import Copies
from hawker.worker.volumes.disks import Disks
from hawker.worker.volumes.keys import VolumeKeys
from hawker.worker.volumes.table import VolumeTable

_log = log.bind("hawker.up")
_LAST_SPANS_S = 1.0
_STOP_S = 2.0  # after the server's own grace; the whole stop stays below five seconds


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. Raises `CannotStart`."""
    log.configure(settings.log_level)
    os.umask(0o077)
    return anyio.run(_main, settings, system_clock(os.environ), backend_options={"use_uvloop": True})


async def _main(settings: Settings, clock: Clock) -> int:
    """From the first moment a signal to stop is heard, so that a node that has just begun ends as cleanly as any."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        try:
            await _live(settings, clock, signals)
        except BaseExceptionGroup as group:
            raise (wrapped_in(group) or group) from group.__cause__
    return 0


async def _live(settings: Settings, clock: Clock, signals: AsyncIterator[signal.Signals]) -> None:
    """What can be refused is refused before anything is made."""
    notifier, given = Notifier.of(os.environ, os.getpid()), handed_over(os.environ, os.getpid())
    facts, place, metrics = read_facts(), Place(settings.data_dir), build_metrics(PROGRAM_VERSION)
    exporter = load_exporter() if settings.otel_endpoint else None
    roster = Roster(settings, facts, place, clock)
    drivers = await roster.decide()
    archive = _archive(settings, place)
    listener = given or _bind(settings.listen)
    async with AsyncExitStack() as stack:
        stack.callback(listener.close)
        place.make()
        stack.enter_context(place.held())
        store = SqliteStore(place.store, metrics.store)
        metrics.store.waiting.set_function(lambda: store.waiting)
        stack.push_async_callback(store.close)
        with or_refuse(settings.data_dir):
            await enter(store)
            node = await _node_record(store, place, settings.region, clock)
        place.remember(node.id)
        roster.remember(drivers)
        driver = roster.driver(drivers, node.id)
        images = ImageCache(place.images, _image_settings(settings), clock)
        stack.push_async_callback(images.aclose)
        with or_refuse(settings.data_dir):
            await images.open()
        http = await stack.enter_async_context(aiohttp.ClientSession())
        with or_refuse(settings.data_dir):
            deps = await _deps(settings, place, driver, node.id, store, images, clock, archive)
        traces = _traces(stack, exporter, settings, node, metrics) if exporter else None
        parts = _parts(deps, node, facts, http, metrics, traces, drivers)
        patience = Patience(report_s=settings.watchdog_report_s, end_s=settings.watchdog_end_s)
        with Watchdog(clock, patience, metrics.loop).watching():
            await _serve(settings, place, listener, notifier, parts, signals)


def _bind(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise CannotStart(f"--listen takes HOST:PORT, not {listen!r}")
    return bind(host.strip("[]"), int(port))


def _archive(settings: Settings, place: Place) -> Archive | None:
    """Where histories go; whether it is there and takes them is seen later, since nothing may hold up a boot."""
    if settings.archive is None:
        return None
    endpoint, region = settings.archive_endpoint, settings.archive_region
    to = open_place(settings.archive, endpoint=endpoint, region=region, environ=os.environ, base=Path.cwd())
    return Archive(to, place.archive)


async def _node_record(store: Store, place: Place, region: str, clock: Clock) -> NodeRecord:
    """Who this node is: written at first boot, and when its region changes. With a new store it is who it was."""
    known = store.get(NODE, "self")
    if known is not None and known.region == region:
        return known
    if known is not None:
        record = msgspec.structs.replace(known, region=region)
    else:
        record = NodeRecord(id=place.remembered() or new_node_id(clock), region=region, created_at=clock.now())
    await store.write(lambda tx: tx.put(NODE, "self", record))
    return record


def _image_settings(settings: Settings) -> ImageSettings:
    return ImageSettings(
        allow_local=settings.allow_local_images,
        insecure_hosts=frozenset(settings.insecure_registries),
        auth_file=settings.registry_auth_file,
        limits=Limits(
            max_layer_bytes=settings.max_layer_mib * MIB,
            max_image_bytes=settings.max_image_mib * MIB,
            max_import_bytes=settings.max_import_mib * MIB,
        ),
    )


async def _deps(
    settings: Settings,
    place: Place,
    driver: Driver,
    node_id: NodeId,
    store: Store,
    images: ImageCache,
    clock: Clock,
    archive: Archive | None,
) -> Deps:
    network = _network(place, node_id, driver)
    if network is not None:
        await network.boot()
    vault = Vault(load_or_create_key(place.key, clock), clock)
    secrets = Secrets(store, vault, clock)
    keys = VolumeKeys(vault, clock)
    disks, copies = _volumes(settings, place, driver, store, Ciphers(Luks(), keys, node_id))
    return Deps(
        store=store,
        table=MachineTable(clock, Changes()),
        images=images,
        driver=driver,
        rootfs=_rootfs(settings, place, driver, images),
        networks=HostNetworks(network, kernels=driver.features.disks) if network is not None else None,
        settings=settings,
        clock=clock,
        secrets=secrets,
        secret_keys=SecretKeys(store, vault, secrets, clock),
        fences=Fences(store, NodeFences(node_id) if network is not None else None),
        volumes=VolumeTable(clock, settings.deleted_volumes_kept_s),
        disks=disks,
        copies=copies,
        volume_keys=keys,
        gpus=PciDevices([gpu.address for gpu in parse_gpus(settings.gpu_devices)]) if settings.gpu_devices else None,
        archive=archive,
    )


def _network(place: Place, node_id: NodeId, driver: Driver) -> NodeNetwork | None:
    if not driver.features.network:
        return None
    return NodeNetwork(node_id, place.networks, Tapped(user_of) if driver.features.disks else Wired())


def _rootfs(settings: Settings, place: Place, driver: Driver, images: ImageCache) -> Rootfs | None:
    """Block files for machines with a kernel of their own, mounts for all others."""
    if driver.features.disks:
        return DiskRootfs(place.root, images, settings.machine_disk_mib)
    return HostRootfs(place.root, images) if driver.features.rootfs else None


def _volumes(
    settings: Settings, place: Place, driver: Driver, store: Store, ciphers: Ciphers
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


def _traces(
    stack: AsyncExitStack, exporter: MakeExporter, settings: Settings, node: NodeRecord, metrics: Metrics
) -> Traces:
    """Spans of what the engine does; at the end, a collector gets a moment to take the last ones."""
    origin = Origin(node=node.id, region=node.region, version=PROGRAM_VERSION)
    spool = Spool(exporter(settings.otel_endpoint or "", origin), metrics.spans)
    stack.push_async_callback(to_thread.run_sync, spool.close, _LAST_SPANS_S)
    return Traces(spool)


def _parts(
    deps: Deps,
    node: NodeRecord,
    facts: Facts,
    http: aiohttp.ClientSession,
    metrics: Metrics,
    traces: Traces | None,
    drivers: tuple[Verdict, ...],
) -> Parts:
    settings, room = deps.settings, Room(deps.settings, facts)
    queues = {"pulls": settings.parallel_pulls, "copies": PARALLEL_COPIES}
    keep, epoch = settings.runs_kept, facts.boot_id
    watcher = Telemetry(metrics.runs, traces)
    runner = Runner(deps.store, FLOWS, deps, deps.clock, queues=queues, epoch=epoch, keep_runs=keep, observer=watcher)
    prober, fetch = NetworkProber(http), HttpFetch(http)
    parts = join(deps, runner, node, room=room, prober=prober, outward=own_address, fetch=fetch, metrics=metrics)
    return replace(parts, drivers=drivers)


class _Told:
    """To stop, by a signal. One that comes while the node still begins, which may wait for a disk, ends that."""

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.signal = ""

    async def hear(self, signals: AsyncIterator[signal.Signals], boot: anyio.CancelScope) -> None:
        self.signal = (await anext(signals)).name
        self.event.set()
        boot.cancel()


async def _serve(
    settings: Settings,
    place: Place,
    listener: socket.socket,
    notifier: Notifier,
    parts: Parts,
    signals: AsyncIterator[signal.Signals],
) -> None:
    """Take up what the last daemon left, then answer."""
    deps = parts.deps
    handlers, tokens = _front(place, parts)
    limiter = RateLimits(deps.clock, parts.metrics.api.limited) if deps.settings.rate_limits else None
    server = Server(handlers, tokens, deps.clock, observer=parts.metrics.api, limiter=limiter)
    told = _Told()
    supervisor, reconciler = Supervisor(deps, parts.runner, parts.changes), Reconciler(deps, parts.runner)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.keep_alive, deps.clock)
        with anyio.CancelScope() as boot, or_refuse(settings.data_dir):
            tasks.start_soon(told.hear, signals, boot)
            await begin(tasks, parts, supervisor, reconciler)
        if boot.cancelled_caught:
            _end_within(_STOP_S)
            tasks.cancel_scope.cancel()
            return
        async with serving(server, listener) as url:
            place.announce(url)
            gc.freeze()  # what is here now stays: else the collector walks it again and again, and nobody is answered
            sys.stdout.write(f"ready {url}\n")
            sys.stdout.flush()
            notifier.ready(f"serving {url}")
            _log.info("ready", extra={"url": url, "node": parts.node.id, "driver": deps.driver.name})
            await told.event.wait()
            _log.info("stopping", extra={"signal": told.signal})
            notifier.stopping()
        if settings.ephemeral:
            await destroy_everything(parts)
        _end_within(_STOP_S)
        with suppress(Unavailable):
            await parts.runner.leave()
        tasks.cancel_scope.cancel()


def _front(place: Place, parts: Parts) -> tuple[Handlers, Tokens]:
    """The broker's part: whom the node answers, and its own answers beside the worker's."""
    store, clock = parts.deps.store, parts.deps.clock

    def org_of(app: str) -> str | None:
        record = store.get(APPS, app)
        return None if record is None else record.org

    revocations = Revocations(store, clock)
    tokens = Tokens(load_or_create_token(place.token, clock), clock, revocations, org_of)
    handlers = worker_handlers(parts)
    TokenHandlers(tokens, revocations, clock, lambda app: org_of(app) is not None).bind(handlers)
    return handlers, tokens


def _end_within(seconds: float) -> None:
    """A step may be in a thread that nothing can interrupt, such as one that unpacks a large image. Being killed there
    costs no more than that step, so a stop that was asked for does not wait for it."""
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()
