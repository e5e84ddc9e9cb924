"""`hawker up`: every role of a node in one process. Builds each object once, joins them, serves until told to stop.

Stopping leaves machines running; the next `up` on the same directory takes them up again and resumes every run.
"""

import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio
import msgspec

from hawker import log
from hawker.api.listener import BehindEdge, serving
from hawker.cli.entry import collect_as_usual
from hawker.clock import Clock, system_clock
from hawker.cluster import Cluster
from hawker.deferred import deferred
from hawker.errors import CannotStart, Moved, MoveUnderWay, Unavailable
from hawker.fair.sessions import SessionAtNeed, fleeting_session
from hawker.host.facts import disk_of, read_facts
from hawker.host.systemd import Notifier, handed_over
from hawker.ids import MachineId, RunId, new_node_id
from hawker.image.cache import ImageCache
from hawker.log import Secret, bind
from hawker.machine import GONE
from hawker.market.preferences import load_preferences
from hawker.node import labels_of
from hawker.observe.metrics import build_metrics
from hawker.observe.spans import load_exporter
from hawker.observe.watchdog import StallLimits, Watchdog
from hawker.place import Place
from hawker.record.machine import MACHINES, MachineRecord, MachineTarget
from hawker.record.move import OPEN_MOVE_OF
from hawker.record.node import NODE, NodeRecord, used
from hawker.runtime.driver import NodeDriver
from hawker.runtime.driver_selection import DriverSelection
from hawker.settings import Settings
from hawker.store.contract import Store
from hawker.store.sqlite import RESERVE_BYTES, SqliteStore
from hawker.up.boot_refusal import or_refuse, wrapped_in
from hawker.up.build import archive_of, deps_of, edge_of, image_settings, parts_of, resolver_of, traces_of
from hawker.up.servers import Doors, Front, audit_trail, bind_for_edge, bind_public, front_alone, open_doors
from hawker.up.template import Template
from hawker.up.wiring import catch_up_of
from hawker.version import VERSION
from hawker.worker.assembly import AssembledWorker, begin, reconciler_of, supervisor_of
from hawker.worker.capacity import usual_layer_mib
from hawker.worker.edge_door import EdgeDoor
from hawker.worker.format import enter

if TYPE_CHECKING:
    from hawker.catalog.http import server as catalog_server
    from hawker.fleet import joining
    from hawker.secret import certificate_orders
    from hawker.up import fleet as up_fleet
    from hawker.up import fleet_front
    from hawker.up.fleet import InFleet
else:
    catalog_server = deferred("hawker.catalog.http.server")
    joining = deferred("hawker.fleet.joining")
    certificate_orders = deferred("hawker.secret.certificate_orders")
    up_fleet = deferred("hawker.up.fleet")
    fleet_front = deferred("hawker.up.fleet_front")

_FLEET_MODULES = ("hawker.up.fleet", "hawker.up.fleet_front", "hawker.catalog.http.server")
_log = bind("hawker.ephemeral")
DEADLINE_S = 60.0


async def destroy_everything(parts: AssembledWorker) -> None:
    """Returns when no machine is left but those that were granted to another node, or with a warning when the deadline
    is over. A move that was not granted yet is cancelled, after all others were ordered destroyed."""
    store = parts.deps.store
    with anyio.move_on_after(DEADLINE_S) as scope:
        moving = {machine_id for machine_id, _ in store.scan(OPEN_MOVE_OF)}
        records = sorted((record for _, record in store.scan(MACHINES)), key=lambda record: record.id in moving)
        own = [record for record in records if await _is_destroyed(parts, record)]
        for record in own:
            await _until_gone(parts, record.id)
    if scope.cancelled_caught:
        _log.warning("machines left behind", extra={"count": store.count(MACHINES)})
        return
    if parts.deps.rootfs is not None:
        await parts.deps.rootfs.withdraw()
    if parts.deps.networks is not None:
        await parts.deps.networks.withdraw()


