"""What holds of volumes and snapshots, whatever happened: a volume has one machine at a time and both records say so;
its file is there, as large as promised and never made anew; nothing else is on the host.
"""

from collections import Counter
from collections.abc import Collection, Iterator

from hawker.ids import MachineId, SnapshotId, VolumeId
from hawker.machine import OFF, State
from hawker.node import Resources
from hawker.proof.host_state import HostState
from hawker.proof.violation import Invariant, Violation
from hawker.record.machine import MACHINES, MachineRecord
from hawker.record.volume import (
    GB,
    GONE_SNAPSHOTS,
    GONE_VOLUMES,
    IN_TAKING,
    SNAPSHOTS,
    SNAPSHOTS_BY_VOLUME,
    VOLUMES,
    VOLUMES_BY_APP,
    SnapshotRecord,
    SnapshotStatus,
    VolumeRecord,
    VolumeState,
)
from hawker.store.contract import Reader
from hawker.volume.attachment import volume_id_of

_RESTS = frozenset({VolumeState.CREATED, VolumeState.PENDING_DESTROY})
_USES = frozenset({State.STARTED, State.SUSPENDED})


def held_by_volumes(reader: Reader) -> Resources:
    total = Resources()
    for record in _all(reader):
        total = total.plus(record.holds)
    return total


def of_volumes(reader: Reader) -> Iterator[Violation]:
    """What is wrong in the store, between any two transactions."""
    volumes = {record.id: record for record in _all(reader)}
    for key, _ in reader.scan(GONE_VOLUMES):
        if key in volumes:
            yield Violation(Invariant.WHOLE, key, "is both there and destroyed")
    found = {key: pointer.id for key, pointer in reader.scan(VOLUMES_BY_APP)}
    wanted = {f"{record.app}/{record.id}": record.id for record in volumes.values()}
    for entry in sorted(found.items() ^ wanted.items()):
        yield Violation(Invariant.WHOLE, entry[0], f"{VOLUMES_BY_APP.name} and the records disagree")
    for record in volumes.values():
        machine = None if record.machine is None else reader.get(MACHINES, record.machine)
        if record.machine is not None and (machine is None or volume_id_of(machine.config) != record.id):
            yield Violation(
                Invariant.ONE_MACHINE, record.id, f"is attached to {record.machine}, which does not have it"
            )
    for _, machine in reader.scan(MACHINES):
        has = volume_id_of(machine.config)
        volume = None if has is None else volumes.get(has)
        if has is not None and machine.state not in OFF and (volume is None or volume.machine != machine.id):
            owner = "nobody" if volume is None else volume.machine
            yield Violation(Invariant.ONE_MACHINE, machine.id, f"has volume {has}, which is attached to {owner}")


def volumes_at_rest(reader: Reader, host: HostState, later: Collection[str]) -> Iterator[Violation]:
    """When nothing is under way; `later` are machines that will be launched at a later moment."""
    if host.volumes is None:
        return
    volumes = {record.id: record for record in _all(reader)}
    for record in volumes.values():
        yield from _file(record, host.volumes.get(record.id))
    for volume_id in sorted(host.volumes.keys() - volumes.keys()):
        yield Violation(Invariant.NOTHING_STRAY, volume_id, "its file is there and no record")
    for volume_id in sorted(host.volumes_remade):
        yield Violation(Invariant.KEPT, volume_id, "its file was made anew: what was in it is lost")
    for volume_id, count in Counter(host.uses.values()).items():
        if count > 1:
            yield Violation(Invariant.ONE_MACHINE, volume_id, f"is used by {count} machines")
    for _, machine in reader.scan(MACHINES):
        if machine.id not in later:
            yield from _use(machine, host)
    attached = {record.machine: record.id for record in volumes.values() if record.machine is not None}
    used = {volume for machine, volume in attached.items() if _is_in_use(reader, machine) or machine in later}
    for volume_id in sorted(host.volumes_mounted - used):
        yield Violation(Invariant.NOTHING_STRAY, volume_id, "is mounted, and no machine that runs has it")


def _file(record: VolumeRecord, size_bytes: int | None) -> Iterator[Violation]:
    if record.state not in _RESTS:
        yield Violation(Invariant.WHOLE, record.id, f"is {record.state} and nothing is at it")
    elif size_bytes is None:
        yield Violation(Invariant.KEPT, record.id, f"is {record.state}, and its file is not there")
    elif size_bytes != record.size_gb * GB or record.made_gb != record.size_gb:
        what = f"{record.size_gb} GB are promised, {record.made_gb} made, and its file has {size_bytes} bytes"
        yield Violation(Invariant.KEPT, record.id, what)


def _use(machine: MachineRecord, host: HostState) -> Iterator[Violation]:
    has = volume_id_of(machine.config)
    if has is None or machine.state not in _USES:
        return
    if host.uses and host.uses.get(machine.id) != has:
        yield Violation(Invariant.KEPT, machine.id, f"runs without its volume {has}")
    if has not in host.volumes_mounted:
        yield Violation(Invariant.WHOLE, machine.id, f"runs, and its volume {has} is not mounted")


def _is_in_use(reader: Reader, machine_id: MachineId) -> bool:
    record = reader.get(MACHINES, machine_id)
    return record is not None and record.state in _USES


def _all(reader: Reader) -> list[VolumeRecord]:
    return [record for _, record in reader.scan(VOLUMES)]


