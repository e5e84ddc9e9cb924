"""What the host has to sell, by its facts and the settings. Read anew when asked, since disks fill up by themselves."""

import msgspec

from hawker.config import MachineConfig, Persist, guest, persistence
from hawker.config.effective import rootfs_mib, temp_dirs
from hawker.gpu import parse_gpus
from hawker.host.facts import DiskSpace, Facts
from hawker.node import Capacity, Resources
from hawker.record.machine import MachineRecord
from hawker.settings import LEAST_LAYER_MIB, Settings
from hawker.worker.promised_disk import PromisedDisk

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
    """Of one that is off: nothing, but the disk that its writable layer takes if that is kept."""
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
    """What a machine with this config takes of its node while it runs; `disk_mib` where it asks for no root filesystem
    of a size."""
    size = guest(config)
    performance = size.cpu_kind == "performance"
    return Resources(
        shared_cpus=0 if performance else size.cpus,
        performance_cpus=size.cpus if performance else 0,
        memory_mib=size.memory_mb,
        disk_mib=(rootfs_mib(config) or disk_mib)
        + sum(each.size_mib for each in temp_dirs(config) if each.storage == "disk"),
    )
