"""The warden of a host's edge, as a daemon finds it: none, one that lives, and one that another daemon has left."""

import fcntl
import os
import signal
from pathlib import Path

import anyio
import pytest

from hawker.clock import SystemClock
from hawker.host.process_guard import ProcessGuard
from hawker.host.spawn import spawn
from tests.waiting import eventually


def guard(folder: Path) -> ProcessGuard:
    found = ProcessGuard(folder, folder / "edge", SystemClock(), "edge")
    found.prepare()
    return found


def test_a_warden_is_there_while_it_holds_the_lock(tmp_path: Path) -> None:
    found = guard(tmp_path)
    assert not found.is_there
    lock = os.open(tmp_path / "edge" / "lock", os.O_RDWR | os.O_CREAT)
    os.pwrite(lock, b"4242\n", 0)
    assert not found.is_there, "a number in a file is no process"
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert found.is_there
    os.close(lock)
    assert not found.is_there


class Slow(ProcessGuard):
    """Its program has begun, and holds no lock yet."""

    started = 0

    def _start(self) -> int:
        self.started = spawn(("/bin/sleep", "60"), session=True)
        return self.started


@pytest.mark.anyio
async def test_a_program_that_holds_no_lock_yet_ends_with_its_node(tmp_path: Path) -> None:
    found = Slow(tmp_path, tmp_path / "edge", SystemClock(), "edge")
    found.prepare()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.serve)
        await eventually(lambda: found.started)
        with anyio.fail_after(120):
            await found.end()
    with pytest.raises(ProcessLookupError):
        os.kill(found.started, 0)


@pytest.mark.anyio
async def test_a_program_that_holds_no_lock_yet_ends_also_when_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    found = Slow(tmp_path, tmp_path / "edge", SystemClock(), "edge")
    found.prepare()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.serve)
        await eventually(lambda: found.started)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(120):
        await found.end()
    assert os.waitstatus_to_exitcode(os.waitpid(found.started, 0)[1]) == -signal.SIGTERM  # noqa: ASYNC222 - it was told to end
