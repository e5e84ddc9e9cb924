"""The quotas of a node: which apply to an app, and whether it may have more. Asked inside the transaction that gives
it more, so on one node they are exact. What the subject has here is counted from the records in the reader's own
moment; what it has on other nodes is what they told last.
"""

from collections.abc import Callable, Iterable, Mapping

from hawker.app import DEFAULT_ORG
from hawker.clock import Clock
from hawker.config import MachineConfig
from hawker.config.effective import guest, rootfs_mib, temp_dirs
from hawker.errors import QuotaExceeded, Unprocessable
from hawker.ids import AppName
from hawker.record.app import APPS, IPS
from hawker.record.machine import BY_APP, MACHINES, MachineRecord
from hawker.record.org import QUOTAS, Amount, QuotaRecord, QuotaRule
from hawker.record.volume import MIB_PER_GB, SNAPSHOTS, VOLUMES, VOLUMES_BY_APP, SnapshotRecord
from hawker.store.contract import Reader, Store, Tx
from hawker.value_object import ValueObject

_MIB = 1 << 20
NOTHING = Amount()


def no_files(app_id: str) -> int:
    return 0


class AppUsage(ValueObject, frozen=True):
    """What one app has. `images` has the bytes of each image by its digest, which apps may share; they are not in
    `amount`."""

    amount: Amount
    images: Mapping[str, int]


