"""The volumes of machines with kernels of their own: the same files, and nobody mounts them here. The guest's kernel
does, and what is on them is the tenant's from the first byte: the host reads no more of a file than its superblock, and
leaves checking and growing a filesystem that no guest has to the tools of ext4, as a user who owns nothing else.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Protocol

from hawker.errors import BadRequest, HawkerError, NotFound, NotServed, Unavailable, WrongState
from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.host import ext4
from hawker.host.block import loops
from hawker.host.ext4 import read_superblock
from hawker.host.mount import mounts
from hawker.host.sparse import draft
from hawker.ids import MachineId, NodeId, VolumeId
from hawker.machine import OFF, State
from hawker.record.machine import MACHINES
from hawker.record.volume import VOLUMES, Fstype
from hawker.runtime.driver import GuestVolumes, Inspection, Phase
from hawker.store.contract import Reader
from hawker.value_object import ValueObject
from hawker.volume.attachment import volume_name
from hawker.volume.disks import Disk, Usage
from hawker.volume.host_copies import LONGEST_FREEZE_S, HostCopies, written_at
from hawker.volume.host_disks import HostDisks, enlarge, is_grown
from hawker.volume.moved_files import FilePlace, HostMovedFiles, MovedFile


class Guests(GuestVolumes, Protocol):
    """The part of a driver that knows about guests and their volumes."""

    async def inspect(self, machine_id: MachineId) -> Inspection: ...


class Use(Enum):
    FREE = "free"  # no kernel has it, and none will without a launch: its file is the host's
    GUEST = "guest"  # a guest has it mounted, and can be asked
    HELD = "held"  # its guest is suspended: what the file lacks is in the snapshot of the guest's memory
    CHANGING = "changing"  # its machine is being started or ended: nobody may touch it, and that is soon over


class VolumeHold(ValueObject, frozen=True):
    """`machine_id` is there unless nobody's volume it is."""

    use: Use
    machine_id: MachineId | None = None


class VolumeUse:
    def __init__(self, store: Reader, guests: Guests) -> None:
        self._store = store
        self._guests = guests

    async def of(self, volume_id: VolumeId) -> VolumeHold:
        """The hold that a machine has of the volume, by host and record: an instance that the record has not heard of
        counts, and so does a launch to come."""
        volume = self._store.get(VOLUMES, volume_id)
        machine = None if volume is None or volume.machine is None else self._store.get(MACHINES, volume.machine)
        if machine is None:
            return VolumeHold(Use.FREE)
        match (await self._guests.inspect(machine.id)).phase:
            case Phase.SUSPENDED:
                return VolumeHold(Use.HELD, machine.id)
            case Phase.RUNNING if machine.state is State.STARTED:
                return VolumeHold(Use.GUEST, machine.id)
            case Phase.RUNNING:
                return VolumeHold(Use.CHANGING, machine.id)
        now = self._store.get(MACHINES, machine.id)
        off = now is None or now.state in OFF
        return VolumeHold(Use.FREE if off else Use.CHANGING, machine.id)


# Who has a volume now, where machines have kernels of their own: what the host may do with its file depends on it.

_NOT_ENCRYPTED = "volumes of machines with a kernel of their own are not encrypted yet"


class GuestDisks(HostDisks):
    """Keeps `disks.Disks`; what it calls mounted is what a guest has. `use` knows who."""

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
                if disk.repair:
                    await ext4.repair_filesystem(file, confined=True)
                await self._make_ready(file)
                inside("mounted")
        return str(file)

    async def _make_ready(self, file: Path) -> None:
        found = await in_thread(Pool.DISKS, read_superblock, file)
        if found is not None and not is_grown(file):
            await ext4.grow_unmounted(file, confined=True)
        elif found is not None and not found.whole:
            await ext4.check_filesystem(file, confined=True)
        inside("checked")
        with ext4.locked(file):  # a tool that an earlier daemon began may be at it still
            pass

    async def unmount(self, volume_id: VolumeId, *, unless: Callable[[], bool] | None = None) -> None:
        """Does nothing to the file: the guest's end has given it back."""
        inside("given_back")

    async def grow(self, disk: Disk) -> bool:
        async with self.holding(disk.id):
            file, hold = self._file_of(disk), await self._use.of(disk.id)
            if hold.use is Use.CHANGING:
                raise Unavailable(f"the machine of volume {disk.id} is being started or stopped")
            if file.stat().st_size < disk.size_bytes:
                await in_thread(Pool.DISKS, enlarge, file, disk.size_bytes)
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

    async def _grow_in_guest(self, hold: VolumeHold, disk: Disk) -> None:
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
        found = (str(each.target) for each in mounts(self._directory) if each.target != self._directory)
        return (*sorted(found), *(device for device, _ in loops(self._directory)))

    async def held(self, volumes: Collection[VolumeId]) -> Mapping[VolumeId, tuple[str, ...]]:
        return {}

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