async def _is_destroyed(parts: AssembledWorker, record: MachineRecord) -> bool:
    """Whether it goes; not once it is another node's."""
    store, nonce = parts.deps.store, record.lease.nonce if record.lease else None
    while record.state not in GONE:
        try:
            await parts.operations.destroy(MachineTarget(record.app, record.id, nonce), force=True)
            break
        except Moved:
            return False
        except MoveUnderWay:
            opened = store.get(OPEN_MOVE_OF, record.id)
            if opened is not None:
                await parts.runner.cancel(RunId(opened.move), "the node ends")
                await parts.runner.wait(RunId(opened.move), DEADLINE_S)
    return True


async def _until_gone(parts: AssembledWorker, machine_id: MachineId) -> None:
    await parts.changes.until(machine_id, lambda: True if parts.deps.store.get(MACHINES, machine_id) is None else None)


# The end of an ephemeral node: every machine is destroyed, so that nothing of it is left on the host.

_STOP_S = 2.0  # after the server's own grace; the whole stop stays below five seconds


def run(settings: Settings, *, public: bool = True) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. Without `public` only the nodes of the cluster are answered.
    Raises `CannotStart`."""
    collect_as_usual()
    log.configure(settings.log_level)
    os.umask(0o077)
    clock, given = system_clock(os.environ), handed_over(os.environ, os.getpid())
    notifier = Notifier.of(os.environ, os.getpid())
    if settings.template and public and given is None:
        given = bind_public(settings.listen)

    def daemon() -> int:
        live = partial(_live, settings, clock, notifier, given, public)
        return anyio.run(_main, live, backend_options={"use_uvloop": True})

    if not settings.template:
        return daemon()
    clustered = settings.advertise is not None or Place(settings.data_dir).cluster.exists()
    return Template(daemon, clock, _FLEET_MODULES if clustered else ()).run()


def join(settings: Settings, target: str, token: Secret) -> Cluster:
    """Make the node of this data directory one of the cluster that `target` is in. Raises `CannotStart`, and what the
    other node answers."""
    os.umask(0o077)
    place, clock = Place(settings.data_dir), system_clock(os.environ)
    joined = partial(joining.join_cluster, advertise=settings.advertise, peer_port=settings.peer_port)
    return anyio.run(joined, place, clock, target, token)


async def _main(live: Callable[[AsyncIterator[signal.Signals]], Awaitable[None]]) -> int:
    """From the first moment a signal to stop is heard, so that a node that has just begun ends as cleanly as any."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        try:
            await live(signals)
        except BaseExceptionGroup as group:
            raise (wrapped_in(group) or group) from group.__cause__
    return 0


