"""The volumes of a node on its host: `DIR/ID/disk` is a volume's block file, sparse; `DIR/ID/mounted` where it is
mounted while a machine has it. What is removed is moved to `DIR/.trash` first.
"""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from hawker.errors import BadRequest, NotFound, NotServed
from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.host import ext4
from hawker.host.block import detach_loop, loops
from hawker.host.ext4 import read_superblock
from hawker.host.mount import is_mounted, mount_holders, mounts, unmount
from hawker.host.unreadable import FileRange
from hawker.ids import VolumeId, is_volume_id
from hawker.record.volume import Fstype
from hawker.volume.attachment import guest_written_refusal
from hawker.volume.disks import Disk, Usage
from hawker.volume.encryption import Ciphers
from hawker.volume.lost_files import LostFiles, lost_files

_DRAFT = "draft-"


class HostDisks:
    """Keeps `disks.Disks`."""

    def __init__(self, directory: Path, ciphers: Ciphers | None = None) -> None:
        self._directory = directory
        self._ciphers = ciphers
        self._trash = directory / ".trash"
        self._locks: dict[VolumeId, anyio.Lock] = {}

    def file(self, volume_id: VolumeId) -> Path:
        return self._directory / volume_id / "disk"

    def mount_point(self, volume_id: VolumeId) -> Path:
        return self._directory / volume_id / "mounted"

    @asynccontextmanager
    async def holding(self, volume_id: VolumeId) -> AsyncIterator[None]:
        """Holds the volume: nobody else of this daemon works on it meanwhile."""
        lock = self._locks.setdefault(volume_id, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.statistics().locked and not lock.statistics().tasks_waiting:
                self._locks.pop(volume_id, None)

    async def make(self, disk: Disk) -> None:
        async with self.holding(disk.id):
            file = self.file(disk.id)
            if file.exists():
                return
            _remove_drafts(file.parent)
            draft = _sparse(file.parent, disk.size_bytes)
            inside("drafted")
            if disk.fstype is Fstype.EXT4:
                async with self._blocks(disk, draft) as blocks:
                    await ext4.make_filesystem(blocks)
            inside("formatted")
            await in_thread(Pool.DISKS, _publish, draft, file)
            inside("published")

    @asynccontextmanager
    async def _blocks(self, disk: Disk, draft: Path) -> AsyncIterator[Path]:
        """What the filesystem is made on: the file, or the device that encrypts it."""
        if not disk.encrypted:
            yield draft
        else:
            async with self._cipher(disk).fresh(disk, draft) as device:
                yield device

    def _cipher(self, disk: Disk) -> Ciphers:
        if self._ciphers is None:
            raise NotServed(f"volume {disk.id} is encrypted, and this node does not encrypt volumes")
        return self._ciphers

    async def grow(self, disk: Disk) -> bool:
        async with self.holding(disk.id):
            file, target = self._file_of(disk), self.mount_point(disk.id)
            if file.stat().st_size < disk.size_bytes:
                await in_thread(Pool.DISKS, enlarge, file, disk.size_bytes)
            inside("enlarged")
            if disk.fstype is not Fstype.EXT4:
                return True
            if is_mounted(target) and disk.encrypted:
                return await self._cipher(disk).grow_mounted(disk, file, target)
            if is_mounted(target):
                return is_grown(file) or await in_thread(Pool.DISKS, ext4.grow_mounted, file, target)
            if disk.guest_written:
                return False
            await self._unmount(disk.id)  # what an earlier daemon left when it died here
            grown = await self._mount(disk, self._growing(disk.id))
            inside("grown")
            await self._unmount(disk.id)
            return grown

    async def mount(self, disk: Disk) -> str:
        if disk.fstype is not Fstype.EXT4:
            raise BadRequest(f"volume {disk.id} has no filesystem, so it cannot be mounted")
        if disk.guest_written:
            raise guest_written_refusal(disk.id)
        async with self.holding(disk.id):
            if not is_mounted(self.mount_point(disk.id)):
                await self._unmount(disk.id)
                await self._mount(disk, self.mount_point(disk.id))
            return str(self.mount_point(disk.id))

    def _growing(self, volume_id: VolumeId) -> Path:
        """Where nobody uses it: what is mounted there is never taken for a machine's."""
        return self._directory / volume_id / "growing"

    async def _mount(self, disk: Disk, target: Path) -> bool:
        """Checked where that is needed, and as large as its file, which an extension may have made larger while it was
        in use. Whether it is: while another mount namespace holds the filesystem, it is in use, and grows as such."""
        file = self._file_of(disk)
        os.makedirs(target, exist_ok=True)
        if disk.encrypted:
            return await self._cipher(disk).mount(disk, file, target)
        if disk.repair and ext4.device_of(file) is None:
            await ext4.repair_filesystem(file)
        found, behind = read_superblock(file), not is_grown(file)
        if ext4.device_of(file) is None:
            if behind and not ext4.may_grow_mounted():
                await ext4.grow_unmounted(file)
                behind = False
            elif found is not None and not found.whole:
                await ext4.check_filesystem(file)
        inside("checked")
        with ext4.locked(file):
            ext4.mount_filesystem(file, target)
        inside("mounted")
        return not behind or await in_thread(Pool.DISKS, ext4.grow_mounted, file, target)

    async def unmount(self, volume_id: VolumeId, *, unless: Callable[[], bool] | None = None) -> None:
        async with self.holding(volume_id):
            if unless is not None and unless():
                return
            await self._unmount(volume_id)
        inside("given_back")

    async def _unmount(self, volume_id: VolumeId) -> None:
        for target in (self.mount_point(volume_id), self._growing(volume_id)):
            await in_thread(Pool.DISKS, unmount, target)
        if self._ciphers is not None:
            await self._ciphers.close(volume_id)

    async def usage(self, disk: Disk) -> Usage | None:
        return await in_thread(Pool.DISKS, self._usage, disk)

    def _usage(self, disk: Disk) -> Usage | None:
        if disk.fstype is not Fstype.EXT4:
            return None
        target = self.mount_point(disk.id)
        with suppress(OSError):
            if is_mounted(target):
                seen = os.statvfs(target)
                return Usage(seen.f_frsize, seen.f_blocks, seen.f_bfree, seen.f_bavail)
            found = read_superblock(self.file(disk.id))
            if found is not None:
                available = max(0, found.blocks_free - found.blocks_reserved)
                return Usage(found.block_size, found.blocks - found.overhead, found.blocks_free, available)
        return None

    async def size(self, volume_id: VolumeId) -> int | None:
        with suppress(FileNotFoundError):
            return self.file(volume_id).stat().st_size
        return None

    async def remove(self, volume_id: VolumeId) -> None:
        async with self.holding(volume_id):
            directory = self._directory / volume_id
            await self._unmount(volume_id)
            inside("detached")
            if directory.exists():
                self._trash.mkdir(parents=True, exist_ok=True)
                os.rename(directory, tempfile.mkdtemp(dir=self._trash))
            inside("removed")
        await self.sweep()

    async def list(self) -> list[VolumeId]:
        if not self._directory.is_dir():
            return []
        return [VolumeId(name) for name in sorted(os.listdir(self._directory)) if is_volume_id(name)]

    async def mounted(self) -> frozenset[VolumeId]:
        targets = await in_thread(Pool.DISKS, lambda: [each.target for each in mounts(self._directory)])
        return frozenset(VolumeId(each.parent.name) for each in targets if self._is_mount_point(each))

    async def strays(self) -> tuple[str, ...]:
        return await in_thread(Pool.DISKS, self._find_strays)

    def _find_strays(self) -> tuple[str, ...]:
        mounted = mounts()
        found = {each.target for each in mounted if self._directory in each.target.parents}  # it may be a disk itself
        used = {each.source for each in mounted}
        opened = frozenset() if self._ciphers is None else self._ciphers.opened()
        loose = (
            device for device, file in loops(self._directory) if device not in used and file.parent.name not in opened
        )
        return (*sorted(str(each) for each in found if not self._is_mount_point(each)), *loose)

    async def clear(self, stray: str) -> None:
        path = Path(stray)
        if path.is_relative_to("/dev"):
            return await in_thread(Pool.DISKS, detach_loop, stray)
        assert path.is_relative_to(self._directory)
        await in_thread(Pool.DISKS, unmount, path)

    async def sweep(self) -> None:
        await in_thread(Pool.DISKS, lambda: shutil.rmtree(self._trash, ignore_errors=True))

    async def held(self, volumes: Collection[VolumeId]) -> Mapping[VolumeId, tuple[str, ...]]:
        return await in_thread(Pool.DISKS, self._held, frozenset(volumes))

    def _held(self, volumes: frozenset[VolumeId]) -> dict[VolumeId, tuple[str, ...]]:
        devices = {Path(device): VolumeId(file.parent.name) for device, file in loops(self._directory)}
        if self._ciphers is not None:
            devices |= {self._ciphers.device(volume_id): volume_id for volume_id in self._ciphers.opened()}
        asked = {device: volume_id for device, volume_id in devices.items() if volume_id in volumes}
        return {asked[device]: tuple(map(str, found)) for device, found in mount_holders(asked).items()}

    async def lost_files(self, disk: Disk, lost: Sequence[FileRange]) -> LostFiles:
        if disk.encrypted:
            return LostFiles((), "the volume is encrypted, and its files are not named")
        if disk.fstype is not Fstype.EXT4:
            return LostFiles((), f"the volume is {disk.fstype}, and has no files")
        async with self.holding(disk.id):
            return await lost_files(self._file_of(disk), lost)

    async def lacks_encryption(self) -> str | None:
        return (
            "this node does not encrypt volumes"
            if self._ciphers is None
            else await self._ciphers.missing(self._directory)
        )

    def _is_mount_point(self, target: Path) -> bool:
        return target.name == "mounted" and target.parent.parent == self._directory

    def _file_of(self, disk: Disk) -> Path:
        file = self.file(disk.id)
        if not file.exists():
            raise NotFound(f"the file of volume {disk.id} is not on this host: {file}")
        return file


def is_grown(file: Path) -> bool:
    """Whether its filesystem is as large as the file, or is none."""
    found = read_superblock(file)
    return found is None or found.bytes >= file.stat().st_size


def _remove_drafts(directory: Path) -> None:
    """Of earlier tries; whoever still writes to one writes to a file without a name."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for draft in directory.glob(f"{_DRAFT}*"):
        draft.unlink()


def _sparse(directory: Path, size_bytes: int) -> Path:
    fd, name = tempfile.mkstemp(prefix=_DRAFT, dir=directory)
    try:
        os.ftruncate(fd, size_bytes)
    finally:
        os.close(fd)
    return Path(name)


def _publish(draft: Path, file: Path) -> None:
    """Durably: a volume that was acknowledged must have a whole file after a power cut."""
    _sync(draft, os.O_RDONLY)
    draft.rename(file)
    _sync(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    _sync(file.parent.parent, os.O_RDONLY | os.O_DIRECTORY)


def enlarge(file: Path, size_bytes: int) -> None:
    os.truncate(file, size_bytes)
    _sync(file, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