class VolumePromises:
    """What clients were told of volumes. Of one whose extension or deletion was never answered, either may be so."""

    def __init__(self) -> None:
        self.least_gb: dict[VolumeId, int] = {}
        self._most_gb: dict[VolumeId, int] = {}
        self._let_go: dict[VolumeId, bool] = {}  # False: asked, and not answered
        self._turns: Counter[VolumeId] = Counter()

    def created(self, volume_id: VolumeId, size_gb: int) -> None:
        self.least_gb[volume_id] = self._most_gb[volume_id] = size_gb

    def ask_size(self, volume_id: VolumeId, size_gb: int) -> None:
        self._most_gb[volume_id] = max(size_gb, self._most_gb[volume_id])

    def extended(self, volume_id: VolumeId, size_gb: int) -> None:
        self.least_gb[volume_id] = max(size_gb, self.least_gb[volume_id])

    def ask_end(self, volume_id: VolumeId) -> int:
        """Its turn, which `let_go` is told."""
        self._let_go.setdefault(volume_id, False)
        self._turns[volume_id] += 1
        return self._turns[volume_id]

    def let_go(self, volume_id: VolumeId, turn: int) -> None:
        """Unless somebody asked for it back meanwhile."""
        if self._turns[volume_id] == turn:
            self._let_go[volume_id] = True

    def ask_back(self, volume_id: VolumeId) -> int:
        """From now on either may be so. Its turn, which `had_back` is told."""
        self._let_go[volume_id] = False
        self._turns[volume_id] += 1
        return self._turns[volume_id]

    def had_back(self, volume_id: VolumeId, turn: int) -> None:
        """It is there again, unless somebody asked for its end or for it meanwhile."""
        if self._turns[volume_id] == turn:
            self._let_go.pop(volume_id, None)

    def broken(self, reader: Reader) -> Iterator[Violation]:
        for volume_id, least in self.least_gb.items():
            record = reader.get(VOLUMES, volume_id)
            told = self._let_go.get(volume_id)
            if record is None or record.state is not VolumeState.CREATED:
                if told is None:
                    what = "gone" if record is None else record.state
                    yield Violation(Invariant.KEPT, volume_id, f"was acknowledged, and is {what}")
            elif told:
                yield Violation(Invariant.KEPT, volume_id, "its end was acknowledged, and it is there")
            elif not least <= record.size_gb <= self._most_gb[volume_id]:
                what = f"{least} GB were acknowledged, and it has {record.size_gb}"
                yield Violation(Invariant.KEPT, volume_id, what)


# What holds of snapshots, whatever happened: one that was acknowledged is there, whole and of one moment, until its
# days are over, also when its volume is gone; and nothing else is on the host.


def of_snapshots(reader: Reader) -> Iterator[Violation]:
    """What is wrong in the store, between any two transactions."""
    there = {record.id: record for record in _all_snapshots(reader)}
    for key, _ in reader.scan(GONE_SNAPSHOTS):
        if key in there and there[SnapshotId(key)].status is not SnapshotStatus.FAILED:
            yield Violation(Invariant.WHOLE, key, "is both there and at its end")
    found = {key: pointer.id for key, pointer in reader.scan(SNAPSHOTS_BY_VOLUME)}
    wanted = {f"{record.volume}/{record.id}": record.id for record in there.values()}
    for entry in sorted(found.items() ^ wanted.items()):
        yield Violation(Invariant.WHOLE, entry[0], f"{SNAPSHOTS_BY_VOLUME.name} and the records disagree")
    taking = [record.volume for record in there.values() if record.status in IN_TAKING]
    for volume_id in sorted({volume_id for volume_id in taking if taking.count(volume_id) > 1}):
        yield Violation(Invariant.WHOLE, volume_id, "has two snapshots under way")


def snapshots_at_rest(reader: Reader, host: HostState) -> Iterator[Violation]:
    """When nothing is under way."""
    if host.snapshots is None:
        return
    there = {record.id: record for record in _all_snapshots(reader)}
    going = {SnapshotId(key) for key, _ in reader.scan(GONE_SNAPSHOTS)}
    for record in there.values():
        if record.status in IN_TAKING:
            yield Violation(Invariant.WHOLE, record.id, f"is {record.status} and nothing is at it")
        elif record.status is SnapshotStatus.CREATED and record.id not in host.snapshots:
            yield Violation(Invariant.KEPT, record.id, "is created, and its file is not there")
        elif record.status is SnapshotStatus.FAILED and record.id in host.snapshots - going:
            yield Violation(Invariant.NOTHING_STRAY, record.id, "failed, and its file is there")
    for snapshot_id in sorted(host.snapshots - there.keys() - going):
        yield Violation(Invariant.NOTHING_STRAY, snapshot_id, "its file is there and no record")
    for snapshot_id in sorted(host.snapshots_retaken):
        yield Violation(Invariant.KEPT, snapshot_id, "was taken anew: it is of another moment than the first")


def _all_snapshots(reader: Reader) -> list[SnapshotRecord]:
    return [record for _, record in reader.scan(SNAPSHOTS)]


class SnapshotPromises:
    """What clients were told of snapshots: that they are taken, and until when they are kept."""

    def __init__(self) -> None:
        self.kept_until: dict[SnapshotId, float] = {}

    def promised(self, snapshot_id: SnapshotId, until: float) -> None:
        self.kept_until[snapshot_id] = until

    def broken(self, reader: Reader, now: float) -> Iterator[Violation]:
        for snapshot_id, until in self.kept_until.items():
            if now < until and reader.get(SNAPSHOTS, snapshot_id) is None:
                yield Violation(Invariant.KEPT, snapshot_id, f"was acknowledged until {until:.0f}, and is gone")