async def _live(
    settings: Settings,
    clock: Clock,
    notifier: Notifier,
    given: socket.socket | None,
    public: bool,
    signals: AsyncIterator[signal.Signals],
) -> None:
    """What can be refused is refused before anything is made. `given` is the listening socket for clients, if one is
    there."""
    facts, place, metrics = read_facts(), Place(settings.data_dir), build_metrics(VERSION)
    exporter = load_exporter() if settings.otel_endpoint else None
    selection = DriverSelection(settings, facts, place, clock)
    drivers = await selection.decide()
    archive = archive_of(settings, place)
    preferences = load_preferences(settings.market)
    labels_of(settings.labels)
    doors = open_doors(settings, place, clock, given, public=public)
    async with AsyncExitStack() as stack:
        stack.callback(doors.close)
        place.make()
        stack.enter_context(place.held(withdraws=public and given is None))  # else its giver goes on listening
        store = SqliteStore(place.store, metrics.store, reserve_bytes=RESERVE_BYTES)
        metrics.store.waiting.set_function(lambda: store.waiting)
        stack.push_async_callback(store.close)
        with or_refuse(settings.data_dir):
            await enter(store)
            node = await _node_record(store, place, settings.region, clock)
        place.remember(node.id)
        selection.remember(drivers)
        driver = selection.driver(drivers, node.id)
        if settings.machine_api and not driver.features.network:
            raise CannotStart(f"--machine-api needs machines with networks of their own; driver {driver.name} has none")
        settings = _with_layers(settings, place, driver, store)
        if lack := driver.features.lacks_user_namespace:
            bind("hawker.container").warning("root of machines is root here", extra={"reason": lack})
        if lack := store.lacks_reserve:
            bind("hawker.store").warning("the store has no reserve on the disk", extra={"reason": lack})
        images = ImageCache(place.images, image_settings(settings), clock)
        stack.push_async_callback(images.aclose)
        with or_refuse(settings.data_dir):
            await images.open()
        http = SessionAtNeed(fleeting_session)
        stack.push_async_callback(http.aclose)
        with or_refuse(settings.data_dir):
            deps = await deps_of(settings, place, driver, node.id, store, images, clock, archive)
        traces = traces_of(stack, exporter, settings, node, metrics) if exporter else None
        parts = parts_of(deps, node, facts, http, metrics, traces, selection.looked, lambda: store.lacks_reserve)
        patience = StallLimits(report_s=settings.watchdog_report_s, end_s=settings.watchdog_end_s)
        with Watchdog(clock, patience, metrics.loop).watching():
            async with AsyncExitStack() as around:
                auditor = audit_trail(around, place, settings, clock)
                fleet = await _fleet(around, doors, parts, store, place)
                if fleet is None:
                    front = front_alone(place, parts, preferences, auditor)
                    await _serve(place, doors, notifier, store, parts, None, front, signals)
                else:
                    front = fleet_front.front_of_fleet(around, place, fleet, preferences, auditor)
                    await _serve(place, doors, notifier, store, fleet.parts, fleet, front, signals)


def _with_layers(settings: Settings, place: Place, driver: NodeDriver, store: Store) -> Settings:
    """What the settings leave to the host: how large root filesystems are, where the driver gives them a size."""
    sized = driver.features.rootfs or driver.features.disks
    if settings.machine_disk_mib is not None or not sized:
        return settings
    size_mib = usual_layer_mib(settings, disk_of(place.root), used(store).disk_mib)
    return msgspec.structs.replace(settings, machine_disk_mib=size_mib)


async def _fleet(
    stack: AsyncExitStack, doors: Doors, parts: AssembledWorker, store: SqliteStore, place: Place
) -> "InFleet | None":
    """Until the stack is closed; None for a node that is alone."""
    if doors.seat is None:
        return None
    revoked = fleet_front.revocations_of(parts.node.id, store)
    return await stack.enter_async_context(up_fleet.in_fleet(doors.seat, parts, store, place, [revoked]))


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


class StopSignal:
    """The signal to stop. A signal that comes while the node still begins, which may wait for a disk, ends that."""

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.signal = ""

    async def hear(self, signals: AsyncIterator[signal.Signals], boot: anyio.CancelScope) -> None:
        self.signal = (await anext(signals)).name
        self.event.set()
        boot.cancel()


_EDGE_LISTENS_S = 30.0  # then certificates are ordered all the same


async def _order_certificates(store: SqliteStore, parts: AssembledWorker, *, in_fleet: bool) -> None:
    """Orders certificates, until cancelled. The API's name is proven at this host's edge, which begins meanwhile: an
    authority that comes before it listens is told nothing, and the next try is minutes later."""
    deps = parts.deps
    if deps.settings.api_hostname is not None:
        with anyio.move_on_after(_EDGE_LISTENS_S):
            await deps.edge.listens(deps.clock)
    spread_s = certificate_orders.spread_of(deps.settings, in_fleet=in_fleet)
    turns = certificate_orders.PlatformTurns(deps.certificates, deps.clock, parts.node.id) if in_fleet else None
    buyer = certificate_orders.CertificateBuyer(store, deps.certificates, deps.settings, deps.clock, spread_s, turns)
    store.listen(buyer.note)
    await buyer.serve()


