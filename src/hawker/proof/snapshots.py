"""What holds of snapshots, whatever happened: one that was acknowledged is there, whole and of one moment, until its
days are over, also when its volume is gone; and nothing else is on the host.
"""

from collections.abc import Iterator

from hawker.ids import SnapshotId
from hawker.proof.host_state import HostState
from hawker.proof.violation import Invariant, Violation
from hawker.record.volume import (
    GONE_SNAPSHOTS,
    IN_TAKING,
    SNAPSHOTS,
    SNAPSHOTS_BY_VOLUME,
    SnapshotRecord,
    SnapshotStatus,
)
from hawker.store.contract import Reader


def of_snapshots(reader: Reader) -> Iterator[Violation]:
    """What is wrong in the store, between any two transactions."""
    there = {record.id: record for record in _all(reader)}
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
    there = {record.id: record for record in _all(reader)}
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


def _all(reader: Reader) -> list[SnapshotRecord]:
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
