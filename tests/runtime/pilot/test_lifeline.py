"""Waiting for the end of a process that may be anybody's."""

import os
import subprocess

import anyio
import pytest

from hawker.runtime.pilot.lifeline import ended

pytestmark = pytest.mark.anyio

DEADLINE_S = 10.0


def process(*argv: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv)


async def test_it_returns_when_the_process_ends() -> None:
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
