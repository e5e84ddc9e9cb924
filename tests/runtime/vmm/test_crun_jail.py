"""Facts about a jail of crun's, with a small program in the place of a VMM. What cannot be done in it: tests/escape."""

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from hawker.errors import CannotStart, Unavailable
from hawker.host.cgroup import Cgroups, Hierarchies
from hawker.ids import NodeId
from hawker.runtime import proc
from hawker.runtime.crun import Crun
from hawker.runtime.vmm import keeper
from hawker.runtime.vmm.contract import JailGrant
from hawker.runtime.vmm.crun_jail import CrunJail
from tests.conftest import Mark
from tests.runtime.vmm.cells import MACHINE, OTHER, Prison, With, prison
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]

SLEEP = ("/usr/bin/sleep", "1000")
QEMU = shutil.which("qemu-system-x86_64")


@pytest.fixture
async def cells(tmp_path: Path, node_id: NodeId, nothing_stray: Mark) -> AsyncIterator[Prison]:
    nothing_stray(node_id)
    async with prison(tmp_path, node_id) as made:
        yield made


async def test_a_vmm_runs_in_the_control_group_of_its_machine(cells: Prison) -> None:
    await cells.launch(SLEEP)
    assert cells.run().alive()
    assert cells.cgroups.list() == [MACHINE]
    assert not cells.cgroups.is_lost(MACHINE)
    assert cells.cgroups.usage(MACHINE).pids == 1


async def test_its_bounds_are_enforced_on_it_but_not_on_its_keeper(cells: Prison) -> None:
    pid = await cells.launch(SLEEP)
    group = cells.cgroups.group("pids", MACHINE)
    assert (group / "pids.max").read_text() == "32\n"
    assert (group / "cgroup.procs").read_text().split() == [str(keeper.read_record(cells.run()).vmm)]
    assert pid != keeper.read_record(cells.run()).vmm


async def test_its_end_is_told_with_what_it_said(cells: Prison) -> None:
    await cells.launch(("/usr/bin/printf", "panic: %s", "no init"))
    end = await cells.end()
    assert (end.status, end.console) == (0, b"panic: no init")
    assert not cells.run().alive()


async def test_kill_ends_everything_and_may_be_called_again(cells: Prison) -> None:
    pid = await cells.launch(SLEEP)
    for _ in range(2):
        await cells.jail.kill(MACHINE, cells.run(), pid)
        end = cells.jail.ended(cells.run())
        assert end is not None and end.status == -signal.SIGKILL
        assert not cells.run().alive()
    for _ in range(2):
        await cells.jail.clear(MACHINE, cells.run())
        assert cells.cgroups.list() == []


async def test_nobody_there_is_no_error(cells: Prison) -> None:
    await cells.jail.kill(MACHINE, cells.run(), None)
    await cells.jail.clear(MACHINE, cells.run())
    assert cells.jail.ended(cells.run()) is None
    assert cells.jail.console(cells.run()) == b""


async def test_a_machine_can_be_launched_again_with_nothing_of_before(cells: Prison) -> None:
    await cells.launch(("/usr/bin/printf", "first"))
    await cells.end()
    await cells.launch(SLEEP)
    assert cells.jail.ended(cells.run()) is None
    assert cells.jail.console(cells.run()) == b""


async def test_kill_of_one_machine_leaves_the_other(cells: Prison) -> None:
    pid = await cells.launch(SLEEP)
    await cells.launch(SLEEP, With(machine_id=OTHER))
    await cells.jail.kill(MACHINE, cells.run(), pid)
    await cells.jail.clear(MACHINE, cells.run())
    assert cells.run(OTHER).alive()
    assert cells.cgroups.list() == [OTHER]


async def test_a_launch_that_fails_says_why_and_leaves_nothing(cells: Prison) -> None:
    with pytest.raises(Unavailable, match=f"crun cannot start the VMM of machine {MACHINE}: .*/nonexistent"):
        await cells.launch(SLEEP, With(netns="/nonexistent"))
    assert cells.cgroups.list() == []
    await eventually(lambda: not cells.run().alive())
    assert cells.jail.ended(cells.run()) is None


async def test_a_device_that_is_not_there_is_named(cells: Prison) -> None:
    with pytest.raises(Unavailable, match="the device /dev/nonexistent is not there: No such file"):
        await cells.launch(SLEEP, With(devices=("/dev/nonexistent",)))


async def test_a_launch_that_goes_on_is_ended_before_all_else(
    cells: Prison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the daemon died in a launch: its keeper still waits for crun, which would make the machine anew."""
    slow = tmp_path / "bin/crun"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 1000\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    run = cells.run()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_refused, cells)
        await eventually(lambda: keeper.read_record(run).keeper is not None)
        assert run.alive()
        await cells.jail.kill(MACHINE, run, None)
        pid = keeper.read_record(run).keeper
        assert pid is not None and not proc.has_open(pid, run.journal)


async def _refused(cells: Prison) -> None:
    with pytest.raises(Unavailable):
        await cells.launch(SLEEP)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    """A loop device stands for an opened LUKS volume."""
    file = tmp_path / "volume"
    file.write_bytes(bytes(1 << 20))
    asked = ["losetup", "--find", "--show", str(file)]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    yield Path(found)
    subprocess.run(["losetup", "--detach", found], check=True)


async def test_a_disk_that_is_a_device_is_one_in_the_jail(cells: Prison, device: Path) -> None:
    assert cells.jail.inside(device, "data") == "/dev/data"
    assert cells.jail.inside(cells.directory / "file", "data") == "/cell/data"
    for writable, said in ((True, "yes: 3"), (False, "no: PermissionError 13")):
        wish = With(grants=(JailGrant(device, "/dev/data", writable=writable),))
        assert await cells.tries("os.pwrite(os.open('/dev/data', os.O_RDWR), b'new', 0)", wish) == said
    assert _owner(device) == 0


def _owner(path: Path) -> int:
    return path.stat().st_uid


@pytest.mark.skipif(QEMU is None, reason="QEMU is not on this host")
async def test_qemu_runs_in_it_with_its_own_sandbox(cells: Prison) -> None:
    """It finds libraries, firmware and its accelerator; there is no kernel, so the firmware has nothing to start."""
    sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
    argv = [str(QEMU), "-M", "microvm,acpi=on", "-accel", "tcg", "-m", "32", "-nodefaults", "-no-user-config"]
    argv += ["-nographic", "-sandbox", sandbox, "-qmp", "unix:/cell/vmm/qmp,server=on,wait=off", "-serial", "stdio"]
    await cells.launch(argv)
    socket = cells.run().vmm / "qmp"
    await eventually(lambda: socket.is_socket() or cells.jail.ended(cells.run()))
    assert cells.jail.ended(cells.run()) is None, cells.jail.console(cells.run())


async def test_the_host_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = Cgroups(NodeId("ab12cd34"), Hierarchies({}, None))
    with pytest.raises(CannotStart, match="no cgroups are mounted"):
        await CrunJail(Crun(tmp_path, none), none).check()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CannotStart, match="microVMs need root"):
        await CrunJail(Crun(tmp_path, none), none).check()
