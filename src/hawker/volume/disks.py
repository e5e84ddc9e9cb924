"""What flows ask of the host for volumes: a block file for each, mounted where one machine at a time finds it; and
copies of volumes.

Every call is idempotent: it completes what an earlier one began, also one of a daemon that was killed in it.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec

from hawker.backup.checks import BackupCheck, BackupShareReport
from hawker.errors import Damaged, NoRoom
from hawker.host.unreadable import FileRange, UnreadableBytes
from hawker.ids import SnapshotId, VolumeId
from hawker.record.volume import GB, Fstype, SealedKey, SnapshotRecord, VolumeRecord
from hawker.value_object import ValueObject
from hawker.volume.lost_files import LostFiles


class Disk(ValueObject, frozen=True):
    """A volume as the host has to know it. With `repair` its next mount gives up of its filesystem what is broken."""

    id: VolumeId
    size_bytes: int
    """The whole size of the file in bytes, holes counted."""
    fstype: Fstype
    encrypted: bool
    """The content of the file on the host is ciphertext; `key` opens it."""
    key: SealedKey | None = None
    guest_written: bool = False
    """A microVM mounted it as a disk, so the host does not mount it."""
    repair: bool = False


class Usage(ValueObject, frozen=True):
    """The use of a volume's filesystem, in its own blocks; `blocks_avail` is `blocks_free` without root's reserve."""

    block_size: int
    """The number of bytes in one block."""
    blocks: int
    """All, 0 or more."""
    blocks_free: int
    blocks_avail: int

    @property
    def bytes_total(self) -> int:
        return self.blocks * self.block_size

    @property
    def bytes_used(self) -> int:
        return (self.blocks - self.blocks_free) * self.block_size


class Disks(Protocol):
    """The volumes' files of one node. Raises `OSError` for what the host refuses."""

    async def make(self, disk: Disk) -> None:
        """Have the file, of its size, with an empty filesystem; a file that is there is left as it is."""

    async def grow(self, disk: Disk) -> bool:
        """Bring file and filesystem to `size_bytes`, mounted or not; never smaller. False when the filesystem is in use
        and the host cannot grow it now: the next mount does."""

    async def mount(self, disk: Disk) -> str:
        """The mounted path; unchanged when it is mounted. A filesystem that needs it is mended first. Raises
        `BadRequest` when it is damaged beyond that, `Unavailable` while an earlier daemon's work on it goes on,
        `NotFound` without a file."""

    async def unmount(self, volume_id: VolumeId, *, unless: Callable[[], bool] | None = None) -> None:
        """No error when it is not mounted. `unless` is asked when nobody can mount it any more before it is done."""

    async def usage(self, disk: Disk) -> Usage | None:
        """The use of the mounted filesystem, else by its superblock; None when there is no file or none can be read."""

    async def size(self, volume_id: VolumeId) -> int | None:
        """Bytes of the file, holes included; None when there is none."""

    async def remove(self, volume_id: VolumeId) -> None:
        """Unmount, and remove the file; no error when there is none."""

    async def list(self) -> list[VolumeId]:
        """Every volume that has a file or a directory here."""

    async def mounted(self) -> frozenset[VolumeId]:
        """Volumes that are mounted here now."""

    async def strays(self) -> tuple[str, ...]:
        """Loop devices and mounts below this node's volumes that belong to no mounted volume."""

    async def clear(self, stray: str) -> None:
        """Remove one of them, never a file; no error when it is gone."""

    async def sweep(self) -> None:
        """Free the space of what was removed."""

    async def held(self, volumes: Collection[VolumeId]) -> Mapping[VolumeId, tuple[str, ...]]:
        """The file systems of `volumes` that others of the host hold, and who they are: until they let go, an extension
        of an unmounted one does not arrive."""

    async def lost_files(self, disk: Disk, lost: Sequence[FileRange]) -> LostFiles:
        """The files of a volume that nobody has mounted which have bytes in these ranges of its file."""

    async def lacks_encryption(self) -> str | None:
        """The sentence that says what this host lacks to encrypt volumes, and what to do about it; None when it can."""


@contextmanager
def damaged_at(what: str) -> Iterator[None]:
    """Raises `Damaged` for bytes that the disk cannot read: of a volume, say, or of its snapshot."""
    try:
        yield
    except UnreadableBytes as error:
        raise Damaged(f"{what} cannot be read at byte {error.offset}: its disk is damaged") from error


def disk_of(record: VolumeRecord) -> Disk:
    return Disk(
        id=record.id,
        size_bytes=record.size_gb * GB,
        fstype=record.fstype,
        encrypted=record.encrypted,
        key=record.key,
        guest_written=record.guest_written,
        repair=record.wants_repair,
    )


# What flows ask of the host for copies of volumes: snapshots, which have a place of their own and outlive the
# volume that they were taken of, and new volumes that are filled from one or from another volume. Every call is
# idempotent, and a copy is whole and on disk or is not there: a daemon that is killed in the middle leaves a draft,
# which counts for nothing, and no file system that stays frozen.

