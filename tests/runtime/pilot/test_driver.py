"""What the shared half of the drivers makes of daemons, pilots and files that a crash left behind."""

import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from hawker.clock import ManualClock, SystemClock
from hawker.runtime.driver import Phase
from hawker.runtime.pilot.driver import PilotDriver
from hawker.runtime.process import ProcessTechnology, process_driver
from tests.runtime.plain import MACHINE, marked, spec
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[PilotDriver]:
    made = process_driver(tmp_path / "machines", SystemClock())
    with anyio.fail_after(30):
        yield made
    await made.destroy(MACHINE)


async def test_a_pilot_that_does_not_answer_is_killed_by_stop(driver: PilotDriver, tmp_path: Path) -> None:
    running = spec("sleep 1000")
    hasty = PilotDriver(ProcessTechnology(), tmp_path / "machines", SystemClock(), stop_grace_s=0.1)
    pid = (await driver.start(running)).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    assert (await hasty.stop(MACHINE, "SIGTERM", 0.1)).signal == 9
    assert marked(running) == []


async def test_a_daemon_that_died_before_it_noted_the_pilot_is_no_loss(driver: PilotDriver, tmp_path: Path) -> None:
    pid = (await driver.start(spec("sleep 1000"))).pid
    (tmp_path / "machines" / MACHINE / "run" / "pid").unlink()
    assert (await driver.inspect(MACHINE)).pid == pid


async def test_a_process_id_used_again_fools_nobody(driver: PilotDriver, tmp_path: Path) -> None:
    running = spec("exit 3")
    await driver.start(running)
    await driver.wait(MACHINE)
    run = tmp_path / "machines" / MACHINE / "run"
    (run / "exit").unlink()
    (run / "pid").write_text(str(os.getpid()))  # the worst case: it is ours now
    later = process_driver(tmp_path / "machines", SystemClock())
    assert (await later.inspect(MACHINE)).phase is Phase.EXITED
    await later.destroy(MACHINE)  # and we are still here


async def test_an_unseen_kill_has_the_time_at_which_it_was_noticed(driver: PilotDriver, tmp_path: Path) -> None:
    pid = (await driver.start(spec("exec sleep 1000"))).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    clock = ManualClock(start=5_000_000_000.0)
    await eventually(lambda: not marked(spec("")))  # the kernel ends the workload's first process with its pilot
    noticed = await process_driver(tmp_path / "machines", clock).wait(MACHINE)
    clock.advance(1000)
    again = await process_driver(tmp_path / "machines", clock).wait(MACHINE)
    assert noticed.exited_at == again.exited_at == 5_000_000_000.0


async def test_a_path_longer_than_a_socket_s_address_is_no_hindrance(tmp_path: Path) -> None:
    deep = process_driver(tmp_path / ("d" * 150), SystemClock())
    assert (await deep.start(spec("sleep 1000", instance="deep"))).phase is Phase.RUNNING
    await deep.destroy(MACHINE)


async def test_a_pilot_file_that_a_crash_cut_short_is_made_anew(driver: PilotDriver, tmp_path: Path) -> None:
    running = spec("echo once; sleep 1000")
    await driver.prepare(running)
    run = tmp_path / "machines" / MACHINE / "run"
    (run / "pilot.sock").touch()
    (run / "journal").write_bytes(b"torn")
    assert (await driver.start(running)).phase is Phase.RUNNING


async def test_memory_of_the_host_s_daemon_is_not_needed(driver: PilotDriver, tmp_path: Path) -> None:
    running = spec("sleep 0.1; exit 5")
    await driver.start(running)
    other = process_driver(tmp_path / "machines", SystemClock())
    assert (await other.wait(MACHINE)).exit_code == 5


@pytest.mark.parametrize("lost", ["run", "run/journal"])
async def test_a_pilot_that_lost_its_files_is_ended_before_the_next_is_begun(
    driver: PilotDriver, tmp_path: Path, lost: str
) -> None:
    first, second = spec("exec sleep 1000", instance="first"), spec("exec sleep 1000", instance="second")
    await driver.start(first)
    path = tmp_path / "machines" / MACHINE / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    await driver.start(second)
    assert marked(first) == [] and marked(second) != []