async def _serve(
    place: Place,
    doors: Doors,
    notifier: Notifier,
    store: SqliteStore,
    parts: AssembledWorker,
    fleet: "InFleet | None",
    front: Front,
    signals: AsyncIterator[signal.Signals],
) -> None:
    """Take up what the last daemon left, then answer."""
    deps, settings = parts.deps, parts.deps.settings
    told = StopSignal()
    supervisor, reconciler = supervisor_of(parts), reconciler_of(parts)
    edge, resolver = edge_of(parts, place), resolver_of(parts, place)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.keep_alive, deps.clock)
        with anyio.CancelScope() as boot, or_refuse(settings.data_dir):
            tasks.start_soon(told.hear, signals, boot)
            await begin(tasks, parts, supervisor, reconciler)
            if fleet is not None and doors.seat is not None:
                tasks.start_soon(up_fleet.join_edge(fleet, doors.seat, edge.door).serve)
                tasks.start_soon(up_fleet.serve_floating, fleet, doors.seat, place)
            if resolver is not None:
                edge.door.listen_addresses(resolver.book.tell_addresses)
            tasks.start_soon(edge.serve)
            if settings.acme_directory is not None:
                tasks.start_soon(partial(_order_certificates, store, parts, in_fleet=fleet is not None))
            if resolver is not None:
                tasks.start_soon(resolver.serve)
                if fleet is not None:
                    tasks.start_soon(up_fleet.names_of(fleet, resolver.book).serve)
                    tasks.start_soon(fleet.far_names.serve)
        if boot.cancelled_caught:
            _end_within(_STOP_S)
            tasks.cancel_scope.cancel()
            return
        async with _answering(doors, front, fleet, edge.door) as url:
            if doors.public is not None:
                place.announce(url)
            tasks.start_soon(catch_up_of(parts).serve)
            gc.freeze()  # what is here now stays: else the collector walks it again and again, and nobody is answered
            sys.stdout.write(f"ready {url}\n")
            sys.stdout.flush()
            notifier.ready(f"serving {url}")
            _log.info("ready", extra={"url": url, "node": parts.node.id, "driver": deps.driver.name})
            await told.event.wait()
            _log.info("stopping", extra={"signal": told.signal})
            notifier.stopping()
            front.public.stop()
        if settings.ephemeral:
            await destroy_everything(parts)
            await edge.end()
            if resolver is not None:
                await resolver.end()
        _end_within(_STOP_S)
        with suppress(Unavailable):
            await parts.runner.leave()
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _answering(doors: Doors, front: Front, fleet: "InFleet | None", edge: EdgeDoor) -> AsyncIterator[str]:
    """At every door that is there. The URL for clients, or for peers where clients are not answered."""
    async with AsyncExitStack() as stack:
        url = ""
        if front.peers is not None and doors.seat is not None:
            url = await stack.enter_async_context(serving(front.peers, doors.seat.listener, front.tls))
            stack.callback(front.peers.stop)
        if fleet is not None and fleet.kept.app is not None and doors.catalog is not None:
            await stack.enter_async_context(catalog_server.serving(fleet.kept.app, doors.catalog))
        if edge.api_socket is not None:
            listener = bind_for_edge(*edge.api_socket)
            await stack.enter_async_context(serving(BehindEdge(front.public), listener))
        if doors.machines is not None:
            await stack.enter_async_context(serving(front.public, doors.machines))
        if doors.public is not None:
            url = await stack.enter_async_context(serving(front.public, doors.public))
        yield url


def _end_within(seconds: float) -> None:
    """A step may be in a thread that nothing can interrupt, such as one that unpacks a large image. Being killed there
    costs no more than that step, so a stop that was asked for does not wait for it."""
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()
