"""What a unit is made of, on disk: its volume's file, and the root filesystem that its machine keeps. Whatever is done
with the files of a move is done with each of them.
"""

from msgspec.structs import replace

from hawker.errors import NotServed
from hawker.fsm.contract import Resource
from hawker.ids import MachineId, VolumeId
from hawker.node import Resources
from hawker.record.machine import MachineRecord, machine_resource
from hawker.record.move import IncomingRecord, KeptRoot, MoveRecord
from hawker.record.volume import VOLUMES, VolumeRecord, volume_resource
from hawker.runtime.driver import Features
from hawker.volume.losses import damaged_by
from hawker.volume.moved_files import MovedFile, MovedFiles
from hawker.worker.capacity import kept_layer
from hawker.worker.lifecycle.deps import FlowDeps

_MIB = 1 << 20
_TRIM_S = 10.0


def files_of(deps: FlowDeps) -> MovedFiles:
    assert deps.moved_files is not None, "only a node with volumes or root filesystems moves one"
    return deps.moved_files


def unit_resource(move: MoveRecord | IncomingRecord) -> Resource:
    """What runs about it work on, at its source and once it has come."""
    return volume_resource(VolumeId(move.unit)) if move.machine is None else machine_resource(MachineId(move.unit))


def unit_files(move: MoveRecord | IncomingRecord) -> tuple[MovedFile, ...]:
    """Those that go along; what a machine does not keep does not."""
    volume = move.volume.id if isinstance(move.volume, VolumeRecord) else move.volume
    found = [] if volume is None else [MovedFile(volume)]
    return (*found, *([] if move.root is None else [MovedFile(move.unit, move.root.layer)]))


async def stored_bytes(deps: FlowDeps, move: MoveRecord) -> int:
    """What the files take of the disk, together."""
    return sum([await files_of(deps).stored_bytes(each) for each in unit_files(move)])


async def trim(deps: FlowDeps, file: MovedFile) -> None:
    """What was deleted is not copied; not for long."""
    until, start = deps.clock.monotonic() + _TRIM_S, 0
    while deps.clock.monotonic() < until:
        following = await files_of(deps).trim(file, start)
        if following is None:
            return
        start = following


def moved_volume(deps: FlowDeps, move: MoveRecord) -> VolumeRecord | None:
    """As its next node has it: with what was lost on the way."""
    volume = None if move.volume is None else deps.store.get(VOLUMES, move.volume)
    return None if volume is None else damaged_by(volume, deps.others.there.me, move.lost, deps.clock.now())


async def kept_root(deps: FlowDeps, record: MachineRecord | None) -> KeptRoot | None:
    """What is there of it now; None for a machine that keeps nothing, or has written nothing yet. Raises `NotServed`
    for one that is no file."""
    layer = kept_layer(record)
    if record is None or layer is None or deps.moved_files is None:
        return None
    size = await deps.moved_files.size_bytes(MovedFile(record.id, layer))
    if size is None:
        return None
    return KeptRoot(layer=layer, size_bytes=size, guest_written=deps.driver.features.disks)


def check_root(root: KeptRoot, features: Features) -> None:
    """Raises `NotServed` where another kind of machine would have to go on with it."""
    if root.guest_written != features.disks:
        wrote, runs = ("a microVM", "no microVMs") if root.guest_written else ("a container", "microVMs")
        raise NotServed(f"{wrote} wrote the root filesystem that the machine keeps, and this node runs {runs}")


def with_root(room: Resources, root: KeptRoot | None) -> Resources:
    """At least as much disk as what is kept may come to take."""
    return room if root is None else replace(room, disk_mib=max(room.disk_mib, -(-root.size_bytes // _MIB)))
