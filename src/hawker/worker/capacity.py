"""What the host has to sell, by its facts and the settings. Read anew when asked, since disks fill up by themselves.

Of the disk, what is promised are the files of machines' layers and of volumes, whose sizes admission adds up; they are
sparse, so a part of them is stored already. Everything else (images, snapshots, logs, other users of the disk) takes
from what is free. So what can be promised is what is free and what is stored of promises. Adding up what is stored
looks at every file, so it is done now and then.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import msgspec

from hawker.clock import Clock
from hawker.config import MachineConfig, Persist, guest, persistence
from hawker.config.effective import rootfs_mib, temp_dirs
from hawker.fair.threads import Pool, in_thread
from hawker.gpu import parse_gpus
from hawker.host.facts import DiskSpace, Facts, disk_of
from hawker.host.sparse import allocated_bytes, shares_blocks
from hawker.log import bind
from hawker.node import Capacity, Resources
from hawker.place import Place
from hawker.record.machine import MachineRecord
from hawker.settings import LEAST_LAYER_MIB, Settings
from hawker.value_object import ValueObject
from hawker.volume.host_copies import BASE

MEASURE_EVERY_S = 5.0
_PROMISED = ("volumes/*/disk", "machines/*/disks/*", "machines/*/disks/*.volumes/*", "machines/*/layers/*/disk")

_log = bind("hawker.disk")


class _Measured(ValueObject, frozen=True):
    """`free_bytes` at the moment at which promises had stored `stored_bytes`."""

    free_bytes: int
    stored_bytes: int


class PromisedDisk:
    """`look` says how large the disk is and what is free."""

    def __init__(self, place: Place, look: Callable[[Path], DiskSpace] = disk_of) -> None:
        self._place = place
        self._look = look
        self._shares: bool | None = None
        self._measured = _Measured(free_bytes=self.free_bytes, stored_bytes=0)

    @property
    def free_bytes(self) -> int:
        return self._look(self._place.root).free_bytes

    @property
    def usable_bytes(self) -> int:
        """The bytes that the disk has for promises, never more than when it was measured last. Whoever has a promise
        and writes since makes it less until the next look; whoever gives back makes room for at most as much of what
        others wrote since."""
        return min(self.free_bytes, self._measured.free_bytes) + self._measured.stored_bytes

    async def serve(self, clock: Clock) -> None:
        while True:
            try:
                await in_thread(Pool.HOST, self.measure)
            except OSError as error:
                _log.warning("the data directory cannot be measured", extra={"error": str(error)})
            await clock.sleep(MEASURE_EVERY_S)

    def measure(self) -> None:
        """Look at every file of a promise. Where snapshots share blocks with volumes, a volume that is written anew
        needs new ones, so what snapshots store does not count as stored of volumes."""
        if self._shares is None:
            self._shares = shares_blocks(self._place.root)
        stored = sum(_stored(file) for pattern in _PROMISED for file in self._place.root.glob(pattern))
        if self._shares:
            stored = max(0, stored - sum(map(_stored, self._snapshots())))
        self._measured = _Measured(free_bytes=self.free_bytes, stored_bytes=stored)

    def _snapshots(self) -> Iterator[Path]:
        """Those that people see, and one of each volume's last backup."""
        return chain(self._place.snapshots.glob("*"), self._place.volumes.glob(f"*/{BASE}*"))


def _stored(file: Path) -> int:
    """Nothing for one that went meanwhile, and for directories."""
    try:
        return allocated_bytes(file) if file.is_file() else 0
    except FileNotFoundError:
        return 0


_MIB = 1 << 20
_KEPT_BACK = 0.05  # of the host's memory, for the host itself


class Room:
    """`disk` is the data directory's."""

    def __init__(self, settings: Settings, facts: Facts, disk: PromisedDisk) -> None:
        self._settings = settings
        self._facts = facts
        self._disk = disk
        self._gpus = parse_gpus(settings.gpu_devices)

    def __call__(self) -> Capacity:
        """A disk with less left than the floor has no room at all, whatever the records say."""
        settings, facts = self._settings, self._facts
        memory_mib = int(facts.memory_mib * (1 - _KEPT_BACK)) if settings.memory_mib is None else settings.memory_mib
        return Capacity(
            cpus=settings.cpus or facts.cpus,
            memory_mib=memory_mib,
            disk_mib=self._disk_mib(),
            shared_ratio=settings.shared_cpu_ratio,
            gpus=self._gpus,
        )

    def _disk_mib(self) -> int:
        """All that could be promised: what is free, and what those who were promised some have stored of it."""
        floor = self._settings.free_disk_floor_mib
        if self._disk.free_bytes // _MIB < floor:
            return 0
        if self._settings.disk_mib is not None:
            return self._settings.disk_mib
        return max(0, self._disk.usable_bytes // _MIB - floor)


MOST_LAYER_MIB = 8192
_LAYERS_ON_DISK = 32


def usual_layer_mib(settings: Settings, disk: DiskSpace, promised_mib: int) -> int:
    """The size of root filesystems where the settings name none: 8 GiB as at Fly, but at most a 32nd of what can be
    promised, since admission counts it whole, and at least 256 MiB. `promised_mib` is what the records promise already,
    of which some is free no more. Pure."""
    free_mib = disk.free_bytes // _MIB - settings.free_disk_floor_mib
    here_mib = min(disk.total_bytes // _MIB, free_mib + promised_mib)
    sold_mib = here_mib if settings.disk_mib is None else settings.disk_mib
    return max(LEAST_LAYER_MIB, min(MOST_LAYER_MIB, sold_mib // _LAYERS_ON_DISK))


# What a machine holds of its node while it rests: room, and what it has written. Pure.


def at_rest(record: MachineRecord) -> Resources:
    """The resources of a machine that is off: none, but the disk that its writable layer takes if that is kept."""
    if persistence(record.config) is Persist.NEVER:
        return Resources()
    return Resources(disk_mib=record.holds.disk_mib)


def kept_layer(record: MachineRecord | None) -> str | None:
    """The name of the writable layer that outlives an instance; None where none does."""
    if record is None:
        return None
    match persistence(record.config):
        case Persist.NEVER:
            return None
        case Persist.RESTART:
            return f"kept-{record.version}"
        case Persist.ALWAYS:
            return "kept"


# What a machine takes of this node while it runs: what its config asks for and, where it has a kernel of its own,
# what the monitor around it needs beside the guest's memory.


def room_for(settings: Settings, overhead_mib: int, config: MachineConfig) -> Resources:
    """`overhead_mib` is what the node's driver needs of memory for every machine, whatever its size."""
    asked = resources(config, settings.layer_mib)
    return msgspec.structs.replace(asked, memory_mib=asked.memory_mib + overhead_mib)


def resources(config: MachineConfig, disk_mib: int) -> Resources:
    """The resources that a machine with this config takes of its node while it runs; `disk_mib` counts where the config
    asks for no root filesystem of a size."""
    size = guest(config)
    performance = size.cpu_kind == "performance"
    return Resources(
        shared_cpus=0 if performance else size.cpus,
        performance_cpus=size.cpus if performance else 0,
        memory_mib=size.memory_mb,
        disk_mib=(rootfs_mib(config) or disk_mib)
        + sum(each.size_mib for each in temp_dirs(config) if each.storage == "disk"),
    )


# The node's pool of IPv4 addresses, which machines use for traffic outwards only.
