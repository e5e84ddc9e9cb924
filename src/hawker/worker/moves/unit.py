"""What a unit is made of, on disk: its volume's file, the root filesystem that its machine keeps, and the memory of one
that is suspended. Whatever is done with the files of a move is done with each of them.
"""

from contextlib import suppress

from msgspec.structs import replace

from hawker.errors import HawkerError, NotServed
from hawker.fsm.contract import Resource
from hawker.ids import MachineId, VolumeId
from hawker.machine import State
from hawker.node import Resources
from hawker.record.machine import MACHINES, MachineRecord, machine_resource
from hawker.record.move import IncomingRecord, KeptMemory, KeptRoot, MemoryFile, MoveRecord
from hawker.record.volume import VOLUMES, VolumeRecord, volume_resource
from hawker.runtime.driver import Features
from hawker.runtime.saved_memory import SavedMemories
from hawker.volume.attachment import volume_id_of
from hawker.volume.disks import disk_of
from hawker.volume.losses import damaged_by
from hawker.volume.moved_files import MovedFile, MovedFiles
from hawker.worker.capacity import kept_layer
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.moves.destinations import COLD_START

_MIB = 1 << 20
_TRIM_S = 10.0


def files_of(deps: FlowDeps) -> MovedFiles:
    assert deps.moved_files is not None, "only a node with volumes or root filesystems moves one"
    return deps.moved_files


def unit_resource(move: MoveRecord | IncomingRecord) -> Resource:
    """The resource that runs about a move work on, at its source and once it has come."""
    return volume_resource(VolumeId(move.unit)) if move.machine is None else machine_resource(MachineId(move.unit))


def unit_files(move: MoveRecord | IncomingRecord) -> tuple[MovedFile, ...]:
    """The files that go along with a move; what a machine does not keep does not."""
    volume = move.volume.id if isinstance(move.volume, VolumeRecord) else move.volume
    found = [] if volume is None else [MovedFile(volume)]
    return (*found, *([] if move.root is None else [MovedFile(move.unit, move.root.layer)]), *memory_files(move))


def memory_files(move: MoveRecord | IncomingRecord) -> tuple[MovedFile, ...]:
    """The files of the memory, in the order in which they are put in place."""
    return () if move.memory is None else tuple(MovedFile(move.unit, memory=each.name) for each in move.memory.files)


def retired_key(file: MovedFile, generation: int) -> str:
    """The key of the record of a file that was put aside."""
    return f"{file.id}/{generation}/{file.memory}" if file.memory else f"{file.id}/{generation}"


async def stored_bytes(deps: FlowDeps, move: MoveRecord) -> int:
    """The bytes that the move's files take of the disk, together."""
    return sum([await files_of(deps).stored_bytes(each) for each in unit_files(move)])


async def trim(deps: FlowDeps, file: MovedFile) -> None:
    """Frees in the file what was deleted, so that it is not copied; not for long, and no move ends because of it."""
    until, start = deps.clock.monotonic() + _TRIM_S, 0
    with suppress(HawkerError):  # a guest that is busy, or does not answer
        while deps.clock.monotonic() < until:
            following = await files_of(deps).trim(file, start)
            if following is None:
                return
            start = following


def moved_volume(deps: FlowDeps, move: MoveRecord) -> VolumeRecord | None:
    """The volume as its next node has it: with what was lost on the way."""
    volume = None if move.volume is None else deps.store.get(VOLUMES, move.volume)
    return None if volume is None else damaged_by(volume, deps.others.there.me, move.lost, deps.clock.now())


def memories_of(deps: FlowDeps) -> SavedMemories | None:
    """The driver's saved memories; None where no memory of a suspended machine is a file."""
    return deps.driver if isinstance(deps.driver, SavedMemories) and deps.driver.features.disks else None


async def kept_memory(deps: FlowDeps, record: MachineRecord | None) -> KeptMemory | None:
    """The memory of a suspended machine, where it is files that move; None for all others. Raises `SnapshotLost`."""
    memories = memories_of(deps)
    if record is None or record.state is not State.SUSPENDED or record.running is None or memories is None:
        return None
    files = await memories.memory_files(record.id)
    if not files:
        return None
    named = tuple(MemoryFile(name=name, size_bytes=size) for name, size in files.items())
    running = replace(record.running, pid=None)
    return KeptMemory(saved_by=await memories.resumes(), files=named, running=running)


async def image_digest(deps: FlowDeps, record: MachineRecord) -> str:
    """The digest of the image's file that a suspended machine has read of. Raises `NotFound` where there is none."""
    memories = memories_of(deps)
    assert memories is not None, "only where memories are files one moves"
    return await memories.image_digest(deps.images.block_path(record.image.digest))


async def check_memory(deps: FlowDeps, memory: KeptMemory) -> None:
    """Checks that a machine can go on from `memory` here. Raises `NotServed` where it cannot go on."""
    memories = memories_of(deps)
    lacks = "this node's machines have no memories that are files" if memories is None else ""
    lacks = lacks or (memory.saved_by.lacks(await memories.resumes()) if memories is not None else "")
    if lacks:
        raise NotServed(f"{lacks}: {COLD_START}")


async def kept_root(deps: FlowDeps, record: MachineRecord | None, memory: KeptMemory | None = None) -> KeptRoot | None:
    """The root filesystem that the machine keeps, as it is now; None for a machine that keeps nothing, or has written
    nothing yet. A machine that goes on from its `memory` goes on with the layer of its instance. Raises `NotServed` for
    one that is no file."""
    layer = kept_layer(record) or (None if memory is None else memory.running.instance_id)
    if record is None or layer is None or deps.moved_files is None:
        return None
    size = await deps.moved_files.size_bytes(MovedFile(record.id, layer))
    if size is None:
        return None
    return KeptRoot(layer=layer, size_bytes=size, guest_written=deps.driver.features.disks)


async def reveal_suspended(deps: FlowDeps, move: MoveRecord | IncomingRecord) -> None:
    """The disks of a machine that is suspended here count as in use, as those of one that was suspended here."""
    record = deps.store.get(MACHINES, MachineId(move.unit))
    if record is None or move.memory is None or deps.rootfs is None:
        return
    instance = move.memory.running.instance_id
    layer = instance if move.root is None else move.root.layer
    await deps.rootfs.mount(record.id, instance, record.image.digest, kept=layer)
    volume_id = volume_id_of(record.config)
    volume = None if volume_id is None else deps.store.get(VOLUMES, volume_id)
    if volume is not None and deps.disks is not None:
        await deps.disks.mount(disk_of(volume))


def check_root(root: KeptRoot, features: Features) -> None:
    """Checks that a machine of this node can go on with the root. Raises `NotServed` where another kind of machine
    would have to go on with it."""
    if root.guest_written != features.disks:
        wrote, runs = ("a microVM", "no microVMs") if root.guest_written else ("a container", "microVMs")
        raise NotServed(f"{wrote} wrote the root filesystem that the machine keeps, and this node runs {runs}")


def with_root(room: Resources, root: KeptRoot | None) -> Resources:
    """The room with at least as much disk as the kept root may come to take."""
    return room if root is None else replace(room, disk_mib=max(room.disk_mib, -(-root.size_bytes // _MIB)))
