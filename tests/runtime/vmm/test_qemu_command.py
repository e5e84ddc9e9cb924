"""The command line that QEMU is given, word by word."""

import itertools
import json

import pytest

from hawker.ids import MachineId
from hawker.runtime.spec import DiskLimits, GuestLink
from hawker.runtime.vmm.contract import Vm, VmDrive
from hawker.runtime.vmm.qemu_command import command, node_of

VM = Vm(
    machine_id=MachineId("0123456789abcd"),
    cpus=2,
    memory_mib=256,
    max_memory_mib=512,
    kernel="/cell/kernel",
    initramfs="/cell/initramfs",
    command_line="console=ttyS0 hawker.disks=ledger",
    drives=(VmDrive("ledger", "/cell/ledger", read_only=False),),
    directory="/cell/vmm",
)


def words(vm: Vm = VM, *, accelerates: bool = False, restored: bool = False) -> tuple[str, ...]:
    return command("/usr/bin/qemu", vm, accelerates=accelerates, restored=restored)


def values(argv: tuple[str, ...], option: str) -> list[str]:
    return [value for name, value in itertools.pairwise(argv) if name == option]


def objects(argv: tuple[str, ...], option: str) -> list[dict[str, object]]:
    return [json.loads(value) for value in values(argv, option) if value.startswith("{")]


def replaced(**changes: object) -> Vm:
    fields = {name: getattr(VM, name) for name in VM.__slots__}
    return Vm(**{**fields, **changes})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("-name", "0123456789abcd"),
        ("-smp", "2"),
        ("-m", "size=512M"),
        ("-kernel", "/cell/kernel"),
        ("-initrd", "/cell/initramfs"),
        ("-append", "console=ttyS0 hawker.disks=ledger"),
        ("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"),
        ("-mon", "chardev=monitor,mode=control"),
        ("-serial", "chardev:console"),
    ],
)
def test_what_every_machine_has(option: str, value: str) -> None:
    assert values(words(), option) == [value]


def test_nothing_comes_that_was_not_asked_for() -> None:
    argv = words()
    assert argv[0] == "/usr/bin/qemu"
    assert {"-nodefaults", "-no-user-config", "-no-reboot"} <= set(argv)
    assert values(argv, "-netdev") == [] and values(argv, "-incoming") == []


@pytest.mark.parametrize(("accelerates", "accel", "cpu"), [(True, "kvm", "host"), (False, "tcg", "max")])
def test_the_processor_is_the_host_s_or_emulated(accelerates: bool, accel: str, cpu: str) -> None:
    argv = words(accelerates=accelerates)
    assert values(argv, "-accel")[0].partition(",")[0] == accel
    assert values(argv, "-cpu") == [cpu]


def test_a_disk_is_written_through_the_host_s_cache_without_a_lock_of_qemu_s() -> None:
    [disk] = objects(words(replaced(drives=(VmDrive("layer", "/cell/layer", read_only=False),))), "-blockdev")
    assert disk["node-name"] == node_of("layer") and disk["read-only"] is False
    assert disk["cache"] == {"direct": False, "no-flush": False}
    assert (disk["discard"], disk["detect-zeroes"]) == ("unmap", "unmap")
    file = disk["file"]
    assert isinstance(file, dict) and (file["filename"], file["locking"]) == ("/cell/layer", "off")
    assert {"driver": "virtio-blk-device", "drive": "disk-ledger", "serial": "ledger"} in objects(words(), "-device")


def test_a_ledger_has_no_holes() -> None:
    [disk] = objects(words(), "-blockdev")
    assert disk["detect-zeroes"] == "off"


def test_an_image_cannot_be_written_to() -> None:
    [disk] = objects(words(replaced(drives=(VmDrive("image", "/i", read_only=True),))), "-blockdev")
    file = disk["file"]
    assert disk["read-only"] is True and isinstance(file, dict) and file["read-only"] is True


def test_a_limit_is_a_throttle_above_the_disk() -> None:
    limits = DiskLimits(bytes_per_s=1 << 20, operations_per_s=50)
    argv = words(replaced(drives=(VmDrive("layer", "/l", read_only=False, limits=limits),)))
    [group] = [made for made in objects(argv, "-object") if made.get("qom-type") == "throttle-group"]
    assert group["limits"] == {"bps-total": 1 << 20, "iops-total": 50}
    [disk] = objects(argv, "-blockdev")
    assert (disk["driver"], disk["throttle-group"], disk["node-name"]) == ("throttle", group["id"], "disk-layer")


def test_a_path_with_a_comma_is_one_path() -> None:
    argv = words(replaced(directory="/a,b"))
    assert [value for value in values(argv, "-chardev") if "monitor" in value] == [
        "socket,id=monitor,path=/a,,b/qmp.sock,server=on,wait=off"
    ]


def test_ports_are_the_descriptors_after_the_ledger_s() -> None:
    argv = words(replaced(fds=3))
    assert [value for value in values(argv, "-chardev") if "fd=" in value] == [
        "socket,id=port0,fd=4,server=on,wait=off",
        "socket,id=port1,fd=5,server=on,wait=off",
    ]
    ports = [made for made in objects(argv, "-device") if made["driver"] == "virtserialport"]
    assert [(port["name"], port["nr"], port["chardev"]) for port in ports] == [
        ("hawker.0", 1, "port0"),
        ("hawker.1", 2, "port1"),
    ]


def test_a_link_is_a_tap_that_is_there_already() -> None:
    link = GuestLink(mac="02:00:00:00:00:01", addresses=("10.0.0.2/24",), gateways=(), mtu=1400)
    argv = words(replaced(link=link))
    assert values(argv, "-netdev") == ["tap,id=link,ifname=tap0,script=no,downscript=no,vhost=off"]
    [card] = [made for made in objects(argv, "-device") if made["driver"] == "virtio-net-device"]
    assert (card["mac"], card["host_mtu"]) == ("02:00:00:00:00:01", 1400)


def test_a_restored_machine_waits_for_its_memory_and_for_a_word() -> None:
    argv = words(restored=True)
    assert values(argv, "-incoming") == ["defer"] and argv[-1] == "-S"
    assert argv[: len(words())] == words(), "its hardware is the same"
