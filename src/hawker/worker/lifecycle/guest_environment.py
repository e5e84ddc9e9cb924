"""What an instance with a kernel of its own has beyond what runs inside it: disks, a link, limits of both. Pure, and
complete enough to be stored, as `environment`.
"""

from dataclasses import dataclass

import msgspec

from hawker.record.machine import MachineRecord
from hawker.runtime.spec import DiskLimits, GuestLink, InstanceSpec, RootDisk, VolumeDisk
from hawker.settings import Settings
from hawker.volume.attachment import mount_of, volume_id_of, volume_name

_BYTES_PER_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Disks:
    """Block files of the host: the image's, the machine's own layer, and that of its volume if it has one."""

    image: str
    layer: str
    volume: str | None = None


def with_kernel(
    spec: InstanceSpec, record: MachineRecord, disks: Disks, link: GuestLink | None, settings: Settings
) -> InstanceSpec:
    """The same instance with block files where it had directories of the host."""
    return msgspec.structs.replace(
        spec,
        rootfs=None,
        mounts=(),
        root_disk=RootDisk(image=disks.image, layer=disks.layer),
        volumes=_volumes(record, disks.volume),
        link=link,
        disk_limits=disk_limits(settings),
        kernel_args=kernel_args(record),
        max_memory_mib=record.config.guest.max_memory_mb if record.config.guest is not None else None,
    )


def disk_limits(settings: Settings) -> DiskLimits:
    return DiskLimits(
        bytes_per_s=settings.vm_disk_mib_per_s * _BYTES_PER_MIB, operations_per_s=settings.vm_disk_operations_per_s
    )


def kernel_args(record: MachineRecord) -> tuple[str, ...]:
    """Those of `guest`, then those of `init`: the kernel takes the last of two that contradict each other."""
    parts = (record.config.guest, record.config.init)
    return tuple(arg for part in parts if part is not None for arg in part.kernel_args or ())


def _volumes(record: MachineRecord, file: str | None) -> tuple[VolumeDisk, ...]:
    mount, volume_id = mount_of(record.config), volume_id_of(record.config)
    if mount is None or volume_id is None or file is None:
        return ()
    assert mount.path is not None, "a mount without a path is refused"
    return (VolumeDisk(name=volume_name(volume_id), file=file, target=mount.path),)
