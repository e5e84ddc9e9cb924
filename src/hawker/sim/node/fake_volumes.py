"""The played host's volumes and their copies. They outlive the daemon and the host's reboots; every call is an edge
where the daemon may die, and so is the middle of a copy, which then leaves nothing.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import anyio

from hawker.backup.checks import BackupCheck, BackupShareReport
from hawker.errors import BadRequest, Damaged, NotFound
from hawker.host.unreadable import FileRange
from hawker.ids import SnapshotId, VolumeId
from hawker.record.volume import Fstype, SnapshotRecord
from hawker.sim.node.crash_points import CrashPoints
from hawker.sim.node.fake_host import FakeHostPart
from hawker.volume.disks import BackupFound, BackupSize, CopyRoom, Disk, Usage
from hawker.volume.lost_files import LostFiles

_BLOCK = 4096
_RESERVED = 100  # one in so many blocks


@dataclass(slots=True)
class FakeVolume:
    """A volume's file: its size, that of the filesystem in it, how often something was written to it, and which of its
    parts are zeros that nobody wrote. A `damaged` filesystem cannot be mounted, nor one that is copied from it."""

    size_bytes: int
    filesystem_bytes: int
    fstype: Fstype
    content: int = 0
    holes: frozenset[int] = frozenset()
    damaged: bool = False


class FakeVolumes(FakeHostPart):
    """Keeps `disks.Disks` in memory. `made` counts how often a volume's file was made: the second time, what was in the
    first is lost; `repaired` how often its filesystem was. `grows` while the host can grow what is in use; `rot` are
    parts of a volume's file that the disk cannot read any more, as `fake_moved_files` numbers them."""

    def __init__(self, crash_points: CrashPoints) -> None:
        super().__init__(crash_points)
        self.files: dict[VolumeId, FakeVolume] = {}
        self.attached: set[VolumeId] = set()
        self.made: Counter[VolumeId] = Counter()
        self.repaired: Counter[VolumeId] = Counter()
        self.rot: dict[VolumeId, frozenset[int]] = {}
        self.stray: set[str] = set()
        self.grows = True
        self.encrypts = False
        self.holders: dict[VolumeId, tuple[str, ...]] = {}
        self.swept = 0

    async def make(self, disk: Disk) -> None:
        await self._edge("make")
        if disk.id not in self.files:
            self.files[disk.id] = FakeVolume(disk.size_bytes, disk.size_bytes, disk.fstype)
            self.made[disk.id] += 1
        await self._edge("make", after=True)

    async def grow(self, disk: Disk) -> bool:
        await self._edge("grow")
        block = self._block(disk)
        block.size_bytes = max(block.size_bytes, disk.size_bytes)
        await self._crash_points.pass_edge()
        if disk.id not in self.attached:
            _check_mountable(disk, block)
        is_grown = block.filesystem_bytes >= block.size_bytes
        grown = is_grown or self.grows or disk.id not in self.attached
        if grown:
            block.filesystem_bytes = block.size_bytes
        await self._edge("grow", after=True)
        return grown

    async def mount(self, disk: Disk) -> str:
        await self._edge("attach")
        block = self._block(disk)
        if block.fstype is not Fstype.EXT4:
            raise BadRequest(f"volume {disk.id} has no filesystem, so it cannot be mounted")
        if disk.repair and disk.id not in self.attached:
            self.repaired[disk.id] += 1
        _check_mountable(disk, block)
        if disk.id not in self.attached:
            block.filesystem_bytes = block.size_bytes
        self.attached.add(disk.id)
        await self._edge("attach", after=True)
        return f"/volumes/{disk.id}/mounted"

    async def unmount(self, volume_id: VolumeId, *, unless: Callable[[], bool] | None = None) -> None:
        await self._edge("detach")
        if unless is not None and unless():
            return
        self.attached.discard(volume_id)
        await self._edge("detach", after=True)

    async def usage(self, disk: Disk) -> Usage | None:
        block = self.files.get(disk.id)
        if block is None or block.fstype is not Fstype.EXT4:
            return None
        blocks = block.filesystem_bytes // _BLOCK
        return Usage(_BLOCK, blocks, blocks, blocks - blocks // _RESERVED)

    async def size(self, volume_id: VolumeId) -> int | None:
        block = self.files.get(volume_id)
        return None if block is None else block.size_bytes

    async def remove(self, volume_id: VolumeId) -> None:
        await self.unmount(volume_id)
        self.files.pop(volume_id, None)
        await self._crash_points.pass_edge()

    async def list(self) -> list[VolumeId]:
        return sorted(self.files)

    async def mounted(self) -> frozenset[VolumeId]:
        return frozenset(self.attached)

    async def strays(self) -> tuple[str, ...]:
        return tuple(sorted(self.stray))

    async def clear(self, stray: str) -> None:
        self.stray.discard(stray)

    async def sweep(self) -> None:
        self.swept += 1

    async def held(self, volumes: Collection[VolumeId]) -> Mapping[VolumeId, tuple[str, ...]]:
        return {each: who for each, who in self.holders.items() if each in volumes}

    async def lost_files(self, disk: Disk, lost: Sequence[FileRange]) -> LostFiles:
        await self._edge("lost_files")
        return LostFiles(tuple(f"/part-{each}" for each in sorted(self._block(disk).holes)))

    async def lacks_encryption(self) -> str | None:
        return None if self.encrypts else "cryptsetup is not installed"

    def _block(self, disk: Disk) -> FakeVolume:
        if disk.id not in self.files:
            raise NotFound(f"the file of volume {disk.id} is not on this host")
        return self.files[disk.id]


def _check_mountable(disk: Disk, block: FakeVolume) -> None:
    if block.damaged:
        raise BadRequest(f"the filesystem of volume {disk.id} is damaged")


_FREE = 1 << 50


class FakeCopies(FakeHostPart):
    """Keeps `disks.Copies` in memory, beside the volumes. `taken` counts how often a snapshot was taken: the second
    time, it would be of another moment. `frozen` are volumes that a killed daemon's helper left so. While one is
    `held`, no snapshot is restored, and no backup."""

    def __init__(self, crash_points: CrashPoints, volumes: FakeVolumes) -> None:
        super().__init__(crash_points)
        self.snapshots: dict[SnapshotId, FakeVolume] = {}
        self.taken: Counter[SnapshotId] = Counter()
        self.frozen: set[VolumeId] = set()
        self.free_bytes = _FREE
        self.held: anyio.Event | None = None
        self._volumes = volumes

    async def room(self, copied: VolumeId | SnapshotId) -> CopyRoom:
        block = self.snapshots.get(SnapshotId(copied)) or self._volumes.files.get(VolumeId(copied))
        return CopyRoom(0 if block is None else block.size_bytes, self.free_bytes)

    async def take(self, volume_id: VolumeId, snapshot_id: SnapshotId) -> int:
        await self._edge("take")
        if snapshot_id not in self.snapshots:
            source = self._volume(volume_id)
            await self._crash_points.pass_edge()
            if self._volumes.rot.get(volume_id):
                raise Damaged(f"volume {volume_id} cannot be read: its disk is damaged")
            self.snapshots[snapshot_id] = replace(source)
            self.taken[snapshot_id] += 1
        await self._edge("take", after=True)
        return self.snapshots[snapshot_id].size_bytes

    async def restore(self, snapshot_id: SnapshotId, volume_id: VolumeId) -> None:
        await self._edge("restore")
        if self.held is not None:
            await self.held.wait()
        if volume_id not in self._volumes.files:
            self._fill(volume_id, self._snapshot(snapshot_id))
        await self._edge("restore", after=True)

    async def fork(self, source: VolumeId, volume_id: VolumeId) -> None:
        await self._edge("fork")
        if volume_id not in self._volumes.files:
            self._fill(volume_id, self._volume(source))
        await self._edge("fork", after=True)

    async def drop(self, snapshot_id: SnapshotId) -> None:
        await self._edge("drop")
        self.snapshots.pop(snapshot_id, None)
        await self._edge("drop", after=True)

    async def list(self) -> list[SnapshotId]:
        return sorted(self.snapshots)

    async def mend(self, mounted: frozenset[VolumeId]) -> None:
        self.frozen -= mounted

    def _fill(self, volume_id: VolumeId, content: FakeVolume) -> None:
        self._volumes.files[volume_id] = replace(content)
        self._volumes.made[volume_id] += 1

    def _volume(self, volume_id: VolumeId) -> FakeVolume:
        if volume_id not in self._volumes.files:
            raise NotFound(f"the file of volume {volume_id} is not there")
        return self._volumes.files[volume_id]

    def _snapshot(self, snapshot_id: SnapshotId) -> FakeVolume:
        if snapshot_id not in self.snapshots:
            raise NotFound(f"the file of snapshot {snapshot_id} is not there")
        return self.snapshots[snapshot_id]


class FakeBackups(FakeHostPart):
    """Keeps `disks.Backups` in memory: what another host would find. `sent` counts how often a backup was written: the
    second time, it would be of something else. While `prunes_held`, no prune ends."""

    def __init__(self, crash_points: CrashPoints, copies: FakeCopies, volumes: FakeVolumes) -> None:
        super().__init__(crash_points)
        self.kept: dict[str, FakeVolume] = {}
        self.sent: Counter[str] = Counter()
        self.pruned = 0
        self.prunes_held: anyio.Event | None = None
        self.verified = 0
        self.damaged: dict[str, str] = {}
        self._copies = copies
        self._volumes = volumes

    async def save(self, backup: str, snapshot: SnapshotRecord, name: str) -> BackupSize:
        await self._edge("save")
        if snapshot.id not in self._copies.snapshots:
            raise NotFound(f"the file of snapshot {snapshot.id} is not there")
        if backup not in self.kept:
            self.kept[backup] = replace(self._copies.snapshots[snapshot.id])
            self.sent[backup] += 1
        await self._edge("save", after=True)
        return BackupSize(stored_bytes=_BLOCK, sent_bytes=_BLOCK)

    async def find(self, backup: str) -> BackupFound:
        block = self._kept(backup)
        return BackupFound(
            size_bytes=block.size_bytes, fstype=block.fstype, encrypted=False, key=None, guest_written=False
        )

    async def restore(self, backup: str, volume_id: VolumeId) -> None:
        await self._edge("fetch")
        if self._copies.held is not None:
            await self._copies.held.wait()
        if volume_id not in self._volumes.files:
            self._volumes.files[volume_id] = replace(self._kept(backup))
            self._volumes.made[volume_id] += 1
        await self._edge("fetch", after=True)

    async def list(self, prefix: str) -> list[str]:
        return sorted(backup for backup in self.kept if backup.startswith(prefix))

    async def prune(self, daily: int, weekly: int) -> int:
        """What it would keep is a matter of `backup.prune`: here it is counted that it was asked for."""
        await self._edge("prune")
        self.pruned += 1
        if self.prunes_held is not None:
            await self.prunes_held.wait()
        return 0

    async def verify(self, percent: float, rest: Callable[[], Awaitable[None]]) -> BackupShareReport:
        """How much it would read is a matter of `backup.verification`: here each time it finds what is `damaged`."""
        await self._edge("verify")
        self.verified += 1
        await rest()
        found = tuple(sorted(self.damaged.items()))
        return BackupShareReport(parts=1, packs=1, read_bytes=_BLOCK, damaged=found, found=found)

    async def checks(self, prefix: str) -> Mapping[str, BackupCheck]:
        return {
            name: BackupCheck(damaged_at=1.0, damage=self.damaged[name])
            if name in self.damaged
            else BackupCheck(verified_at=1.0)
            for name in self.kept
            if name.startswith(prefix) and self.verified
        }

    def _kept(self, backup: str) -> FakeVolume:
        if backup not in self.kept:
            raise NotFound(f"backup {backup} not found")
        return self.kept[backup]