class UsageCount:
    """`machine_disk_mib` is what admission counts for a root filesystem that is given no size, `logs_mib` what a
    machine keeps of output; `files_bytes` says how much was uploaded for an app's machines, by the app's id."""

    def __init__(self, machine_disk_mib: int, logs_mib: int, files_bytes: Callable[[str], int] = no_files) -> None:
        self._files_bytes = files_bytes
        self._machine_disk_mib = machine_disk_mib
        self._logs_mib = logs_mib

    def of_app(self, reader: Reader, app: AppName) -> Amount:
        return self._of_apps(reader, frozenset({app}))

    def of_org(self, reader: Reader, org: str) -> Amount:
        return self._of_apps(reader, frozenset(record.name for _, record in reader.scan(APPS) if record.org == org))

    def of_machine(self, config: MachineConfig) -> Amount:
        """Without its image, of which its app may have it already."""
        size = guest(config)
        disk_mib = (rootfs_mib(config) or self._machine_disk_mib) + self._logs_mib
        disk_mib += sum(each.size_mib for each in temp_dirs(config) if each.storage == "disk")
        return Amount(machines=1, cpus=size.cpus, memory_mb=size.memory_mb, disk_mb=disk_mib)

    def of_volume(self, size_gb: int) -> Amount:
        return Amount(volumes=1, disk_mb=size_gb * MIB_PER_GB)

    def _of_apps(self, reader: Reader, apps: frozenset[AppName]) -> Amount:
        if not apps:
            return NOTHING
        snapshots: dict[AppName, list[SnapshotRecord]] = {app: [] for app in sorted(apps)}
        for _, snapshot in reader.scan(SNAPSHOTS):
            if (of_app := snapshots.get(snapshot.app)) is not None:
                of_app.append(snapshot)
        return self.total(self.usage(reader, app, of_app) for app, of_app in snapshots.items())

    def usage(self, reader: Reader, app: AppName, snapshots: Iterable[SnapshotRecord]) -> AppUsage:
        """`snapshots` are all of the app's."""
        total, images = NOTHING, dict[str, int]()
        for record in _machines(reader, app):
            total = total.plus(self.of_machine(record.config))
            for image in (record.image, *record.container_images.values()):
                images[image.digest] = image.size_bytes
        for _, key in reader.scan(VOLUMES_BY_APP, f"{app}/"):
            volume = reader.get(VOLUMES, key.id)
            total = total.plus(NOTHING if volume is None else self.of_volume(volume.size_gb))
        for snapshot in snapshots:
            total = total.plus(Amount(snapshots=1, disk_mb=-(-snapshot.size // _MIB)))
        known = reader.get(APPS, app)
        uploaded = 0 if known is None else self._files_bytes(known.id)
        total = total.plus(Amount(addresses=reader.count(IPS, f"{app}/"), disk_mb=-(-uploaded // _MIB)))
        return AppUsage(total, images)

    def total(self, usages: Iterable[AppUsage]) -> Amount:
        """Of several apps: each image once, as it was pulled."""
        total, images = NOTHING, dict[str, int]()
        for each in usages:
            total = total.plus(each.amount)
            images |= each.images
        return total.plus(Amount(disk_mb=-(-sum(images.values()) // _MIB)))


def _machines(reader: Reader, app: AppName) -> Iterable[MachineRecord]:
    for _, key in reader.scan(BY_APP, f"{app}/"):
        record = reader.get(MACHINES, key.id)
        if record is not None:
            yield record


EVERY_ORG = "org/*"
MOST_QUOTAS = 10_000
_MOST = 1 << 53


def org_subject(org: str) -> str:
    return f"org/{org}"


def app_subject(app: str) -> str:
    return f"app/{app}"


class Quotas:
    """In a fleet, another part tells what other nodes have (`learn`); a node alone knows all."""

    def __init__(self, store: Store, clock: Clock, count: UsageCount) -> None:
        self._store = store
        self._clock = clock
        self.count = count
        self._told: Mapping[str, QuotaRecord] = {}
        self._elsewhere: Mapping[str, Amount] = {}
        self._listeners: list[Callable[[str], None]] = []

    def listen(self, changed: Callable[[str], None]) -> None:
        """Called in the event loop's thread with a subject of a quota that has got more here."""
        self._listeners.append(changed)

    def learn(self, told: Mapping[str, QuotaRecord], elsewhere: Mapping[str, Amount]) -> None:
        """What other nodes set, and what each subject has on them together."""
        self._told, self._elsewhere = told, elsewhere

    def all(self, reader: Reader) -> dict[str, QuotaRecord]:
        """By subject, those that limit something."""
        found = dict(reader.scan(QUOTAS))
        for subject, record in self._told.items():
            found[subject] = _newer(found.get(subject), record) or record
        return {subject: record for subject, record in sorted(found.items()) if record.limits != QuotaRule()}

    async def put(self, subject: str, limits: QuotaRule, by: str) -> QuotaRecord:
        """Durable when it returns. Without limits there is no quota any more. Raises `Unprocessable`."""
        for name in limits.__struct_fields__:
            most = getattr(limits, name)
            if most is not None and not 0 <= most <= _MOST:
                raise Unprocessable(f"{name}: a limit is 0 or more, not {most}")

        def apply(tx: Tx) -> QuotaRecord:
            known = _newer(tx.get(QUOTAS, subject), self._told.get(subject))
            if known is None and tx.count(QUOTAS) >= MOST_QUOTAS:
                raise Unprocessable(f"there are {MOST_QUOTAS} quotas, the most there can be: clear some first")
            at = max(self._clock.now(), 0.0 if known is None else known.at + 1e-3)
            made = QuotaRecord(subject=subject, limits=limits, at=at, by=by)
            tx.put(QUOTAS, subject, made)
            return made

        return await self._store.write(apply)

    def check(self, tx: Tx, app: AppName, more: Amount) -> None:
        """Whether the app may have `more` beside what it has; asked before it is written. Raises `QuotaExceeded`."""
        for subject, record in self._applying(tx, app):
            has = self.used(tx, subject).plus(self._elsewhere.get(subject, NOTHING))
            over = record.limits.over(has, more)
            if over:
                raise QuotaExceeded(_refusal(subject, record.limits, has, more, over), shortfall=over)
            tx.on_commit(lambda subject=subject: self._changed(subject))  # type: ignore[misc]

    def used(self, reader: Reader, subject: str) -> Amount:
        """On this node."""
        kind, _, name = subject.partition("/")
        return self.count.of_app(reader, AppName(name)) if kind == "app" else self.count.of_org(reader, name)

    def elsewhere(self, subject: str) -> Amount:
        """On the other nodes, as they told it last."""
        return self._elsewhere.get(subject, NOTHING)

    def subjects(self, reader: Reader, orgs: Iterable[str]) -> list[str]:
        """Whose amounts are to be told to other nodes: those with a quota, and every one of `orgs` where all have
        one."""
        quotas = self.all(reader)
        named = {subject for subject in quotas if subject != EVERY_ORG}
        if EVERY_ORG in quotas:
            named |= {org_subject(org) for org in orgs if org != DEFAULT_ORG}
        return sorted(named)

    def is_limited(self, reader: Reader, subject: str) -> bool:
        """Whether a quota is for this subject: its own, or that of every org."""
        own = subject != EVERY_ORG and self._record(reader, subject) is not None
        by_all = subject.startswith("org/") and subject not in (EVERY_ORG, org_subject(DEFAULT_ORG))
        return own or (by_all and self._record(reader, EVERY_ORG) is not None)

    def _applying(self, reader: Reader, app: AppName) -> list[tuple[str, QuotaRecord]]:
        owner = reader.get(APPS, app)
        org = DEFAULT_ORG if owner is None else owner.org
        own = self._record(reader, org_subject(org))
        if own is None and org != DEFAULT_ORG:
            own = self._record(reader, EVERY_ORG)
        found = ((org_subject(org), own), (app_subject(app), self._record(reader, app_subject(app))))
        return [(subject, record) for subject, record in found if record is not None]

    def _record(self, reader: Reader, subject: str) -> QuotaRecord | None:
        known = _newer(reader.get(QUOTAS, subject), self._told.get(subject))
        return None if known is None or known.limits == QuotaRule() else known

    def _changed(self, subject: str) -> None:
        for listener in self._listeners:
            listener(subject)


def _newer(first: QuotaRecord | None, second: QuotaRecord | None) -> "QuotaRecord | None":
    """Of two nodes' words about one subject; the same at every node."""
    known = [each for each in (first, second) if each is not None]
    return max(known, key=lambda each: (each.at, each.by, repr(each.limits)), default=None)


def _refusal(subject: str, limits: QuotaRule, has: Amount, more: Amount, over: Mapping[str, int]) -> str:
    kind, _, name = subject.partition("/")
    what = "; ".join(
        f"{key}: has {getattr(has, key)}, asked for {getattr(more, key)} more, may have {getattr(limits, key)},"
        f" {amount} too many"
        for key, amount in over.items()
    )
    return f"the quota of {kind} '{name}' does not allow this: {what}"
