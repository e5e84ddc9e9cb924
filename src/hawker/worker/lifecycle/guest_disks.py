"""The volumes of machines with kernels of their own: the same files, and nobody mounts them here. The guest's kernel
does, and what is on them is the tenant's from the first byte: the host reads no more of a file than its superblock, and
leaves checking and growing a filesystem that no guest has to the tools of ext4, as a user who owns nothing else.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anyio import to_thread

from hawker.errors import BadRequest, HawkerError, NotFound, NotServed, Unavailable, WrongState
from hawker.failpoint import inside
from hawker.host import ext4
from hawker.host.block import loops
from hawker.host.mount import mounts
from hawker.host.superblock import read_superblock
from hawker.ids import VolumeId
from hawker.record.volume import Fstype
from hawker.worker.lifecycle.disks import HostDisks, enlarge, is_grown
from hawker.worker.lifecycle.guest_environment import volume_name
from hawker.worker.lifecycle.volume_use import Guests, Hold, Use, VolumeUse
from hawker.worker.volumes.disks import Disk, Usage

_NOT_ENCRYPTED = "volumes of machines with a kernel of their own are not encrypted yet"


class GuestDisks(HostDisks):
    """Keeps `deps.Disks`; what it calls mounted is what a guest has. `use` knows who."""

    def __init__(self, directory: Path, guests: Guests, use: VolumeUse) -> None:
        super().__init__(directory)
        self._guests = guests
        self._use = use

    async def mount(self, disk: Disk) -> str:
        """The file, checked where that is needed and its filesystem as large as it; as it is when a guest has it."""
        if disk.fstype is not Fstype.EXT4:
            raise BadRequest(f"volume {disk.id} has no filesystem, so it cannot be mounted")
        if disk.encrypted:
            raise NotServed(f"volume {disk.id} is encrypted: {_NOT_ENCRYPTED}")
        async with self.holding(disk.id):
            file = self._file_of(disk)
            if (await self._use.of(disk.id)).use not in (Use.GUEST, Use.HELD):
                await self._make_ready(file)
                inside("mounted")
        return str(file)

    async def _make_ready(self, file: Path) -> None:
        found = await to_thread.run_sync(read_superblock, file)
        if found is not None and not is_grown(file):
            await ext4.grow_unmounted(file, confined=True)
        elif found is not None and not found.whole:
            await ext4.check_filesystem(file, confined=True)
        inside("checked")
        with ext4.locked(file):  # a tool that an earlier daemon began may be at it still
            pass

    async def unmount(self, volume_id: VolumeId, *, unless: Callable[[], bool] | None = None) -> None:
        """Nothing to do: the guest's end has given it back."""
        inside("given_back")

    async def grow(self, disk: Disk) -> bool:
        async with self.holding(disk.id):
            file, hold = self._file_of(disk), await self._use.of(disk.id)
            if hold.use is Use.CHANGING:
                raise Unavailable(f"the machine of volume {disk.id} is being started or stopped")
            if file.stat().st_size < disk.size_bytes:
                await to_thread.run_sync(enlarge, file, disk.size_bytes)
            inside("enlarged")
            if disk.fstype is not Fstype.EXT4:
                return True
            if hold.use is Use.HELD:
                return False
            if hold.use is Use.GUEST:
                await self._grow_in_guest(hold, disk)
            else:
                await self._make_ready(file)
            inside("grown")
            return True

    async def _grow_in_guest(self, hold: Hold, disk: Disk) -> None:
        assert hold.machine_id is not None, "a guest is of a machine"
        with _while_it_runs(disk.id):
            await self._guests.grow_volume(hold.machine_id, volume_name(disk.id), disk.size_bytes)

    async def usage(self, disk: Disk) -> Usage | None:
        hold = await self._use.of(disk.id)
        if hold.use is Use.GUEST and hold.machine_id is not None:
            with suppress(HawkerError):  # a guest that is busy, or does not answer: then what it wrote last
                told = await self._guests.volume_usage(hold.machine_id, volume_name(disk.id))
                return _believable(told.block_size, told.blocks, told.blocks_free, told.blocks_avail, disk)
        return await super().usage(disk)

    async def mounted(self) -> frozenset[VolumeId]:
        uses = {volume_id: (await self._use.of(volume_id)).use for volume_id in await self.list()}
        return frozenset(volume_id for volume_id, use in uses.items() if use in (Use.GUEST, Use.HELD))

    def _find_strays(self) -> tuple[str, ...]:
        """Nothing of a volume is mounted here, or has a loop device."""
        found = (str(each.target) for each in mounts(self._directory))
        return (*sorted(found), *(device for device, _ in loops(self._directory)))

    async def lacks_encryption(self) -> str | None:
        return _NOT_ENCRYPTED


@contextmanager
def _while_it_runs(volume_id: VolumeId) -> Iterator[None]:
    """A guest that ended, or was suspended, in between: whoever asked comes again and finds it so."""
    try:
        yield
    except (NotFound, WrongState) as error:
        raise Unavailable(f"the guest that had volume {volume_id} has just ended") from error


def _believable(block_size: int, blocks: int, free: int, available: int, disk: Disk) -> Usage | None:
    """What a guest says, if it can be so: growth by itself, and the bill, go by it."""
    sound = block_size > 0 and 0 <= available <= free <= blocks and blocks * block_size <= disk.size_bytes
    return Usage(block_size, blocks, free, available) if sound else None