_MIB = 1 << 20


class CopyRoom(ValueObject, frozen=True):
    """The room that a copy of a volume needs of the host's disk, and the room that is there for it. A copy by reference
    needs nothing."""

    needed_bytes: int
    """The bytes that the copy needs, 0 or more."""
    free_bytes: int
    """Beyond what the node keeps free."""

    @property
    def missing_bytes(self) -> int:
        return max(0, self.needed_bytes - self.free_bytes)


def check_room(room: CopyRoom, what: str) -> None:
    """Checks that there is room for a copy. Raises `NoRoom` when a copy would leave less of the disk than the node
    keeps free."""
    if room.missing_bytes:
        lacks = -(-room.missing_bytes // _MIB)
        text = f"no room for a copy of {what}: {lacks} MiB of disk are missing on this host"
        raise NoRoom(text, scope="host", shortfall={"disk_mb": lacks})


class BackupSize(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a backup in bytes: what the volume has stored, and what was sent of that because it was not there
    yet."""

    stored_bytes: int
    """Holes are not counted."""
    sent_bytes: int
    """The bytes that were sent; 0 where the repository had everything."""


class BackupFound(ValueObject, frozen=True, kw_only=True):
    """The properties of a volume that is made from a backup. `key` opens an encrypted one, and is that of the volume
    that was backed up."""

    size_bytes: int
    """The size of the volume that was backed up: the new one has as much or more."""
    fstype: Fstype
    encrypted: bool
    """The new volume has to be, too."""
    key: SealedKey | None
    guest_written: bool
    """A microVM mounted the volume as a disk: the new one is for microVMs, too."""


class Backups(Protocol):
    """Copies of volumes off this host. `backup` is ORG/APP/VOLUME/TIME. Every call is idempotent; raises `NotFound`
    when it is not there, `ArchiveRefused`, `ArchiveDamaged`, `Unavailable`, and `OSError` for what the host refuses."""

    async def save(self, backup: str, snapshot: SnapshotRecord, name: str) -> BackupSize:
        """Have the backup, of what the snapshot holds; `name` is the volume's. A backup that is there is left as it is.
        Raises `Damaged` when its disk cannot read all of it: then there is no such backup."""

    async def find(self, backup: str) -> BackupFound:
        """The properties of a volume that is made from the backup."""

    async def restore(self, backup: str, volume_id: VolumeId) -> None:
        """Have a new volume's file with what the backup holds; a file that is there is left as it is."""

    async def list(self, prefix: str) -> list[str]:
        """The names of the backups below `prefix`, which ends in a slash; of each volume the oldest first."""

    async def prune(self, daily: int, weekly: int) -> int:
        """Remove those beyond their retention, and what none has any more; how many backups. Nothing when any node did
        so in the last day. Waits for backups that are under way, and raises `Unavailable` when they do not end."""

    async def verify(self, percent: float, rest: Callable[[], Awaitable[None]]) -> BackupShareReport | None:
        """Read so much of what is kept, once a day, whichever node does it; None where nothing is kept. `rest` is
        called after each pack, and waits while there is something better to do. Raises `Unavailable` while another
        node does it; what was read until then is not read again."""

    async def checks(self, prefix: str) -> Mapping[str, BackupCheck]:
        """The checks of the backups below `prefix` that were read since. Those that were not read are not in it."""


class Copies(Protocol):
    """Copies of one moment: nothing writes to a mounted volume meanwhile. Raises `OSError` for what the host refuses,
    `Damaged` when the disk cannot read all of it, `Unavailable` when a volume cannot be held still, `NotFound` when
    what is to be copied is not there."""

    async def room(self, copied: VolumeId | SnapshotId) -> CopyRoom:
        """The room for one more copy, beyond what the node keeps free."""

    async def take(self, volume_id: VolumeId, snapshot_id: SnapshotId) -> int:
        """Have the snapshot, and return the bytes that it takes of the disk. A snapshot that is there is left as it
        is."""

    async def restore(self, snapshot_id: SnapshotId, volume_id: VolumeId) -> None:
        """Have a new volume's file with what the snapshot holds; a file that is there is left as it is."""

    async def fork(self, source: VolumeId, volume_id: VolumeId) -> None:
        """Have a new volume's file with what another volume holds now; a file that is there is left as it is."""

    async def drop(self, snapshot_id: SnapshotId) -> None:
        """Remove a snapshot, or what there is of it; no error when there is nothing."""

    async def list(self) -> list[SnapshotId]:
        """Every snapshot that is whole."""

    async def mend(self, mounted: frozenset[VolumeId]) -> None:
        """Mends volumes at boot: thaws what a daemon's helper left frozen when it was killed with it. Raises nothing:
        what cannot be mended is logged."""
