"""Looks, and changes nothing: store against host in both directions.

What is stray: the host is listed before the records are read, and once more afterwards. A record is written before
anything of its machine is made on the host and removed after everything is gone, so what was listed both times and has
no record in between is stray.
What is lost: the records are read before the host is looked at and once more afterwards. A record that was the same
both times, with no run at its machine, promised all the while what the host did not have.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set

from hawker.archive.archive import Archive
from hawker.clock import Clock
from hawker.containment import UNFORESEEN, contained
from hawker.errors import HawkerError
from hawker.fsm import journal
from hawker.fsm.run import Run
from hawker.history.machine_history import histories_waiting
from hawker.ids import Digest, MachineId, first_ulid
from hawker.log import bind
from hawker.machine import OFF, SETTLED, WITH_INSTANCE, State
from hawker.netpolicy.policies import PolicyEnforcer
from hawker.netpolicy.policies import by_app as policies_by_app
from hawker.record.machine import ARCHIVED, MACHINES, MachineRecord, machine_resource
from hawker.record.move import AWAITED, INCOMING
from hawker.record.node import NODE
from hawker.runtime.driver import ALIVE, Inspection, LostPart, NodeDriver, Phase
from hawker.settings import Settings
from hawker.store.contract import Reader, Store
from hawker.value_object import ValueObject
from hawker.worker.images import digests_of
from hawker.worker.lifecycle.host_adapters import Networks, Rootfs
from hawker.worker.lifecycle.start import runs
from hawker.worker.reconcile import store_check
from hawker.worker.reconcile.findings import Finding, Kind
from hawker.worker.reconcile.gone import GoneMachine, GoneMachines
from hawker.worker.reconcile.volumes import VolumeLook
from hawker.worker.table import all_machines

_log = bind("hawker.reconcile")

LATE_S = 3600.0

_PARTS: Mapping[LostPart, tuple[Kind, str]] = {
    LostPart.CGROUP: (Kind.LOST_CGROUP, "its control group is missing or empty: nothing limits the machine"),
    LostPart.RUNTIME_STATE: (Kind.LOST_RUNTIME_STATE, "the runtime does not know the machine's container"),
}


class _Listed(ValueObject, frozen=True):
    """Of which machines something is on the host, by what it is."""

    instances: list[MachineId]
    networks: list[MachineId]
    directories: list[MachineId]
    links: tuple[str, ...]
    mounts: tuple[str, ...]

    def names(self) -> frozenset[tuple[Kind, str]]:
        """Everything, as a finding would call it if it were stray."""
        kinds: tuple[tuple[Kind, Iterable[str]], ...] = (
            (Kind.STRAY_INSTANCE, self.instances),
            (Kind.FOREIGN_INSTANCE, self.instances),
            (Kind.STRAY_NETWORK, self.networks),
            (Kind.STRAY_DIRECTORY, self.directories),
            (Kind.STRAY_INTERFACE, self.links),
            (Kind.STRAY_MOUNT, self.mounts),
        )
        return frozenset((kind, name) for kind, names in kinds for name in names)


class Books(ValueObject, frozen=True):
    """The records, by id, and the runs that have not ended."""

    machines: Mapping[MachineId, MachineRecord]
    opened: tuple[Run, ...]
    gone: Mapping[MachineId, GoneMachine]
    """The machines that were destroyed and are still remembered."""
    awaited: frozenset[MachineId]  # on their way here: what was copied of them may be in its place already

    @property
    def busy(self) -> frozenset[str]:
        """Machines with a run, also one that is not due yet: a machine between two tries is not forsaken."""
        return frozenset(run.resource.id for run in self.opened if run.resource.kind == "machine")


class Look:
    """One comparison of store and host. Raises what the host says when it cannot be looked at."""

    def __init__(
        self,
        store: Store,
        has_image: Callable[[Digest], bool],
        driver: NodeDriver,
        rootfs: Rootfs | None,
        networks: Networks | None,
        settings: Settings,
        clock: Clock,
        enforcer: PolicyEnforcer,
        archive: Archive | None,
        volumes: VolumeLook,
        gone: GoneMachines,
    ) -> None:
        self._store = store
        self._has_image = has_image
        self._driver = driver
        self._rootfs = rootfs
        self._networks = networks
        self._settings = settings
        self._clock = clock
        self._enforcer = enforcer
        self._archive = archive
        self._volumes = volumes
        self._gone = gone

    async def findings(self) -> list[Finding]:
        listed = await self._list()
        with self._store.snapshot() as reader:
            read = await self._read(reader)
            wrong = await store_check.audit(reader, read.machines.values(), read.gone)
        return [
            *await self._strays(listed, read),
            *_stray_runs(read),
            *_forsaken(read),
            *await self._instances(read),
            *await self._lost(read),
            *await self._lost_policies(read),
            *self._lost_images(read),
            *await self._volumes.findings(),
            *wrong,
            *self._late_histories(read.gone),
        ]

    async def _list(self) -> _Listed:
        return _Listed(
            instances=await self._driver.list(),
            networks=await self._networks.list() if self._networks is not None else [],
            directories=await self._rootfs.list() if self._rootfs is not None else [],
            links=await self._networks.links() if self._networks is not None else (),
            mounts=await self._rootfs.strays() if self._rootfs is not None else (),
        )

    async def _read(self, reader: Reader) -> Books:
        """Lets others run in between: `reader` must not change."""
        machines: dict[MachineId, MachineRecord] = {}
        async for record in all_machines(reader):
            machines[record.id] = record
        coming = (each for _, each in reader.scan(INCOMING) if each.machine is not None and each.state in AWAITED)
        return Books(
            machines=machines,
            opened=tuple(journal.open_runs(reader)),
            gone=await self._gone.read(reader),
            awaited=frozenset(each.machine.id for each in coming if each.machine is not None),
        )

    def _late_histories(self, gone: Mapping[MachineId, GoneMachine]) -> list[Finding]:
        """That the archive, not one moment, is what they wait for: long after they might have been dropped."""
        archive = self._archive
        if archive is None or not histories_waiting(self._store):
            return []
        before = self._clock.now() - self._settings.destroyed_kept_s - LATE_S
        old = (machine_id for machine_id, each in gone.items() if each.head.updated_at < before)
        late = sum(self._store.get(ARCHIVED, machine_id) is None for machine_id in old)
        return [Finding(Kind.LATE_HISTORIES, archive.name, f"{late} histories wait for the archive")] if late else []

    # What belongs to no machine.

    async def _strays(self, listed: _Listed, read: Books) -> list[Finding]:
        instances = [each for each in listed.instances if each not in read.awaited]
        foreign = await self._foreign([each for each in instances if each not in read.machines])
        known = read.machines.keys() | foreign.keys()
        kinds = {
            Kind.STRAY_INSTANCE: (instances, "no machine has it"),
            Kind.STRAY_NETWORK: (listed.networks, "a network namespace that belongs to no machine"),
            Kind.STRAY_DIRECTORY: (
                [each for each in listed.directories if each not in read.awaited],
                "a directory that belongs to no machine",
            ),
        }
        found = [
            Finding(kind, each, what) for kind, (seen, what) in kinds.items() for each in seen if each not in known
        ]
        found += [Finding(Kind.STRAY_MOUNT, path, "it belongs to no machine and no image") for path in listed.mounts]
        found += [Finding(Kind.STRAY_INTERFACE, name, "of no machine") for name in self._stray_links(listed, known)]
        found += [Finding(Kind.FOREIGN_INSTANCE, each, what) for each, what in foreign.items()]
        there = (await self._list()).names() if found else frozenset()
        return [each for each in found if (each.kind, each.about) in there]

    def _stray_links(self, listed: _Listed, known: Set[MachineId]) -> list[str]:
        """One of a machine whose namespace is a finding itself goes with that."""
        networks = self._networks
        if networks is None:
            return []
        names = {networks.link_of(each) for each in (*known, *listed.networks)}
        return [name for name in listed.links if name not in names]

    async def _foreign(self, strays: Iterable[MachineId]) -> dict[MachineId, str]:
        """Those that are older than this store: another one made them, which was lost or moved away, and which can
        have them back. What they are is said in a sentence. One that cannot be asked may be older."""
        node = self._store.get(NODE, "self")
        found: dict[MachineId, str] = {}
        for machine_id in strays if node is not None else ():
            assert node is not None
            seen = await self._inspect(machine_id)
            if isinstance(seen, str):
                found[machine_id] = f"it cannot be inspected: {seen}"
            elif seen.instance_id is not None and seen.instance_id < first_ulid(node.created_at):
                how = "runs" if seen.phase in ALIVE else "ended"
                found[machine_id] = f"it {how}; another store, used here before, created it"
        return found

    async def _inspect(self, machine_id: MachineId) -> Inspection | str:
        """What the driver sees of the machine, or why it cannot be asked."""
        with contained("a machine is inspected", machine=machine_id):
            try:
                return await self._driver.inspect(machine_id)
            except (HawkerError, OSError) as error:
                return str(error)
        return UNFORESEEN

    # What the records do not know, or know wrongly.

    async def _instances(self, read: Books) -> list[Finding]:
        alive = await self._driver.running()
        orphaned = await self._driver.orphans()
        found: list[Finding] = []
        for machine_id, record in read.machines.items():
            if machine_id in read.busy or record.state not in SETTLED:
                continue
            if runs(record) == (machine_id in alive) and machine_id not in orphaned:
                continue
            seen = await self._inspect(machine_id)
            if isinstance(seen, str):
                _log.error("cannot inspect", extra={"machine": machine_id, "error": seen})
            elif self.unchanged(record):
                found += _lost_instance(record, seen) if runs(record) else _unrecorded(record, seen)
        return found

    # What running machines have lost without ending.

    async def _lost(self, read: Books) -> list[Finding]:
        healthy = {
            each: record
            for each, record in read.machines.items()
            if runs(record) and record.state in WITH_INSTANCE and each not in read.busy
        }
        found = await self._lost_rootfs(read, healthy) + await self._lost_networks(healthy) + await self._held(healthy)
        for machine_id, parts in (await self._driver.lost(healthy.keys())).items():
            found += [Finding(_PARTS[part][0], machine_id, _PARTS[part][1]) for part in sorted(parts)]
        return [each for each in found if self._still(read, each)]

    async def _lost_rootfs(self, read: Books, healthy: Mapping[MachineId, MachineRecord]) -> list[Finding]:
        if self._rootfs is None:
            return []
        mounted = await self._rootfs.visible()
        off = [each for each, record in read.machines.items() if record.state in OFF and each not in read.busy]
        return [
            *(Finding(Kind.LEFT_MOUNTED, each, "the machine is off, but its root filesystem is mounted")
              for each in off if each in mounted),
            *(Finding(Kind.LOST_ROOTFS, each, "the machine runs, but its root filesystem is not mounted on the host")
              for each in healthy if each not in mounted),
        ]  # fmt: skip

    async def _held(self, healthy: Mapping[MachineId, MachineRecord]) -> list[Finding]:
        """What is suspended is held still, and nothing else is."""
        still = await self._driver.suspended()
        suspended = {each for each, record in healthy.items() if record.state is State.SUSPENDED}
        return [
            *(Finding(Kind.NOT_HELD, each, "the machine is suspended, but its instance runs")
              for each in sorted(suspended - still)),
            *(Finding(Kind.LEFT_HELD, each, "the machine is started, but its instance is frozen")
              for each in sorted(still & healthy.keys() - suspended)),
        ]  # fmt: skip

    async def _lost_networks(self, healthy: Mapping[MachineId, MachineRecord]) -> list[Finding]:
        networks = self._networks
        if networks is None:
            return []
        lost = await networks.lost({each: record.network for each, record in healthy.items()})
        found = [Finding(Kind.LOST_NETWORK, each, what) for each, what in lost.items()]
        if not await networks.guarded():
            found.append(
                Finding(Kind.LOST_RULES, "host", "the node's packet rules are missing: networks are not isolated")
            )
        return found

    async def _lost_policies(self, read: Books) -> list[Finding]:
        """A machine that is being made or removed has its filter made or removed by its run."""
        with self._store.snapshot() as reader:
            apps = policies_by_app(reader).keys()
        moving = any(record.app in apps for each, record in read.machines.items() if each in read.busy)
        if moving or await self._enforcer.stand():
            return []
        return [Finding(Kind.LOST_POLICIES, "host", "the packet rules differ from the network policies")]

    def _still(self, read: Books, finding: Finding) -> bool:
        record = read.machines.get(MachineId(finding.about))
        return record is None or self.unchanged(record)

    def unchanged(self, record: MachineRecord) -> bool:
        """Whether the machine's record still is this one, and no run is at the machine."""
        store = self._store
        return store.get(MACHINES, record.id) == record and not has_run(store, record.id)

    def _lost_images(self, read: Books) -> list[Finding]:
        """Whatever a machine is started from next."""
        settled = (each for each in read.machines.values() if each.id not in read.busy and each.state in SETTLED)
        users = Counter(digest for record in settled for digest in digests_of(record))
        missing = {digest: count for digest, count in users.items() if not self._has_image(digest)}
        noun = {1: "1 machine needs it"}
        return [
            Finding(Kind.LOST_IMAGE, digest, f"{noun.get(count, f'{count} machines need it')} to start again")
            for digest, count in missing.items()
        ]


