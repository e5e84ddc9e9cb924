"""Makes the handlers of one node of the objects of its worker, and binds them to the rows of the route table."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from hawker.api.handlers import Handlers
from hawker.catalog.contract import Catalog
from hawker.deferred import deferred
from hawker.handlers.apps import AppFileHandlers, AppHandlers, IpHandlers
from hawker.handlers.catalog import CatalogHandlers
from hawker.handlers.certificates import CertificateHandlers, PlatformCertificateHandlers
from hawker.handlers.images import ImageHandlers, RegistryHandlers
from hawker.handlers.inside import InsideHandlers
from hawker.handlers.logs import AppLogHandlers, AuditHandlers
from hawker.handlers.machines import HistoryHandlers, MachineFinder, MachineHandlers, MetadataHandlers
from hawker.handlers.metrics import MeasuredFleet, MetricsHandlers
from hawker.handlers.moves import MoveHandlers
from hawker.handlers.network_policies import PolicyHandlers
from hawker.handlers.node import AgentFindings, DoctorHandlers, NodeHandlers, OwnInfo
from hawker.handlers.operations import LeaseHandlers, MemoryHandlers, OperationHandlers
from hawker.handlers.orgs import OrgHandlers, QuotaHandlers
from hawker.handlers.placements import PlacementHandlers
from hawker.handlers.ports import MachinePortHandlers, PublishedPortHandlers
from hawker.handlers.runs import RunHandlers
from hawker.handlers.secrets import SecretHandlers, SecretKeyHandlers
from hawker.handlers.volumes import BackupHandlers, SnapshotHandlers, VolumeHandlers
from hawker.handlers.wireguard_peers import WireguardHandlers
from hawker.ids import NodeId
from hawker.place import Place
from hawker.value_object import ValueObject
from hawker.worker.assembly import AssembledWorker, reconciler_of
from hawker.worker.bids import Bidder
from hawker.worker.memory import MachineMemory
from hawker.worker.moves.unit import memories_of
from hawker.worker.order import AppBundles, NoAppBundles, OrderHandlers, OrderIntake, OrderLedger

if TYPE_CHECKING:
    from hawker.worker import unique_zones
else:
    unique_zones = deferred("hawker.worker.unique_zones")


class FleetSide(ValueObject, frozen=True, kw_only=True):
    """The parts of its fleet that the worker's answers take: nothing on a node that is alone. In a fleet (`in_fleet`)
    other nodes keep the numbers of networks, too. `wrong_clocks` are nodes, and what is wrong with the clock of each;
    `agent_findings` tells what is wrong with an agent that keeps the catalog."""

    catalog: Catalog | None = None
    in_fleet: bool = False
    fleet: MeasuredFleet | None = None
    bundles: AppBundles | None = None
    wrong_clocks: Callable[[], Iterable[tuple[NodeId, str]]] = tuple
    agent_findings: AgentFindings | None = None


ALONE = FleetSide()


def node_info_of(worker: AssembledWorker) -> OwnInfo:
    deps = worker.deps
    return OwnInfo(
        node=worker.node,
        store=deps.store,
        driver=deps.driver.name,
        drivers=worker.drivers,
        room=worker.room,
        started_at=worker.started_at,
        memories=memories_of(deps),
        edge_processes=deps.settings.edge_processes,
    )


def intake_of(worker: AssembledWorker, ledger: OrderLedger, bundles: AppBundles | None = None) -> OrderIntake:
    """The intake at which this worker's orders become machines."""
    return OrderIntake(
        worker.node,
        worker.deps,
        worker.apps,
        worker.admission,
        worker.runner,
        ledger,
        bundles or NoAppBundles(),
    )


def worker_handlers(worker: AssembledWorker, side: FleetSide = ALONE) -> Handlers:
    """The handlers of everything that this worker answers."""
    handlers = Handlers()
    for bind in (_bind_machines, _bind_volumes, _bind_apps):
        bind(worker, handlers)
    _bind_node(worker, side, handlers)
    return handlers


