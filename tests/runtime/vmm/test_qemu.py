"""QEMU itself, without a guest: that it takes our command line, and what it is told over QMP."""

import fcntl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hawker.clock import SystemClock
from hawker.errors import SnapshotLost, Unavailable
from hawker.ids import MachineId
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm.contract import Restored, Vm, VmDrive
from hawker.runtime.vmm.qemu import MEMORY_FILE, Qemu
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


async def test_what_is_no_memory_is_not_taken(run: RunDir) -> None:
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


async def test_who_is_gone_has_ended(run: RunDir) -> None:
    await QEMU.end(run)
    assert not (run.vmm / "qmp.sock").exists()
