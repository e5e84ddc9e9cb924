"""What a node is built of: each object once, from the settings and what is on the host. Nothing here serves."""

import os
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hawker.archive.archive import Archive
from hawker.archive.backend import open_backend
from hawker.clock import Clock
from hawker.cluster import peer_hosts, read_cluster
from hawker.deferred import deferred
from hawker.fair.sessions import SessionAtNeed
from hawker.fair.table import BACKUPS, RESTORES, copies, pulls
from hawker.fair.threads import Pool, in_thread
from hawker.feed import edge_version
from hawker.fsm.runner import Runner
from hawker.gpu import parse_gpus
from hawker.host.egress import Egress, parse_allowed
from hawker.host.facts import Facts, cloud_of, disk_of
from hawker.host.luks import Luks
from hawker.host.machine_link import TappedLink, WiredLink
from hawker.host.network import NodeNetwork
from hawker.host.network_policy import NodePacketFilters
from hawker.host.nftables import LinkLimits
from hawker.host.own_user import can_become
from hawker.host.process_guard import ProcessGuard
from hawker.host.uplink import addresses_of, nameservers, own_address, records_of
from hawker.host_ids import service_users
from hawker.ids import MachineId, NodeId, VolumeId, is_snapshot_id
from hawker.image.cache import ImageCache
from hawker.image.limits import MIB, ImageLimits, ImageSettings
from hawker.logs.app_log import LogLimits
from hawker.logs.machine_logs import MachineLogs
from hawker.netpolicy.policies import PolicyEnforcer
from hawker.observe.metrics import MetricsRegistry
from hawker.observe.spans import MakeExporter, SpanOrigin, SpanQueue
from hawker.place import Place
from hawker.record.node import NodeRecord
from hawker.runtime.driver import GuestVolumes, NodeDriver
from hawker.runtime.saved_memory import SavedMemories
from hawker.secret.certificates import Certificates
from hawker.secret.ownership import NameLookup
from hawker.secret.registry_logins import RegistryLogins
from hawker.secret.secret_keys import SecretKeyStore
from hawker.secret.secrets import Secrets
from hawker.settings import Settings
from hawker.store.contract import Store
from hawker.up.wiring import NODE_FLOWS
from hawker.value_object import ValueObject
from hawker.vault import Vault, load_or_create_key
from hawker.version import VERSION
from hawker.volume.disks import Copies, Disks
from hawker.volume.encryption import Ciphers, VolumeKeys
from hawker.volume.guest_disks import GuestCopies, GuestDisks, GuestMovedFiles, VolumeUse
from hawker.volume.host_copies import PARALLEL_COPIES, HostCopies, remove_bases
from hawker.volume.host_disks import HostDisks
from hawker.volume.moved_files import FilePlace, HostMovedFiles, MovedFile
from hawker.volume.table import VolumeTable
from hawker.worker.apps import AppFiles
from hawker.worker.assembly import AssembledWorker, DriverVerdicts, assemble, no_drivers
from hawker.worker.capacity import PromisedDisk, Room
from hawker.worker.changes import Changes
from hawker.worker.edge_door import EdgeDoor, EdgeHost
from hawker.worker.health import NetworkProber
from hawker.worker.host_edge import HostEdge
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.lifecycle.host_adapters import Rootfs
from hawker.worker.lifecycle.machine_networks import HostNetworks
from hawker.worker.lifecycle.root_disks import DiskRootfs
from hawker.worker.lifecycle.rootfs import HostRootfs
from hawker.worker.names import NameBook, ResolverWait, ZoneBook
from hawker.worker.reconcile.host_notices import HostNotices
from hawker.worker.run_owners import RunOwners
from hawker.worker.scrape import HttpFetch
from hawker.worker.table import MachineTable
from hawker.worker.telemetry import Telemetry, Traces

if TYPE_CHECKING:
    from hawker.backup import repository as backups
    from hawker.host import vfio, vmm_user
    from hawker.host.mesh import device, peer_gateway, wireguard
    from hawker.logs import shipping
    from hawker.netpolicy import wireguard_peers
    from hawker.volume import host_backups
else:
    device = deferred("hawker.host.mesh.device")
    peer_gateway = deferred("hawker.host.mesh.peer_gateway")
    wireguard = deferred("hawker.host.mesh.wireguard")
    wireguard_peers = deferred("hawker.netpolicy.wireguard_peers")
    backups = deferred("hawker.backup.repository")
    host_backups = deferred("hawker.volume.host_backups")
    shipping = deferred("hawker.logs.shipping")
    vfio = deferred("hawker.host.vfio")
    vmm_user = deferred("hawker.host.vmm_user")

_LAST_SPANS_S = 1.0