def _bind_machines(worker: AssembledWorker, handlers: Handlers) -> None:
    deps, runner = worker.deps, worker.runner
    store, table, driver, clock = deps.store, deps.table, deps.driver, deps.clock
    machines = MachineFinder(store, table, worker.apps)
    MachineHandlers(worker).bind(handlers)
    OperationHandlers(machines, store, table, driver, clock, worker.operations, worker.changes).bind(handlers)
    HistoryHandlers(store, deps.archive).bind(handlers)
    handlers.add(
        InsideHandlers(machines, store, table, driver, clock, worker.meter), MachinePortHandlers(machines, driver)
    )
    LeaseHandlers(machines, store, table, clock).bind(handlers)
    MemoryHandlers(machines, clock, MachineMemory(store, table, driver, clock, runner, worker.room)).bind(handlers)
    MetadataHandlers(machines, store, table, deps.enforcer).bind(handlers)
    addresses = deps.settings.published_at
    PublishedPortHandlers(worker.node, store, worker.apps, machines, deps.edge, addresses).bind(handlers)


def _bind_volumes(worker: AssembledWorker, handlers: Handlers) -> None:
    deps = worker.deps
    VolumeHandlers(
        deps.store,
        deps.settings,
        deps.clock,
        deps.volumes,
        deps.disks,
        deps.volume_keys,
        worker.node,
        worker.apps,
        worker.volumes,
        worker.origins,
        worker.backups,
        worker.soft_deletes,
        deps.table,
        lambda: unique_zones.UniqueZones(deps, worker.origins, worker.moves),
    ).bind(handlers)
    SnapshotHandlers(deps.store, worker.snapshots).bind(handlers)
    BackupHandlers(deps.store, deps.clock, worker.apps, worker.backups).bind(handlers)
    handlers.add(MoveHandlers(worker.node.id, worker.moves, worker.scheduled_moves, worker.runner, deps.clock))


def _bind_apps(worker: AssembledWorker, handlers: Handlers) -> None:
    deps, apps = worker.deps, worker.apps
    AppHandlers(deps.store, deps.table, worker.runner, worker.operations, apps, deps.certificates).bind(handlers)
    SecretKeyHandlers(deps.store, deps.clock, deps.secrets, deps.secret_keys, apps).bind(handlers)
    SecretHandlers(deps.store, deps.secrets, apps).bind(handlers)
    handlers.add(OrgHandlers(deps.store, apps))
    handlers.add(AppLogHandlers(worker.node, deps.store, apps, deps.clock, deps.logs))
    handlers.add(AppFileHandlers(deps.store, apps, worker.quotas, deps.files))
    IpHandlers(deps.store, apps, worker.ips).bind(handlers)
    CertificateHandlers(deps.store, deps.clock, apps, worker.ips, deps.certificates, deps.settings, worker.lookup).bind(
        handlers
    )
    PolicyHandlers(deps.store, deps.enforcer, apps, worker.policies).bind(handlers)


def _bind_node(worker: AssembledWorker, side: FleetSide, handlers: Handlers) -> None:
    deps, runner = worker.deps, worker.runner
    NodeHandlers(worker.node, node_info_of(worker), deps.clock).bind(handlers)
    PlacementHandlers(deps.store, deps.table, deps.driver, deps.settings, worker.node, worker.room).bind(handlers)
    ledger = OrderLedger(deps.store, deps.clock, deps.table)
    intake, show = intake_of(worker, ledger, side.bundles), MachineHandlers(worker).show
    OrderHandlers(intake, ledger, Bidder(worker), worker.operations, show).bind(handlers)
    MetricsHandlers(
        deps.store,
        deps.table,
        deps.archive,
        runner,
        worker.room,
        worker.metrics,
        worker.scraper,
        side.fleet,
        deps.networks,
        deps.edge,
        deps.logs,
    ).bind(handlers)
    registries = deps.settings.listed_registries
    images = ImageHandlers(deps.store, deps.images, deps.rootfs, deps.logins, registries)
    handlers.add(WireguardHandlers(worker.node.id, deps.store, deps.clock, worker.gateway, in_fleet=side.in_fleet))
    about_logins = RegistryHandlers(worker.node.id, deps.logins, deps.images, registries)
    handlers.add(RunHandlers(runner), images, about_logins)
    reconciler = reconciler_of(worker)
    doctor = DoctorHandlers(
        deps.store,
        deps.settings,
        deps.clock,
        reconciler,
        side.wrong_clocks,
        worker.notices,
        deps.edge,
        side.agent_findings,
    )
    doctor.bind(handlers)
    CatalogHandlers(side.catalog).bind(handlers)
    QuotaHandlers(deps.store, worker.quotas).bind(handlers)
    PlatformCertificateHandlers(deps.clock, deps.certificates).bind(handlers)
    handlers.add(AuditHandlers(Place(deps.settings.data_dir).audit))
