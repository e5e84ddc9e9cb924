"""What the host has to sell, by its facts and the settings. Read anew when asked, since disks fill up by themselves."""

from pathlib import Path

import msgspec

from hawker.config import MachineConfig, Persist, guest, persistence
from hawker.config.effective import temp_dirs
from hawker.gpu import parse_gpus
from hawker.host.facts import Facts, disk_of
from hawker.node import Capacity, Resources
from hawker.record.machine import MachineRecord
from hawker.settings import Settings

_MIB = 1 << 20
_KEPT_BACK = 0.05  # of the host's memory, for the host itself


class Room:
    def __init__(self, settings: Settings, facts: Facts) -> None:
        self._settings = settings
        self._facts = facts
        self._gpus = parse_gpus(settings.gpu_devices)

    def __call__(self) -> Capacity:
        """A disk with less left than the floor has no room at all, whatever the records say."""
        settings, facts = self._settings, self._facts
        memory_mib = int(facts.memory_mib * (1 - _KEPT_BACK)) if settings.memory_mib is None else settings.memory_mib
        return Capacity(
            cpus=settings.cpus or facts.cpus,
            memory_mib=memory_mib,
            disk_mib=self._disk_mib(settings.data_dir),
            shared_ratio=settings.shared_cpu_ratio,
            gpus=self._gpus,
        )

    def _disk_mib(self, directory: Path) -> int:
        disk = disk_of(directory)
        floor = self._settings.free_disk_floor_mib
        if disk.free_bytes // _MIB < floor:
            return 0
        return max(0, disk.total_bytes // _MIB - floor) if self._settings.disk_mib is None else self._settings.disk_mib


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
    asked = resources(config, settings.machine_disk_mib)
    return msgspec.structs.replace(asked, memory_mib=asked.memory_mib + overhead_mib)


def resources(config: MachineConfig, disk_mib: int) -> Resources:
    """What a machine with this config takes of its node while it runs."""
    size = guest(config)
    performance = size.cpu_kind == "performance"
    return Resources(
        shared_cpus=0 if performance else size.cpus,
        performance_cpus=size.cpus if performance else 0,
        memory_mib=size.memory_mb,
        disk_mib=disk_mib + sum(each.size_mib for each in temp_dirs(config) if each.storage == "disk"),
    )
