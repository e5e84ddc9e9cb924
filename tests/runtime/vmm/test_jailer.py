"""Facts about running Firecracker's jailer, with a program in its place that does what its documentation says, and a
script in the place of Firecracker. The real jailer was not here to be run."""

import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.errors import CannotStart, Unavailable
from hawker.host import netns
from hawker.ids import NodeId
from hawker.runtime import proc
from hawker.runtime.vmm import keeper
from hawker.runtime.vmm.contract import JailGrant
from hawker.runtime.vmm.jailer import FirecrackerJailer
from tests.conftest import Mark
from tests.runtime.vmm.cells import (
    MACHINE,
    UIDS,
    Prison,
    With,
    interpreter_grants,
    prison,
    python_grants,
    script_program,
)
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]

WAIT = "print('ready', flush=True); time.sleep(1000)"
DEVICES = ("/dev/kvm", "/dev/net/tun")


@pytest.fixture
async def cells(
    tmp_path: Path, node_id: NodeId, nothing_stray: Mark, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Prison]:
    nothing_stray(node_id)
    put_in_place(tmp_path / "bin", monkeypatch)
    script_program(tmp_path / "firecracker")
    async with prison(tmp_path, node_id, FirecrackerJailer) as made:
        yield made


def put_in_place(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir()
    stand_in = Path(__file__).with_name("stand_in_jailer.py")
    (directory / "jailer").write_text(f'#!/bin/sh\nexec {sys.executable} -I {shlex.quote(str(stand_in))} "$@"\n')
    (directory / "jailer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


async def launch(cells: Prison, script: str, *grants: JailGrant, netns: str | None = None) -> int:
    argv = (str(cells.directory / "firecracker"), "--api-sock", "/cell/vmm/api.sock", script)
    shown = (*grants, *interpreter_grants(), *python_grants())
    return await cells.launch(argv, With(grants=shown, devices=DEVICES, netns=netns))


async def launch_waiting(cells: Prison, netns: str | None = None) -> int:
    """A VMM that is in its cell, where the process was the jailer first, and has said what it will say: without its
    keeper, its next word would end it."""
    pid = await launch(cells, WAIT, netns=netns)
    await eventually(lambda: b"ready" in cells.jail.console(cells.run()))
    return pid


async def said(cells: Prison, script: str, *grants: JailGrant) -> list[str]:
    await launch(cells, script, *grants)
    return (await cells.end()).console.decode().splitlines()


def vmm_of(cells: Prison) -> int:
    vmm = keeper.read_record(cells.run()).vmm
    assert vmm is not None
    return vmm


def namespace(pid: int, kind: str) -> int:
    return os.stat(f"/proc/{pid}/ns/{kind}").st_ino


def text(path: str | Path) -> str:
    return Path(path).read_text()


def runs(pid: int) -> bool:
    """Whether it has not ended, be it that nobody has asked how."""
    try:
        return text(f"/proc/{pid}/cmdline") != ""
    except (FileNotFoundError, ProcessLookupError):
        return False


def write(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).write_text(name)


async def test_the_vmm_is_the_machine_s_user_in_namespaces_of_its_own(cells: Prison) -> None:
    await launch_waiting(cells)
    vmm = vmm_of(cells)
    assert os.stat(f"/proc/{vmm}/cmdline").st_uid == UIDS[MACHINE]
    for kind in ("mnt", "pid", "net", "ipc", "uts"):
        assert namespace(vmm, kind) != namespace(os.getpid(), kind)


async def test_the_vmm_is_the_keeper_s_child_and_in_every_control_group(cells: Prison) -> None:
    pid = await launch_waiting(cells)
    assert [entry.pid for entry in proc.descendants(pid)] == [vmm_of(cells)]
    assert not cells.cgroups.is_lost(MACHINE)
    assert cells.cgroups.usage(MACHINE).pids == 1
    assert text(cells.cgroups.group("pids", MACHINE) / "pids.max") == "32\n"


async def test_a_vmm_is_told_its_arguments_after_those_of_the_jailer(cells: Prison) -> None:
    [words] = await said(cells, "print(sys.argv[1:3], sys.argv[-3:-1])")
    assert words == f"['--id', '{MACHINE}'] ['--api-sock', '/cell/vmm/api.sock']"


async def test_a_granted_file_is_there_and_read_only_unless_given(cells: Prison) -> None:
    write(cells.directory, "kernel", "disk")
    grants = (
        JailGrant(cells.directory / "kernel", cells.jail.inside(cells.directory / "kernel", "kernel")),
        JailGrant(cells.directory / "disk", "/cell/disk", writable=True),
    )
    lines = await said(
        cells,
        "print(open('/cell/kernel').read(), tried(lambda: open('/cell/kernel', 'w')))\n"
        "print(tried(lambda: open('/cell/disk', 'r+').write('new')))\n"
        "print(tried(lambda: open('/cell/vmm/mine', 'w').write('mine')))\n"
        "print(sorted(os.listdir('/cell')), os.listdir('/dev'), os.path.exists('/proc/self'))",
        *grants,
    )
    assert lines == [
        "kernel no: OSError 30",
        "yes: 3",
        "yes: 4",
        "['disk', 'kernel', 'vmm'] ['kvm', 'net'] False",
    ]
    assert text(cells.directory / "disk") == "newk"
    assert text(cells.run().vmm / "mine") == "mine"


async def test_a_mount_a_vmm_sees_is_mounted_for_nobody_else(cells: Prison) -> None:
    pid = await launch_waiting(cells)
    assert str(cells.directory) not in text("/proc/self/mountinfo")
    assert namespace(pid, "mnt") == namespace(os.getpid(), "mnt"), "the keeper holds none of it"


async def test_a_file_left_in_its_root_is_gone_before_the_next_launch(cells: Prison) -> None:
    """Its root is its own: it may put a link where the host, or the next jailer, will make something."""
    script = "os.rename('/cell', '/moved'); os.symlink('/etc', '/cell'); os.mkdir('/old_root'); print('done')"
    assert await said(cells, script) == ["done"]
    assert await said(cells, "print(sorted(os.listdir('/cell')))") == ["['vmm']"]


async def test_a_machine_without_a_network_has_an_empty_one(cells: Prison) -> None:
    await launch_waiting(cells)
    assert text(f"/proc/{vmm_of(cells)}/net/dev").count("\n") == 3, "two lines of heading, and lo"


async def test_a_machine_s_network_is_joined(cells: Prison) -> None:
    path = cells.directory / "netns"
    netns.create(path, lambda _: None)
    try:
        await launch_waiting(cells, str(path))
        assert namespace(vmm_of(cells), "net") == os.stat(path).st_ino
    finally:
        netns.delete(path)


async def test_the_lock_is_the_keeper_s_alone(cells: Prison) -> None:
    """The jailer closes what it inherits. So when a keeper is killed its machine looks dead, and runs."""
    pid = await launch_waiting(cells)
    vmm = vmm_of(cells)
    assert cells.run().alive()
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not cells.run().alive())
    assert runs(vmm)
    await cells.jail.kill(MACHINE, cells.run(), pid)
    assert cells.jail.ended(cells.run()) is None
    assert not runs(vmm)


async def test_a_vmm_without_a_keeper_is_ended_before_another_is_launched(cells: Prison) -> None:
    pid = await launch_waiting(cells)
    first = vmm_of(cells)
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not cells.run().alive())
    await launch(cells, WAIT)
    assert vmm_of(cells) != first
    await eventually(lambda: cells.cgroups.usage(MACHINE).pids == 1)


async def test_kill_and_clear_leave_nothing(cells: Prison) -> None:
    pid = await launch(cells, WAIT)
    for _ in range(2):
        await cells.jail.kill(MACHINE, cells.run(), pid)
        await cells.jail.clear(MACHINE, cells.run())
    end = cells.jail.ended(cells.run())
    assert end is not None and end.status == -signal.SIGKILL
    assert cells.cgroups.list() == []
    assert "jail" not in os.listdir(cells.run().path)


async def test_a_jailer_that_refuses_is_told_with_its_words(cells: Prison) -> None:
    with pytest.raises(Unavailable, match=f"the VMM of machine {MACHINE}: .*No such file or directory"):
        await launch(cells, WAIT, netns="/nonexistent")
    assert cells.cgroups.list() == []


async def test_other_devices_than_the_jailer_makes_are_refused(cells: Prison) -> None:
    with pytest.raises(Unavailable, match="/dev/kvm and /dev/net/tun alone"):
        await cells.launch(("/usr/bin/firecracker",), With(devices=("/dev/vfio/vfio",)))


async def test_a_host_without_the_jailer_is_told_where_it_is_found(
    cells: Prison, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CannotStart, match="jailer is missing: install Firecracker's jailer"):
        await cells.jail.check()
