"""What is particular to machines that are plain processes: how all of them are found and ended."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from hawker.clock import SystemClock
from hawker.errors import NotServed
from hawker.runtime.driver import Phase
from hawker.runtime.pilot.driver import PilotDriver
from hawker.runtime.process import process_driver
from hawker.runtime.spec import FileSpec
from tests.runtime.plain import MACHINE, marked, spec
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[PilotDriver]:
    made = process_driver(tmp_path / "machines", SystemClock())
    with anyio.fail_after(120):
        yield made
    await made.destroy(MACHINE)


async def test_no_root_filesystem_is_said_before_anything_is_made(driver: PilotDriver) -> None:
    with pytest.raises(NotServed, match="files"):
        await driver.prepare(spec("true", files=(FileSpec(path="/x", content=b""),)))
    assert await driver.list() == []


async def test_orphans_of_a_killed_pilot_are_ended_with_the_machine(driver: PilotDriver) -> None:
    running = spec("setsid sleep 1000 & echo up; sleep 1000")
    pid = (await driver.start(running)).pid
    assert pid is not None
    await eventually(lambda: [*map(_name_of, marked(running))].count("sleep") == 2)  # none is at its exec
    os.kill(pid, signal.SIGKILL)
    assert (await driver.wait(MACHINE)).exit_code == 137
    assert marked(running) == []


def _name_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


async def test_a_hung_pilot_is_destroyed_all_the_same(driver: PilotDriver) -> None:
    running = spec("sleep 1000")
    pid = (await driver.start(running)).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    await driver.destroy(MACHINE)
    assert marked(running) == []
    assert (await driver.inspect(MACHINE)).phase is Phase.ABSENT
