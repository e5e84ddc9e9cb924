"""Copies of volumes on a real host: a file for each snapshot in `DIR`, shared block by block with its volume where the
file system can. A mounted volume is frozen meanwhile; one that is not mounted is copied as it lies, again if it was
mounted in between.
"""

import os
from collections.abc import Callable
from pathlib import Path

from hawker.errors import HawkerError, NotFound, Unavailable
from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.host.block import loops
from hawker.host.ext4 import mount_filesystem
from hawker.host.fsfreeze import frozen, thaw
from hawker.host.mount import is_mounted, unmount
from hawker.host.sparse import allocated_bytes, draft, draft_file, publish, shares_blocks
from hawker.ids import SnapshotId, VolumeId, is_snapshot_id
from hawker.log import bind
from hawker.volume.disks import CopyRoom, damaged_at

LONGEST_FREEZE_S = 60.0
PARALLEL_COPIES = 2
BASE = "saved-"
"""The beginning of the name of a copy that lies beside its volume's file: the next backup is compared with it."""

_TRIES = 3

_log = bind("hawker.copies")


class HostCopies:
    """Keeps `disks.Copies`. `file_of` is where a volume's blocks are, `mount_of` where it is mounted when it is; the
    node keeps `floor_bytes` of the disk free."""

    def __init__(
        self,
        directory: Path,
        file_of: Callable[[VolumeId], Path],
        mount_of: Callable[[VolumeId], Path],
        floor_bytes: int = 0,
    ) -> None:
        self._directory = directory
        self._file_of = file_of
        self._mount_of = mount_of
        self._floor_bytes = floor_bytes
        self._shares: bool | None = None

    async def room(self, copied: VolumeId | SnapshotId) -> CopyRoom:
        return await in_thread(Pool.DISKS, self._room, copied)

    async def take(self, volume_id: VolumeId, snapshot_id: SnapshotId) -> int:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        await self._copy_still(volume_id, self._path(snapshot_id))
        return allocated_bytes(self._path(snapshot_id))

    async def restore(self, snapshot_id: SnapshotId, volume_id: VolumeId) -> None:
        target = self._new_file(volume_id)
        if _is_there(target):
            return
        await draft(self._existing(snapshot_id), draft_file(target))
        inside("drafted")
        await publish(draft_file(target), target)

    async def fork(self, source: VolumeId, volume_id: VolumeId) -> None:
        await self._copy_still(source, self._new_file(volume_id))

    async def drop(self, snapshot_id: SnapshotId) -> None:
        file = self._path(snapshot_id)
        await in_thread(Pool.DISKS, _remove, file, draft_file(file))

    async def list(self) -> list[SnapshotId]:
        names = sorted(os.listdir(self._directory)) if self._directory.is_dir() else []
        return [SnapshotId(name) for name in names if is_snapshot_id(name)]

    async def mend(self, mounted: frozenset[VolumeId]) -> None:
        for volume_id in mounted:
            try:
                if await in_thread(Pool.DISKS, thaw, self._mount_of(volume_id)):
                    _log.warning("a volume was left frozen", extra={"volume": volume_id})
            except (HawkerError, OSError) as error:
                _log.error("cannot thaw a volume", extra={"volume": volume_id, "error": str(error)})

    async def _copy_still(self, volume_id: VolumeId, target: Path) -> None:
        """A copy of one moment, unless it is there."""
        if _is_there(target):
            return
        source, drafted = self._file_of(volume_id), draft_file(target)
        if not _is_there(source):
            raise NotFound(f"the file of volume {volume_id} is not there")
        for _ in range(_TRIES):
            with damaged_at(f"volume {volume_id}"):
                is_still = await self._draft_still(volume_id, source, drafted)
            if is_still:
                inside("drafted")
                return await publish(drafted, target)
        raise Unavailable(f"volume {volume_id} was mounted anew each time that it was copied")

    async def _draft_still(self, volume_id: VolumeId, source: Path, drafted: Path) -> bool:
        """Whether nothing was written meanwhile."""
        mount_point = self._mount_of(volume_id)
        if is_mounted(mount_point):
            async with frozen(mount_point, LONGEST_FREEZE_S):
                inside("frozen")
                await draft(source, drafted)
            return True
        if any(file == source for _, file in loops(source.parent)):
            return await self._draft_held(volume_id, source, drafted)
        before = written_at(source)
        await draft(source, drafted)
        return not is_mounted(mount_point) and written_at(source) == before

    async def _draft_held(self, volume_id: VolumeId, source: Path, drafted: Path) -> bool:
        """A device over its file without a mount of ours: somebody in another mount namespace has it. Mounted once more
        it is the same file system, and held still for all. Where no machine has it is what `HostDisks` clears."""
        target = source.parent / "growing"
        target.mkdir(exist_ok=True)
        try:
            await in_thread(Pool.DISKS, mount_filesystem, source, target)
        except (OSError, HawkerError) as error:
            raise Unavailable(
                f"volume {volume_id} is held by others of this host and cannot be held still: see `hawker node doctor`"
            ) from error
        try:
            async with frozen(target, LONGEST_FREEZE_S):
                inside("frozen")
                await draft(source, drafted)
        finally:
            await in_thread(Pool.DISKS, unmount, target)
        return not is_mounted(self._mount_of(volume_id))

    def _room(self, copied: VolumeId | SnapshotId) -> CopyRoom:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._shares is None:
            self._shares = shares_blocks(self._directory)
        source = self._path(SnapshotId(copied)) if is_snapshot_id(copied) else self._file_of(VolumeId(copied))
        disk = os.statvfs(self._directory)
        needed = 0 if self._shares or not source.exists() else allocated_bytes(source)
        return CopyRoom(needed, max(0, disk.f_bavail * disk.f_frsize - self._floor_bytes))

    def _path(self, snapshot_id: SnapshotId) -> Path:
        return self._directory / snapshot_id

    def _existing(self, snapshot_id: SnapshotId) -> Path:
        file = self._path(snapshot_id)
        if not file.exists():
            raise NotFound(f"the file of snapshot {snapshot_id} is not there")
        return file

    def _new_file(self, volume_id: VolumeId) -> Path:
        file = self._file_of(volume_id)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return file


def _is_there(file: Path) -> bool:
    return file.exists()


def written_at(file: Path) -> int:
    return file.stat().st_mtime_ns


def _remove(*files: Path) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def remove_bases(volumes: Path, of: str = "*") -> None:
    """Removes what was kept for the next backup of each volume in this directory, or of one."""
    for base in volumes.glob(f"{of}/{BASE}*"):
        base.unlink(missing_ok=True)
