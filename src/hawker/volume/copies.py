"""What flows ask of the host for copies of volumes: snapshots, which have a place of their own and outlive the volume
that they were taken of, and new volumes that are filled from one or from another volume.

Every call is idempotent, and a copy is whole and on disk or is not there: a daemon that is killed in the middle leaves
a draft, which counts for nothing, and no file system that stays frozen.
"""

from dataclasses import dataclass
from typing import Protocol

from hawker.errors import NoRoom
from hawker.ids import SnapshotId, VolumeId

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class CopyRoom:
    """What a copy of a volume needs of the host's disk, and what is there for it. A copy by reference needs nothing."""

    needed_bytes: int
    free_bytes: int

    @property
    def missing_bytes(self) -> int:
        return max(0, self.needed_bytes - self.free_bytes)


def check_room(room: CopyRoom, what: str) -> None:
    """Raises `NoRoom` when a copy would leave less of the disk than the node keeps free."""
    if room.missing_bytes:
        lacks = -(-room.missing_bytes // _MIB)
        text = f"no room for a copy of {what}: {lacks} MiB of disk are missing on this host"
        raise NoRoom(text, scope="host", shortfall={"disk_mb": lacks})


class Copies(Protocol):
    """Copies of one moment: nothing writes to a mounted volume meanwhile. Raises `OSError` for what the host refuses,
    `Unavailable` when a volume cannot be held still, `NotFound` when what is to be copied is not there."""

    async def room(self, copied: VolumeId | SnapshotId) -> CopyRoom:
        """For one more copy, beyond what the node keeps free."""

    async def take(self, volume_id: VolumeId, snapshot_id: SnapshotId) -> int:
        """Have the snapshot; what it takes of the disk, in bytes. One that is there is left as it is."""

    async def restore(self, snapshot_id: SnapshotId, volume_id: VolumeId) -> None:
        """Have a new volume's file with what the snapshot holds; a file that is there is left as it is."""

    async def fork(self, source: VolumeId, volume_id: VolumeId) -> None:
        """Have a new volume's file with what another volume holds now; a file that is there is left as it is."""

    async def drop(self, snapshot_id: SnapshotId) -> None:
        """Remove a snapshot, or what there is of it; no error when there is nothing."""

    async def list(self) -> list[SnapshotId]:
        """Every snapshot that is whole."""

    async def mend(self, mounted: frozenset[VolumeId]) -> None:
        """At boot: thaw what a daemon's helper left frozen when it was killed with it. Raises nothing: what cannot be
        mended is logged."""