class GuestMovedFiles(HostMovedFiles):
    """Keeps `MovedFiles`; what is mounted is mounted by guests."""

    def __init__(
        self,
        node: NodeId,
        directory: Path,
        place_of: Callable[[MovedFile], FilePlace],
        guests: Guests,
        use: VolumeUse,
        floor_bytes: int = 0,
    ) -> None:
        super().__init__(node, directory, place_of, floor_bytes)
        self._guests = guests
        self._use = use

    async def trim(self, file: MovedFile, start: int) -> int | None:
        """Trims by the kernel of the guest that has the file; by nobody where that guest has just ended, or is older
        than this call."""
        size, machine_id = self._existing(file).stat().st_size, await self._owner(file)
        if machine_id is None or start >= size:
            return None
        name = "" if file.layer else volume_name(VolumeId(file.id))
        try:
            await self._guests.trim_volume(machine_id, name, start, ext4.TRIMMED_AT_ONCE)
        except (NotFound, WrongState):
            return None
        return start + ext4.TRIMMED_AT_ONCE

    async def _owner(self, file: MovedFile) -> MachineId | None:
        if file.memory:
            return None
        if file.layer:
            machine_id = MachineId(file.id)
            return machine_id if (await self._guests.inspect(machine_id)).phase is Phase.RUNNING else None
        hold = await self._use.of(VolumeId(file.id))
        return hold.machine_id if hold.use is Use.GUEST else None


# Copies of volumes that guests have: a running guest holds its file system still meanwhile. That of a suspended one
# is not copied: what the guest had not written yet is in its snapshot, and would be missing from the copy without a
# word.


class GuestCopies(HostCopies):
    """Keeps `disks.Copies`."""

    def __init__(
        self, directory: Path, file_of: Callable[[VolumeId], Path], guests: Guests, use: VolumeUse, floor_bytes: int = 0
    ) -> None:
        super().__init__(directory, file_of, file_of, floor_bytes)
        self._guests = guests
        self._use = use

    async def mend(self, mounted: frozenset[VolumeId]) -> None:
        """A guest lets go by itself when nobody holds it still any more."""

    async def _draft_still(self, volume_id: VolumeId, source: Path, drafted: Path) -> bool:
        hold = await self._use.of(volume_id)
        match hold.use:
            case Use.HELD:
                raise WrongState(
                    f"machine {hold.machine_id}, which has volume {volume_id}, is suspended: start it first"
                )
            case Use.CHANGING:
                raise Unavailable(f"the machine of volume {volume_id} is being started or stopped")
            case Use.GUEST:
                assert hold.machine_id is not None, "a guest is of a machine"
                await self._draft_frozen(hold.machine_id, volume_id, source, drafted)
                return True
            case Use.FREE:
                before = written_at(source)
                await draft(source, drafted)
                return written_at(source) == before and (await self._use.of(volume_id)).use is Use.FREE

    async def _draft_frozen(self, machine_id: MachineId, volume_id: VolumeId, source: Path, drafted: Path) -> None:
        try:
            async with self._guests.freeze_volume(machine_id, volume_name(volume_id), LONGEST_FREEZE_S):
                inside("frozen")
                await draft(source, drafted)
        except (NotFound, WrongState) as error:
            raise Unavailable(f"the guest that had volume {volume_id} has just ended") from error
