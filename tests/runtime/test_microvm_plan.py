"""What a machine's hardware is, from its spec alone."""

from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from hawker.clock import SystemClock
from hawker.errors import BadRequest, HawkerError, NotServed
from hawker.ids import InstanceId, MachineId
from hawker.runtime.microvm_launch import MicroVMFiles, MicroVMPlan, bounds, command_line, devices, make_plan
from hawker.runtime.spec import (
    DiskLimits,
    GuestLink,
    InstanceLimits,
    InstanceSpec,
    MountSpec,
    ProcessSpec,
    RootDisk,
    VolumeDisk,
)
from hawker.runtime.vmm.contract import JailGrant
from hawker.runtime.vmm.qemu import Qemu

LIMITS = InstanceLimits(cpus=2, cpu_weight=100, memory_mib=256, pids=64)
SPEC = InstanceSpec(
    machine_id=MachineId("0123456789abcd"),
    instance_id=InstanceId("I1"),
    hostname="h",
    processes=(ProcessSpec(argv=("true",), env={}),),
    limits=LIMITS,
    root_disk=RootDisk(image="/images/1", layer="/layers/1"),
    volumes=(
        VolumeDisk(name="data", file="/volumes/1", target="/data"),
        VolumeDisk(name="shared", file="/volumes/2", target="/shared", read_only=True),
    ),
    disk_limits=DiskLimits(operations_per_s=10),
    kernel_args=("loglevel=7", "nosmt"),
)
FILES = MicroVMFiles(Path("/kernels/k"), Path("/kernels/i"), Path("/run/journal"), Path("/run/vmm"))
QEMU = Qemu(SystemClock(), accelerates=False)


def plan(spec: InstanceSpec = SPEC) -> MicroVMPlan:
    return make_plan(spec, QEMU, lambda source, name: str(source), FILES, 13)


def changed(**changes: object) -> InstanceSpec:
    return msgspec.structs.replace(SPEC, **changes)


def test_disks_are_in_the_order_that_the_kernel_is_told() -> None:
    vm = plan().vm
    assert [drive.name for drive in vm.drives] == ["ledger", "image", "layer", "data", "shared"]
    assert [drive.name for drive in vm.drives if drive.read_only] == ["image", "shared"]
    assert "hawker.disks=ledger,image,layer,data,shared" in vm.command_line.split()
    assert {drive.limits for drive in vm.drives} == {DiskLimits(operations_per_s=10)}


def test_the_user_s_arguments_come_last() -> None:
    words = plan().vm.command_line.split()
    assert words[0] == "console=ttyS0" and words[-2:] == ["loglevel=7", "nosmt"]
    assert {"panic=-1", "reboot=t", "hawker.end=reboot", "hawker.timer=62500"} <= set(words)


def test_kernel_of_a_processor_that_is_real_measures_no_timer() -> None:
    assert "hawker.timer" not in command_line(SPEC, Qemu(SystemClock(), accelerates=True), ("ledger",))


def test_nothing_is_writable_but_what_is_its_own() -> None:
    grants = plan().grants()
    assert JailGrant(Path("/images/1"), "/images/1", writable=False) in grants
    writable = {str(grant.source) for grant in grants if grant.writable}
    assert writable == {"/run/journal", "/run/vmm", "/layers/1", "/volumes/1"}


def test_a_plan_can_be_kept() -> None:
    made = plan(changed(link=GuestLink(mac="02:00:00:00:00:01", addresses=("10.0.0.2/24",), gateways=())))
    assert msgspec.json.decode(msgspec.json.encode(made), type=MicroVMPlan) == made


@pytest.mark.parametrize(("most", "expected"), [(None, 256), (128, 256), (1024, 1024)])
def test_memory_can_grow_as_far_as_was_said(most: int | None, expected: int) -> None:
    vm = plan(changed(max_memory_mib=most)).vm
    assert (vm.memory_mib, vm.max_memory_mib) == (256, expected)


@pytest.mark.parametrize("argument", ["hawker.disks=x", "hawker.end", "init=/bin/sh", "rdinit=/bin/sh", "init"])
def test_a_word_of_the_platform_is_refused_by_name(argument: str) -> None:
    with pytest.raises(BadRequest, match=f"kernel_args: {argument.partition('=')[0]} is the platform's own"):
        plan(changed(kernel_args=(argument,)))


@pytest.mark.parametrize("argument", ["", "a b", 'a" hawker.end=x "', "a\nb", "caf\u00e9", "it's"])
def test_an_argument_is_one_word(argument: str) -> None:
    with pytest.raises(BadRequest, match="is not one word"):
        plan(changed(kernel_args=(argument,)))


@pytest.mark.parametrize("argument", ["initcall_debug", "hawker=1", "foo.init=1"])
def test_a_word_that_only_looks_like_it_is_let_through(argument: str) -> None:
    assert plan(changed(kernel_args=(argument,))).vm.command_line.endswith(f" {argument}")


def test_a_kernel_s_command_line_has_an_end() -> None:
    with pytest.raises(BadRequest, match="a kernel takes 2047"):
        plan(changed(kernel_args=("x" * 2048,)))


@pytest.mark.parametrize(
    ("spec", "error", "text"),
    [
        (changed(root_disk=None), BadRequest, "needs a root disk"),
        (changed(mounts=(MountSpec(source="/", target="/host"),)), NotServed, "use volumes"),
        (changed(gpus=("0000:65:00.0",)), NotServed, "cannot give devices"),
        (changed(limits=msgspec.structs.replace(LIMITS, swap_mib=1)), NotServed, "no swap"),
        (changed(volumes=(VolumeDisk(name="layer", file="/v", target="/v"),)), BadRequest, "are called layer"),
    ],
)
def test_an_impossible_plan_is_refused(spec: InstanceSpec, error: type[HawkerError], text: str) -> None:
    with pytest.raises(error, match=text):
        plan(spec)


def test_devices_are_those_that_it_needs() -> None:
    link = GuestLink(mac="02:00:00:00:00:01", addresses=(), gateways=())
    assert devices(SPEC, QEMU) == ()
    assert devices(changed(link=link), Qemu(SystemClock(), accelerates=True)) == ("/dev/kvm", "/dev/net/tun")


def test_the_bounds_have_room_for_the_vmm() -> None:
    found = bounds(LIMITS, 128)
    assert found.memory_bytes == found.swapped_bytes == 384 << 20
    assert found.cpu_quota_us == 2 * found.cpu_period_us
    assert found.pids > LIMITS.pids
    assert structs.replace(found, memory_bytes=0, swapped_bytes=0) == structs.replace(
        bounds(LIMITS, 0), memory_bytes=0, swapped_bytes=0
    )
