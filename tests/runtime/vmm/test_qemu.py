"""QEMU itself, without a guest: that it takes our command line, and what it is told over QMP."""

import fcntl
import itertools
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hawker.clock import SystemClock
from hawker.errors import SnapshotLost, Unavailable
from hawker.ids import MachineId
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import DiskLimits, GuestLink
from hawker.runtime.vmm.contract import Restored, Vm, VmDrive
from hawker.runtime.vmm.qemu import MEMORY_FILE, Qemu, command_line, node_of
from tests.kernel import boot_files
from tests.microvm import lack_of_qemu

pytestmark = [pytest.mark.anyio, pytest.mark.root]
QEMU = Qemu(SystemClock(), accelerates=False)


def machine(run: RunDir) -> Vm:
    (run.path / "disk").write_bytes(bytes(1 << 20))
    files = boot_files("bzImage")
    drives = (VmDrive("ledger", str(run.path / "disk"), read_only=False),)
    line = f"{QEMU.console()} quiet hawker.disks=ledger"
    return Vm(MachineId("m"), 1, 128, 192, str(files.kernel), str(files.initramfs), line, drives, str(run.vmm))


@contextmanager
def running(run: RunDir, vm: Vm, restored: Restored | None = None) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(QEMU.argv(vm, restored), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        (run.vmm / "qmp.sock").unlink(missing_ok=True)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDir]:
    """With a lock on its journal, as if a keeper held it."""
    if lack_of_qemu():
        pytest.skip(lack_of_qemu())
    run = RunDir(tmp_path / "m" / "run")
    (run.vmm / "snapshot").mkdir(parents=True)
    with run.journal.open("wb") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        yield run


async def test_memory_goes_to_a_file_and_comes_back(run: RunDir) -> None:
    vm, inside = machine(run), f"{run.vmm}/snapshot"
    with running(run, vm) as process:
        await QEMU.boot(vm, run, None)
        await QEMU.enlarge(run, "ledger", 2 << 20)
        await QEMU.save(vm, run, inside)
        with pytest.raises(Unavailable, match="File exists"):
            await QEMU.save(vm, run, inside)
        assert (run.vmm / "snapshot" / MEMORY_FILE).exists() is False, "half of one is nobody's"
        await QEMU.save(vm, run, inside)
        await QEMU.end(run)
        assert process.wait(timeout=60) == 0
    restored = Restored(inside, "")
    with running(run, vm, restored):
        await QEMU.boot(vm, run, restored)
        await QEMU.proceed(run)


async def test_a_text_that_is_no_memory_is_not_taken(run: RunDir) -> None:
    vm, restored = machine(run), Restored(f"{run.vmm}/snapshot", "")
    (run.vmm / "snapshot" / MEMORY_FILE).write_bytes(b"no memory at all" * 1000)
    with running(run, vm, restored), pytest.raises(SnapshotLost, match="does not take the snapshot"):
        await QEMU.boot(vm, run, restored)


async def test_a_link_in_the_memory_s_place_is_not_written_through(run: RunDir, tmp_path: Path) -> None:
    vm = machine(run)
    (run.vmm / "snapshot").rmdir()
    (tmp_path / "elsewhere").mkdir()
    (run.vmm / "snapshot").symlink_to(tmp_path / "elsewhere")
    with running(run, vm):
        await QEMU.boot(vm, run, None)
        with pytest.raises(Unavailable, match="cannot be opened"):
            await QEMU.save(vm, run, f"{run.vmm}/snapshot")
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_its_version_is_its_own_words(run: RunDir) -> None:
    assert (await QEMU.version()).startswith("QEMU emulator version ")


async def test_a_vmm_that_is_gone_has_ended(run: RunDir) -> None:
    await QEMU.end(run)
    assert not (run.vmm / "qmp.sock").exists()


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
    return command_line("/usr/bin/qemu", vm, accelerates=accelerates, restored=restored)


def values(argv: tuple[str, ...], option: str) -> list[str]:
    return [value for name, value in itertools.pairwise(argv) if name == option]


def objects(argv: tuple[str, ...], option: str) -> list[dict[str, object]]:
    return [json.loads(value) for value in values(argv, option) if value.startswith("{")]


def replaced(**changes: object) -> Vm:
    fields = {name: getattr(VM, name) for name in VM.__struct_fields__}
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
def test_the_devices_every_machine_has(option: str, value: str) -> None:
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
    device = {"driver": "virtio-blk-device", "drive": "disk-ledger", "serial": "ledger", "werror": "report"}
    assert device in objects(words(), "-device")


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
