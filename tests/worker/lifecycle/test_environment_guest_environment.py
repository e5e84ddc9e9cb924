import msgspec

from hawker.config import Guest, Init
from hawker.config.machine import Mount
from hawker.ids import InstanceId, VolumeId
from hawker.image.config import ImageConfig
from hawker.runtime.spec import DiskLimits, GuestLink, RootDisk, VolumeDisk
from hawker.settings import Settings
from hawker.sim.node.sim_worker import config_of
from hawker.volume.attachment import volume_name
from hawker.worker.lifecycle.environment import GuestDiskFiles, Surroundings, disk_limits, instance_spec, with_kernel
from tests.worker.machines import machine

LINK = GuestLink(mac="02:00:00:00:00:01", addresses=("fdaa::3/64",), gateways=("fdaa::1",))
VOLUME = VolumeId("vol_0123456789abcdef")
AROUND = Surroundings(rootfs="/layer", netns="/ns", nameservers=(), pids=10, output_bytes=1, volume="/vol/disk")


def settings(**fields: object) -> Settings:
    return msgspec.convert({"data_dir": "/data", **fields}, Settings, dec_hook=lambda kind, value: kind(value))


def test_a_guest_has_block_files_where_a_container_has_directories() -> None:
    config = config_of(mounts=(Mount(volume=VOLUME, path="/data"),), guest=Guest(memory_mb=256, max_memory_mb=512))
    record = machine(config=config)
    spec = instance_spec(record, InstanceId("I1"), ImageConfig(cmd=("serve",)), AROUND)
    assert spec.rootfs == "/layer" and spec.mounts, "as a container would have it"
    guest = with_kernel(spec, record, GuestDiskFiles("/image", "/layer", "/vol/disk"), LINK, settings())
    assert (guest.rootfs, guest.mounts) == (None, ())
    assert guest.root_disk == RootDisk(image="/image", layer="/layer")
    assert guest.volumes == (VolumeDisk(name="0123456789abcdef", file="/vol/disk", target="/data"),)
    assert (guest.link, guest.netns, guest.max_memory_mib) == (LINK, "/ns", 512)
    assert guest.processes == spec.processes and guest.files == spec.files != ()


def test_the_kernels_arguments_of_guest_come_before_those_of_init() -> None:
    config = config_of(guest=Guest(kernel_args=("a=1",)), init=Init(kernel_args=("a=2", "b")))
    record = machine(config=config)
    spec = instance_spec(record, InstanceId("I1"), ImageConfig(cmd=("serve",)), AROUND)
    guest = with_kernel(spec, record, GuestDiskFiles("/image", "/layer"), None, settings())
    assert guest.kernel_args == ("a=1", "a=2", "b") and guest.volumes == () and guest.link is None


def test_disks_are_limited_by_setting() -> None:
    assert disk_limits(settings()) == DiskLimits()
    limited = disk_limits(settings(vm_disk_mib_per_s=3, vm_disk_operations_per_s=500))
    assert limited == DiskLimits(bytes_per_s=3 << 20, operations_per_s=500)


def test_a_volumes_name_is_one_that_a_disk_can_have() -> None:
    assert volume_name(VOLUME) == "0123456789abcdef" and len(volume_name(VolumeId("vol_" + "z" * 17))) <= 20
