"""What a worker is made of, as its handlers share it. Built once, by `up`."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from anyio.abc import TaskGroup

from hawker.fsm.runner import Runner
from hawker.history.archivist import Archivist
from hawker.netpolicy.policies import Policies
from hawker.node import Capacity
from hawker.observe.metrics import MetricsRegistry
from hawker.quota.quotas import Quotas, UsageCount, no_files
from hawker.record.node import NodeRecord
from hawker.runtime.driver_probe import DriverVerdict
from hawker.secret.ownership import NameLookup
from hawker.value_object import ValueObject
from hawker.volume.backup_schedule import BackupSchedule
from hawker.volume.backup_verification import LOOKS, BackupVerification
from hawker.volume.backups import VolumeBackups
from hawker.volume.maintenance import Growth, Maintenance, Trims
from hawker.volume.operations import SoftDeletes, Volumes
from hawker.volume.restore import VolumeClones
from hawker.volume.snapshots import Snapshots
from hawker.worker.admission import Admission
from hawker.worker.apps import AppTable
from hawker.worker.calendar import Calendar
from hawker.worker.changes import Changes
from hawker.worker.containers.supervisor import ContainerSupervisors
from hawker.worker.health import HealthChecks, Prober
from hawker.worker.ip_assignments import IpAllocator
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.moves.going_back import MovesBack
from hawker.worker.moves.orders import MachineMoves
from hawker.worker.moves.scheduled import ScheduledMoves
from hawker.worker.moves.sweep import MoveSweep
from hawker.worker.operations import Operations
from hawker.worker.reconcile import Reconciler
from hawker.worker.reconcile.detect import Look
from hawker.worker.reconcile.findings import Finding
from hawker.worker.reconcile.gone import GoneMachines
from hawker.worker.reconcile.repair import Repairs
from hawker.worker.reconcile.volumes import VolumeLook, VolumeRepairs
from hawker.worker.restored import InstanceAdoption
from hawker.worker.scrape import Fetch, Scraper
from hawker.worker.supervisor import ExitHandler, Supervisor
from hawker.worker.usage import UsageMeter

if TYPE_CHECKING:
    from hawker.netpolicy.wireguard_peers import GatewayFacts

DriverVerdicts: TypeAlias = Callable[[], Awaitable[tuple[DriverVerdict, ...]]]


async def no_drivers() -> tuple[DriverVerdict, ...]:
    return ()


class AssembledWorker(ValueObject, frozen=True):
    """`room` is what the host has to sell, read when asked. `started_at` is Unix seconds. `drivers` is what was
    found of each, looked at when asked; `gateway` is where people's computers enter private
    networks; `notices` is what the host shows an operator when asked; `duties` serve for as long as the node does."""

    node: NodeRecord
    deps: FlowDeps
    runner: Runner[FlowDeps]
    admission: Admission
    operations: Operations
    apps: AppTable
    volumes: Volumes
    snapshots: Snapshots
    origins: VolumeClones
    backups: VolumeBackups
    verification: BackupVerification
    soft_deletes: SoftDeletes
    moves: MachineMoves
    scheduled_moves: ScheduledMoves
    moves_back: MovesBack
    health: HealthChecks
    container_supervisors: ContainerSupervisors
    changes: Changes
    room: Callable[[], Capacity]
    ips: IpAllocator
    lookup: NameLookup
    quotas: Quotas
    policies: Policies
    metrics: MetricsRegistry
    scraper: Scraper
    meter: UsageMeter
    started_at: float
    drivers: DriverVerdicts = no_drivers
    gateway: "Callable[[], GatewayFacts] | None" = None
    notices: Callable[[], Iterable[Finding]] = tuple
    duties: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()


# How a worker is joined and how it begins: for the daemon, and for the simulator that plays it.


def assemble(
    deps: FlowDeps,
    runner: Runner[FlowDeps],
    node: NodeRecord,
    *,
    room: Callable[[], Capacity],
    prober: Prober,
    outward: Callable[[int], str | None],
    lookup: NameLookup,
    fetch: Fetch,
    metrics: MetricsRegistry,
    moves: type[MachineMoves] = MachineMoves,
) -> AssembledWorker:
    """Builds everything that handlers are given."""
    store, clock, changes = deps.store, deps.clock, deps.table.changes
    deps.runs.meet(runner.accept)
    deps.room.meet(room)
    quotas = quotas_of(deps)
    volumes = Volumes(store, deps.settings, deps.volumes, deps.disks, runner, room, quotas)
    snapshots = Snapshots(store, deps.driver, clock, deps.copies, runner, quotas)
    meter = UsageMeter(store, node.id, deps.driver, deps.networks)
    admission = admission_of(deps, room, quotas)
    orders, operations = moves(node, deps, room), operations_of(deps, runner, admission)
    return AssembledWorker(
        node=node,
        deps=deps,
        runner=runner,
        admission=admission,
        operations=operations,
        apps=AppTable(store, clock, deps.volumes),
        volumes=volumes,
        snapshots=snapshots,
        origins=VolumeClones(store, deps.driver, runner, volumes, snapshots),
        backups=VolumeBackups(store, clock, deps.backups, runner, volumes, snapshots),
        verification=BackupVerification(store, deps.settings, clock, deps.backups),
        soft_deletes=SoftDeletes(store, clock, deps.volumes, volumes),
        moves=orders,
        scheduled_moves=ScheduledMoves(deps, orders),
        moves_back=MovesBack(deps, orders, operations),
        health=HealthChecks(store, clock, changes, prober, None if deps.logs is None else deps.logs.say),
        container_supervisors=ContainerSupervisors(store, deps.table, deps.driver, clock, changes, prober),
        changes=changes,
        room=room,
        policies=Policies(store, clock),
        ips=IpAllocator(store, clock, deps.settings, node.region, outward, quotas),
        lookup=lookup,
        quotas=quotas,
        metrics=metrics,
        scraper=Scraper(store, node.id, fetch, meter),
        meter=meter,
        started_at=clock.now(),
    )


def quotas_of(deps: FlowDeps) -> Quotas:
    files_bytes = deps.files.bytes_of if deps.files is not None else no_files
    count = UsageCount(deps.settings.layer_mib, deps.settings.logs_mib, files_bytes)
    return Quotas(deps.store, deps.clock, count)


def admission_of(deps: FlowDeps, room: Callable[[], Capacity], quotas: Quotas) -> Admission:
    return Admission(deps.table, deps.driver, deps.settings, room, quotas)


def operations_of(deps: FlowDeps, runner: Runner[Any], admission: Admission) -> Operations:
    suspend = deps.driver.features.suspend
    return Operations(
        deps.store,
        deps.table,
        deps.driver.name,
        None if suspend is None else suspend.value,
        deps.secrets,
        deps.clock,
        runner,
        admission,
        deps.driver.features.disks,
        deps.settings.volume_encryption == "wished",
    )


def supervisor_of(
    worker: AssembledWorker, made: type[Supervisor] = Supervisor, exits: type[ExitHandler] = ExitHandler
) -> Supervisor:
    deps = worker.deps
    return made(deps.store, deps.clock, worker.changes, exit_handler_of(worker, exits), adoption_of(worker))


def exit_handler_of(worker: AssembledWorker, made: type[ExitHandler] = ExitHandler) -> ExitHandler:
    deps = worker.deps
    return made(deps.store, deps.table, deps.driver, deps.clock, worker.runner)


def adoption_of(worker: AssembledWorker) -> InstanceAdoption:
    deps = worker.deps
    return InstanceAdoption(deps.store, deps.table, deps.driver, deps.settings, deps.clock)


def reconciler_of(worker: AssembledWorker) -> Reconciler:
    deps, runner, gone = worker.deps, worker.runner, GoneMachines()
    look = Look(
        deps.store,
        lambda digest: deps.images.find(digest) is not None,
        deps.driver,
        deps.rootfs,
        deps.networks,
        deps.settings,
        deps.clock,
        deps.enforcer,
        deps.archive,
        VolumeLook(deps.store, deps.driver, deps.disks),
        gone,
    )
    repairs = Repairs(
        deps.store,
        deps.table,
        deps.driver,
        deps.rootfs,
        deps.networks,
        deps.enforcer,
        runner,
        exit_handler_of(worker),
        adoption_of(worker),
        VolumeRepairs(deps.store, deps.disks, runner),
    )
    return Reconciler(
        deps.store,
        deps.table,
        deps.settings,
        deps.clock,
        deps.rootfs,
        deps.networks,
        deps.archive,
        runner,
        look,
        repairs,
        gone,
    )


async def begin(
    tasks: TaskGroup, parts: AssembledWorker, supervisor: Supervisor, reconciler: Reconciler | None
) -> None:
    """Take up what the last daemon left, before the first call is answered: exits that were missed are recorded before
    runs are resumed, or a run would take a machine for running that has ended. The reconciler comes last, since it
    mends what no run is at; without one nobody tidies up after a flow. All end with the task group."""
    deps = parts.deps
    if deps.copies is not None and deps.disks is not None:
        await deps.copies.mend(await deps.disks.mounted())
    for duty in parts.duties:
        tasks.start_soon(duty)
    await tasks.start(supervisor.serve)
    await tasks.start(parts.runner.serve)
    await tasks.start(parts.health.serve)
    await tasks.start(parts.container_supervisors.serve)
    await tasks.start(Calendar(deps.store, deps.clock, parts.operations, parts.changes).serve)
    if deps.copies is not None:
        keeper = Maintenance(deps.store, deps.clock, parts.snapshots, parts.soft_deletes)
        tasks.start_soon(keeper.serve, deps.settings.reconcile_every_s)
    if deps.backups is not None and deps.settings.backup_every_s:
        schedule = BackupSchedule(deps.store, deps.settings, deps.clock, parts.backups, deps.backups)
        tasks.start_soon(schedule.serve, deps.settings.reconcile_every_s)
    if deps.backups is not None and deps.settings.backup_url is not None and deps.settings.backup_verify_percent:
        tasks.start_soon(parts.verification.serve, LOOKS * deps.settings.reconcile_every_s)
    if deps.files is not None:
        tasks.start_soon(deps.files.serve)
    tasks.start_soon(MoveSweep(deps, parts.scheduled_moves).serve, deps.settings.reconcile_every_s)
    if deps.moved_files is not None and deps.settings.volume_discards:
        tasks.start_soon(Trims(deps.store, deps.clock, deps.moved_files).serve, deps.settings.reconcile_every_s)
    if deps.disks is not None:
        tasks.start_soon(
            Growth(deps.store, deps.settings, deps.clock, deps.disks, parts.volumes).serve,
            deps.settings.reconcile_every_s,
        )
    if reconciler is not None:
        tasks.start_soon(reconciler.serve, deps.settings.reconcile_every_s)
    if deps.archive is not None:
        archivist = Archivist(deps.store, deps.clock, parts.runner, deps.archive)
        tasks.start_soon(archivist.serve, deps.settings.reconcile_every_s)
    tasks.start_soon(parts.moves_back.serve)
