"""Waiting for the end of a process that may be anybody's."""

import os
import subprocess

import anyio
import pytest

from hawker.runtime.pilot.process_exit import end, ended

pytestmark = pytest.mark.anyio

DEADLINE_S = 60.0


def process(*argv: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv)


async def test_a_wait_returns_when_the_process_ends() -> None:
    with process("sleep", "1000") as sleeper, anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ended, sleeper.pid, lambda: True)
            await anyio.wait_all_tasks_blocked()
            sleeper.kill()


async def test_a_process_that_is_gone_has_ended() -> None:
    with process("true") as done:
        pass
    with anyio.fail_after(DEADLINE_S):
        await ended(done.pid, lambda: True)


async def test_a_number_that_is_someone_else_s_now_has_ended() -> None:
    with anyio.fail_after(DEADLINE_S):
        await ended(os.getpid(), lambda: False)


# Making an end of it.


async def test_a_process_is_killed_and_awaited() -> None:
    with process("sleep", "1000") as sleeper, anyio.fail_after(DEADLINE_S):
        await end(sleeper.pid, lambda: True)
        assert sleeper.wait() == -9


async def test_somebody_else_is_not_killed() -> None:
    with process("sleep", "1000") as sleeper:
        with anyio.fail_after(DEADLINE_S):
            await end(sleeper.pid, lambda: False)
        assert sleeper.poll() is None
        sleeper.kill()


async def test_a_process_that_has_ended_already_is_no_error() -> None:
    with process("true") as done:
        pass
    with anyio.fail_after(DEADLINE_S):
        await end(done.pid, lambda: True)