def archive_of(settings: Settings, place: Place) -> Archive | None:
    """The archive to which histories go; whether it is there and takes them is seen later, since nothing may hold up a
    boot."""
    if settings.archive is None:
        return None
    endpoint, region = settings.archive_endpoint, settings.archive_region
    to = open_backend(settings.archive, endpoint=endpoint, region=region, environ=os.environ, base=Path.cwd())
    return Archive(to, place.archive)


def image_settings(settings: Settings) -> ImageSettings:
    return ImageSettings(
        allow_local=settings.allow_local_images,
        insecure_hosts=frozenset(settings.insecure_registries),
        private_hosts=frozenset(settings.private_registries),
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
    network = _network(settings, place, node_id, driver)
    if network is not None:
        await network.boot()
    vault = Vault(load_or_create_key(place.key, clock), clock)
    secrets = Secrets(store, vault, clock)
    keys = VolumeKeys(vault, clock)
    rootfs = _rootfs(settings, place, driver, images)
    ciphers = Ciphers(Luks(discards=settings.volume_discards), keys, node_id)
    disks, copies, file_of = _volumes(settings, place, driver, store, ciphers)
    floor_bytes = settings.free_disk_floor_mib * MIB
    limits = LogLimits(
        most_bytes=settings.app_logs_mib * MIB,
        kept_s=settings.app_logs_kept_s,
        scarce=lambda: disk_of(place.root).free_bytes < floor_bytes,
    )
    table, logs = MachineTable(clock, Changes()), MachineLogs(place.logs, store, driver, clock, limits)
    table.changes.listen(logs.changed)
    return FlowDeps(
        store=store,
        table=table,
        images=images,
        driver=driver,
        rootfs=rootfs,
        networks=_networks(network, settings, place, driver, clock),
        settings=settings,
        clock=clock,
        secrets=secrets,
        secret_keys=SecretKeyStore(store, vault, secrets, clock),
        certificates=Certificates(store, vault, clock, settings.domain, settings.api_hostname),
        logins=RegistryLogins(store, vault, clock),
        enforcer=PolicyEnforcer(store, NodePacketFilters(node_id) if network is not None else None),
        volumes=VolumeTable(clock, settings.deleted_volumes_kept_s),
        disks=disks,
        copies=copies,
        moved_files=None
        if file_of is None
        else _moved_files(settings, node_id, place, driver, store, places_of(file_of, rootfs, place.snapshots, driver)),
        volume_keys=keys,
        backups=_backups(settings, place, clock, keys, file_of),
        gpus=_gpus(settings),
        archive=archive,
        logs=logs,
        files=AppFiles(place.files, store, clock, lambda: disk_of(place.root).free_bytes - floor_bytes),
    )


def _network(settings: Settings, place: Place, node_id: NodeId, driver: NodeDriver) -> NodeNetwork | None:
    if not driver.features.network:
        return None
    kind = TappedLink(vmm_user.user_of) if driver.features.disks else WiredLink(settings.mesh_mtu)
    limits = LinkLimits(
        connections=settings.machine_connections,
        connections_per_s=settings.machine_connections_per_s,
        packets_per_s=settings.machine_packets_per_s,
    )
    egress, api = _egress(settings, place), settings.machine_api
    return NodeNetwork(node_id, place.networks, kind, egress=egress, limits=limits, api=api)


def _egress(settings: Settings, place: Place) -> Egress:
    """The members that were known last are withheld before anybody is heard of."""
    cluster = read_cluster(place.cluster)
    return Egress(
        parse_allowed(settings.egress_allow),
        members=frozenset() if cluster is None else peer_hosts(cluster.peers),
        resolvers=lambda: settings.nameservers or nameservers(),
    )


def _rootfs(settings: Settings, place: Place, driver: NodeDriver, images: ImageCache) -> Rootfs | None:
    """Block files for machines with a kernel of their own, mounts for all others."""
    if driver.features.disks:
        return DiskRootfs(place.root, images, settings.layer_mib)
    return HostRootfs(place.root, images, settings.layer_mib) if driver.features.rootfs else None


def _volumes(
    settings: Settings, place: Place, driver: NodeDriver, store: Store, ciphers: Ciphers
) -> tuple[Disks | None, Copies | None, Callable[[VolumeId], Path] | None]:
    """The same of volumes and their copies, and where a volume's file is."""
    floor_bytes = settings.free_disk_floor_mib * MIB
    if isinstance(driver, GuestVolumes) and driver.features.disks:
        use = VolumeUse(store, driver)
        guest_disks = GuestDisks(place.volumes, driver, use)
        copies = GuestCopies(place.snapshots, guest_disks.file, driver, use, floor_bytes)
        return guest_disks, copies, guest_disks.file
    if not driver.features.mounts:
        return None, None, None
    disks = HostDisks(place.volumes, ciphers)
    return disks, HostCopies(place.snapshots, disks.file, disks.mount_point, floor_bytes), disks.file


def places_of(
    file_of: Callable[[VolumeId], Path], rootfs: Rootfs | None, snapshots: Path, driver: NodeDriver
) -> Callable[[MovedFile], FilePlace]:
    """The places of what moves: files of volumes and of their snapshots, of the layers that machines keep, and of the
    memories of suspended machines."""

    def place_of(file: MovedFile) -> FilePlace:
        if is_snapshot_id(file.id):
            return FilePlace(snapshots / file.id, snapshots / "mounted")  # nobody mounts one
        if file.memory:
            assert isinstance(driver, SavedMemories), "only where memories are files one moves"
            memory = driver.memory_place(MachineId(file.id), file.memory)
            return FilePlace(memory, memory.with_name("mounted"))  # nobody mounts one
        if not file.layer:
            volume = file_of(VolumeId(file.id))
            return FilePlace(volume, volume.parent / "mounted")
        assert rootfs is not None, "only a node that makes root filesystems keeps one"
        return rootfs.kept(MachineId(file.id), file.layer)

    return place_of


def _moved_files(
    settings: Settings,
    node_id: NodeId,
    place: Place,
    driver: NodeDriver,
    store: Store,
    places: Callable[[MovedFile], FilePlace],
) -> HostMovedFiles:
    floor_bytes = settings.free_disk_floor_mib * MIB
    if isinstance(driver, GuestVolumes) and driver.features.disks:
        use = VolumeUse(store, driver)
        return GuestMovedFiles(node_id, place.volumes, places, driver, use, floor_bytes)
    return HostMovedFiles(node_id, place.volumes, places, floor_bytes)


def _backups(
    settings: Settings, place: Place, clock: Clock, keys: VolumeKeys, file_of: Callable[[VolumeId], Path] | None
) -> "host_backups.HostBackups | None":
    """Where backups go; as with an archive, whether it is there is seen when the first one is sent."""
    if settings.backup_url is None or file_of is None:
        remove_bases(place.volumes)
        return None
    floor_bytes = settings.free_disk_floor_mib * MIB
    assert settings.backup_passphrase_file is not None, "settings without one are refused"
    endpoint, region = settings.backup_endpoint, settings.backup_region
    to = open_backend(settings.backup_url, endpoint=endpoint, region=region, environ=os.environ, base=Path.cwd())
    passphrase = partial(backups.read_passphrase, settings.backup_passphrase_file)
    repository = backups.BackupRepository(to, place.backup, passphrase, clock)
    return host_backups.HostBackups(repository, place.snapshots, file_of, keys, clock, floor_bytes)


def _gpus(settings: Settings) -> "vfio.PciDevices | None":
    return vfio.PciDevices([gpu.address for gpu in parse_gpus(settings.gpu_devices)]) if settings.gpu_devices else None


def _networks(
    network: NodeNetwork | None, settings: Settings, place: Place, driver: NodeDriver, clock: Clock
) -> HostNetworks | None:
    if network is None:
        return None
    wait = ResolverWait(place.dns, clock) if settings.resolver else None
    return HostNetworks(network, kernels=driver.features.disks, resolver=wait)


class HostResolver(ValueObject, frozen=True):
    """The resolver of the names that machines of this node ask for, from the first machine on."""

    book: NameBook
    guard: ProcessGuard

    async def serve(self) -> None:
        await self.book.serve(self.guard)

    async def end(self) -> None:
        await self.guard.end()


def resolver_of(parts: AssembledWorker, place: Place) -> HostResolver | None:
    """The resolver of this host; None where machines have no network of their own, or the settings want none."""
    deps = parts.deps
    if deps.networks is None or not deps.settings.resolver:
        return None
    settings, zone = deps.settings, None
    user = _own_user(settings, 1)
    if settings.domain is not None and settings.answers_zone:
        told_zone = settings.domain, settings.dns_zone_listen, settings.shared_addresses, deps.certificates
        zone = ZoneBook(*told_zone, settings.api_hostname or "")
    told = (place.dns, deps.store, parts.changes, deps.clock, parts.node, settings.nameservers, zone, user)
    book = NameBook(*told, api=settings.machine_api)
    return HostResolver(book, ProcessGuard(place.root, place.dns, deps.clock, "dns", user=user))


def edge_of(parts: AssembledWorker, place: Place) -> HostEdge:
    """The edge that serves the ports that machines publish, from the first one on."""
    deps = parts.deps
    user = _own_user(deps.settings, 0)
    host = EdgeHost(
        folder=place.edge,
        addresses=deps.settings.published_at,
        region=parts.node.region,
        own=deps.driver.features.network,
        idle_s=deps.settings.idle_s,
        user=user,
        balancers=deps.settings.edge_proxy_protocol_from,
        drain_s=deps.settings.edge_drain_s,
        processes=deps.settings.edge_processes,
        api_hostname=deps.settings.api_hostname or "",
        domain=deps.settings.domain or "",
    )
    door = EdgeDoor(
        deps.store,
        parts.changes,
        parts.health.of,
        parts.operations,
        deps.edge,
        deps.certificates,
        deps.logs,
        deps.clock,
        host,
    )
    guard = ProcessGuard(place.root, place.edge, deps.clock, "edge", edge_version(host.processes), user)
    return HostEdge(door, guard, deps.networks, deps.clock)


def _own_user(settings: Settings, service: int) -> int | None:
    """Of `service_users`, where we may give rights up for it."""
    user = service_users(settings.userns_ids)[service]
    return user if can_become(user) else None


def traces_of(
    stack: AsyncExitStack, exporter: MakeExporter, settings: Settings, node: NodeRecord, metrics: MetricsRegistry
) -> Traces:
    """Spans of what the engine does; at the end, a collector gets a moment to take the last ones."""
    origin = SpanOrigin(node=node.id, region=node.region, version=VERSION)
    spool = SpanQueue(exporter(settings.otel_endpoint or "", origin), metrics.spans)
    stack.push_async_callback(in_thread, Pool.HOST, spool.close, _LAST_SPANS_S)
    return Traces(spool)


def parts_of(
    deps: FlowDeps,
    node: NodeRecord,
    facts: Facts,
    http: SessionAtNeed,
    metrics: MetricsRegistry,
    traces: Traces | None,
    drivers: DriverVerdicts = no_drivers,
    lacks_reserve: Callable[[], str] = str,
) -> AssembledWorker:
    settings, disk = deps.settings, PromisedDisk(Place(deps.settings.data_dir))
    room = Room(settings, facts, disk)
    shares = {"pulls": pulls(settings.parallel_pulls), "copies": copies(PARALLEL_COPIES)}
    runner = Runner(
        deps.store,
        NODE_FLOWS,
        deps,
        deps.clock,
        queues={**shares, "backups": BACKUPS, "restores": RESTORES, "snapshots": 1},
        owner_of=RunOwners(deps.store),
        epoch=facts.boot_id,
        keep_runs=settings.runs_kept,
        observer=Telemetry(metrics.runs, traces),
    )
    prober, fetch = NetworkProber(http), HttpFetch(http)
    parts = assemble(
        deps,
        runner,
        node,
        room=room,
        prober=prober,
        outward=own_address,
        lookup=NameLookup(addresses_of, records_of),
        fetch=fetch,
        metrics=metrics,
    )
    networked = deps.networks is not None
    ending = deps.certificates.ending
    notices = HostNotices(
        settings,
        networked=networked,
        cloud=cloud_of(),
        lacks_reserve=lacks_reserve,
        ending=ending,
        damaged=parts.verification.damaged,
    )
    rootfs = [deps.rootfs.serve] if isinstance(deps.rootfs, HostRootfs) else []
    logs: list[Callable[[], Coroutine[Any, Any, None]]] = [] if deps.logs is None else [deps.logs.serve]
    if deps.logs is not None and settings.log_endpoint is not None:
        sent = Place(settings.data_dir).logs_sent
        ship = shipping.Shipping(settings.log_endpoint, sent, deps.logs, node, deps.store, deps.clock, http)
        logs.append(ship.serve)
    clocked = (partial(serve, deps.clock) for serve in (disk.serve, *rootfs))
    entrance, facts_of = _entrance(deps)
    duties: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = (*clocked, *logs, *entrance)
    return replace(parts, drivers=drivers, notices=notices, duties=duties, gateway=facts_of)


def _entrance(
    deps: FlowDeps,
) -> "tuple[list[Callable[[], Coroutine[Any, Any, None]]], Callable[[], wireguard_peers.GatewayFacts] | None]":
    """Where people's computers enter private networks: none without the setting, and where machines have none."""
    settings, networks = deps.settings, deps.networks
    if settings.wireguard_listen is None or not isinstance(networks, HostNetworks):
        return [], None
    place = Place(settings.data_dir)
    place.mesh.mkdir(mode=0o700, exist_ok=True)
    key, port = wireguard.own_key(place.mesh / "peers"), int(settings.wireguard_listen.rpartition(":")[2])
    choice = tuple(device.MeshKind) if settings.mesh in ("auto", "off") else (device.MeshKind(settings.mesh),)
    log = place.mesh / "peers.log"
    gateway = peer_gateway.PeerGateway(networks.host, key, port, settings.mesh_mtu, log, choice)
    facts = wireguard_peers.GatewayFacts(settings.wireguard_listen, key.public)
    return [wireguard_peers.PeerKeeper(deps.store, gateway, deps.clock).serve], lambda: facts
