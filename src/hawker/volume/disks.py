"""What flows ask of the host for volumes: a block file for each, mounted where one machine at a time finds it.

Every call is idempotent: it completes what an earlier one began, also one of a daemon that was killed in it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hawker.ids import VolumeId
from hawker.record.volume import GB, Fstype, SealedKey, VolumeRecord


@dataclass(frozen=True, slots=True)
class Disk:
    """A volume as the host has to know it."""

    id: VolumeId
    size_bytes: int
    fstype: Fstype
    encrypted: bool
    key: SealedKey | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a volume's filesystem, in its own blocks; `blocks_avail` is `blocks_free` without root's reserve."""

    block_size: int
    blocks: int
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
        """Of the mounted filesystem, else by its superblock; None when there is no file or none can be read."""

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

    async def lacks_encryption(self) -> str | None:
        """What this host lacks to encrypt volumes, and what to do about it; None when it can."""


def disk_of(record: VolumeRecord) -> Disk:
    return Disk(
        id=record.id,
        size_bytes=record.size_gb * GB,
        fstype=record.fstype,
        encrypted=record.encrypted,
        key=record.key,
    )