def has_run(reader: Reader, machine_id: MachineId) -> bool:
    return next(journal.newest(reader, machine_resource(machine_id), opened=True), None) is not None


def _stray_runs(read: Books) -> list[Finding]:
    """Of machines that were never there, or are gone for good. One that ends a machine may just be ending itself."""
    known = read.machines.keys() | read.gone.keys()
    runs = [run for run in read.opened if run.resource.kind == "machine" and run.resource.id not in known]
    return [Finding(Kind.STRAY_RUN, run.id, f"{run.flow} of machine {run.resource.id}, which is gone") for run in runs]


def _forsaken(read: Books) -> list[Finding]:
    return [
        Finding(Kind.FORSAKEN, record.id, f"it is {record.state.value} and no run is at it")
        for record in read.machines.values()
        if record.state not in SETTLED and record.id not in read.busy
    ]


def _lost_instance(record: MachineRecord, seen: Inspection) -> list[Finding]:
    if seen.phase in ALIVE or record.running is None:
        return []
    what = "it has ended" if seen.phase is Phase.EXITED else "it is not on the host"
    detail = f"the record says that {record.running.instance_id} runs; {what}"
    return [Finding(Kind.LOST_INSTANCE, record.id, detail)]


def _unrecorded(record: MachineRecord, seen: Inspection) -> list[Finding]:
    if seen.phase in ALIVE:
        what = f"{seen.instance_id} runs; the record says that the machine is {record.state.value}"
        return [Finding(Kind.UNRECORDED_INSTANCE, record.id, what)]
    if seen.phase is Phase.ABSENT:
        what = "the machine is off, and a process of it that has lost its directory runs"
        return [Finding(Kind.STRAY_INSTANCE, record.id, what)]
    return []
