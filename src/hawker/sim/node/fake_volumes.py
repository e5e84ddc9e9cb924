"""The simulated host's volumes. They outlive the daemon and the host's reboots; every call is an edge where it may
die.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hawker.errors import BadRequest, NotFound
from hawker.ids import VolumeId
from hawker.sim.node.crash_points import CrashPoints
from hawker.sim.node.fake_host import FakeHostPart
from hawker.worker.volumes.disks import Disk, Usage
from hawker.worker.volumes.records import Fstype

_BLOCK = 4096
_RESERVED = 100  # one in so many blocks


@dataclass(slots=True)
class FakeVolume:
    """A volume's file: its size, that of the filesystem in it, and how often something was written to it."""

    size_bytes: int
    filesystem_bytes: int
    fstype: Fstype
    content: int = 0


class FakeVolumes(FakeHostPart):
    """Keeps `deps.Disks` in memory. `made` counts how often a volume's file was made: the second time, what was in the
    first is lost. `grows` while the host can grow what is in use; `damaged` filesystems cannot be mounted."""

    def __init__(self, fuse: CrashPoints) -> None:
        super().__init__(fuse)
        self.files: dict[VolumeId, FakeVolume] = {}
        self.attached: set[VolumeId] = set()
        self.made: Counter[VolumeId] = Counter()
        self.damaged: set[VolumeId] = set()
        self.stray: set[str] = set()
        self.grows = True
        self.encrypts = False
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
        await self._fuse.pass_edge()
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
        if disk.id in self.damaged:
            raise BadRequest(f"the filesystem of volume {disk.id} is damaged")
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
        await self._fuse.pass_edge()

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

    async def lacks_encryption(self) -> str | None:
        return None if self.encrypts else "cryptsetup is not installed"

    def _block(self, disk: Disk) -> FakeVolume:
        if disk.id not in self.files:
            raise NotFound(f"the file of volume {disk.id} is not on this host")
        return self.files[disk.id]
