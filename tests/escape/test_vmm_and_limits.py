"""Attempts of a VMM that its guest has taken over, at what it may use and how long it may live. A script is in its
place, in the jail that a VMM gets."""

import os
import signal

import pytest
from msgspec.structs import replace

from hawker.runtime import proc
from hawker.runtime.vmm import keeper
from tests.runtime.vmm.cells import BOUNDS, MACHINE, MIB, UIDS, Prison, With
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]


def processes_of(uid: int) -> list[int]:
    """Those that run; one that has ended is nobody's business but its parent's."""
    return [entry.pid for entry in proc.entries() if owner_of(entry.pid) == uid]


def owner_of(pid: int) -> int | None:
    """Of a process that has not ended: such have no files open. A keeper's is root, as it changed its user."""
    try:
        return os.stat(f"/proc/{pid}/maps").st_uid if os.listdir(f"/proc/{pid}/fd") else None
    except (FileNotFoundError, ProcessLookupError):
        return None


async def test_more_memory_than_its_own_ends_it_and_nobody_else(cells: Prison) -> None:
    end = await cells.script(f"print('began'); print(len(bytearray({BOUNDS.memory_bytes * 2})))")
    assert (end.status, end.console) == (-signal.SIGKILL, b"began\n")
    assert cells.cgroups.oom_kills(MACHINE) == 1


async def test_more_processes_than_its_own_are_refused(cells: Prison) -> None:
    end = await cells.script(
        """
        import threading
        started = 0
        try:
            while started < 1000:
                if os.fork() == 0:
                    time.sleep(1000)
                started += 1
        except OSError as error:
            print(started, error.errno)
        """
    )
    assert end.console.decode().split() == [str(BOUNDS.pids - 1), "11"]


async def test_its_bounds_and_user_cannot_be_changed(cells: Prison) -> None:
    end = await cells.script(
        """
        import resource
        print(resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_MEMLOCK))
        print(tried(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (9999, 9999))))
        print(tried(lambda: resource.setrlimit(resource.RLIMIT_CORE, (1, 1))))
        print(tried(lambda: os.nice(-5)), tried(lambda: os.listdir("/sys/fs/cgroup")))
        """
    )
    own, files, core, rest = end.console.decode().splitlines()
    assert own == "(0, 0) (65536, 65536)"
    assert files.startswith("no: ") and core.startswith("no: ")
    assert rest.count("no: ") == 2


async def test_all_that_it_started_is_in_its_control_group_and_dies_with_it(cells: Prison) -> None:
    """Children in sessions of their own, whose parents have ended."""
    pid = await cells.begin(
        """
        for _ in range(5):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(1000)
                os._exit(0)
        for _ in range(5):
            os.wait()
        print("ready")
        time.sleep(1000)
        """
    )
    assert cells.cgroups.usage(MACHINE).pids == len(processes_of(UIDS[MACHINE])) == 6
    await cells.jail.kill(MACHINE, cells.run(), pid)
    assert processes_of(UIDS[MACHINE]) == []
    assert not cells.run().alive()


async def test_a_vmm_that_was_taken_out_of_its_control_group_is_killed_too(cells: Prison) -> None:
    pid = await cells.begin("print('ready'); time.sleep(1000)")
    vmm = keeper.read_record(cells.run()).vmm
    assert vmm is not None
    for controller in ("cpu", "memory", "pids"):
        (cells.cgroups.tree(controller) / "cgroup.procs").write_text(str(vmm))
    await cells.jail.kill(MACHINE, cells.run(), pid)
    assert vmm not in processes_of(UIDS[MACHINE])
    assert not cells.run().alive()


async def test_the_end_of_its_first_process_is_the_end_of_all(cells: Prison) -> None:
    end = await cells.script(
        """
        if os.fork() == 0:
            os.setsid()
            time.sleep(1000)
        sys.exit(7)
        """
    )
    assert end.status == 7
    await eventually(lambda: processes_of(UIDS[MACHINE]) == [])


async def test_a_vmm_cannot_play_dead(cells: Prison) -> None:
    """The lock on its journal is how life is told from death; it can neither let go of it nor take it for itself."""
    await cells.begin(
        """
        import fcntl
        print(tried(lambda: fcntl.flock(3, fcntl.LOCK_UN)), tried(lambda: os.close(3)), "ready")
        time.sleep(1000)
        """
    )
    assert cells.jail.console(cells.run()).decode().split("ready")[0] == "no: OSError 38 yes: None "
    assert cells.run().alive()
    assert cells.jail.ended(cells.run()) is None


async def test_a_vmm_cannot_outlive_its_keeper_unseen(cells: Prison) -> None:
    """The keeper is killed, as no VMM could: the VMM holds the lock, says nothing, and dies when told to."""
    pid = await cells.begin("print('ready'); time.sleep(1000)")
    os.kill(pid, signal.SIGKILL)
    await eventually(
        lambda: keeper.read_record(cells.run()).keeper == pid and not proc.has_open(pid, cells.run().journal)
    )
    assert cells.run().alive()
    assert cells.jail.ended(cells.run()) is None
    await cells.jail.kill(MACHINE, cells.run(), pid)
    assert not cells.run().alive()
    assert cells.jail.ended(cells.run()) is None


async def test_endless_words_cost_the_host_little(cells: Prison) -> None:
    """The keeper reads at its own pace; what is kept has a fixed size, and ends with what was said last."""
    wish = With(bounds=replace(BOUNDS, memory_bytes=64 * MIB, swapped_bytes=64 * MIB))
    pid, run = await cells.launch(("/usr/bin/yes", "flood"), wish), cells.run()
    await eventually(lambda: _written(cells) > 1 << 20)
    assert keeper.console_path(run).stat().st_size == (64 << 10) + 8
    console = await eventually(lambda: cells.jail.console(run))  # empty where the keeper went round while it was read
    assert len(console) <= 64 << 10
    assert set(console.split()) - {b"flood"} <= {console.split()[0], console.split()[-1]}
    used = sum(entry.cpu_s for entry in proc.entries() if entry.pid == pid)
    written = _written(cells)
    assert used < 2.0, f"for {written} bytes"


def _written(cells: Prison) -> int:
    """Bytes that came through the keeper."""
    return int.from_bytes(keeper.console_path(cells.run()).read_bytes()[:8], "little")
