"""The calls about one process, where the machine goes away under them."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.errors import BadRequest, Unavailable, WrongState
from hawker.runtime.driver import ProcessPhase
from hawker.runtime.pilot.driver import PilotDriver
from hawker.runtime.process import process_driver
from hawker.runtime.spec import Ends, InstanceSpec
from tests.runtime.plain import MACHINE, spec

pytestmark = pytest.mark.anyio


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[PilotDriver]:
    made = process_driver(tmp_path / "machines", SystemClock())
    with anyio.fail_after(120):
        yield made
    await made.destroy(MACHINE)


def held(command: str, ends: Ends = Ends.TOLD) -> InstanceSpec:
    plain = spec(command)
    process = msgspec.structs.replace(plain.processes[0], held=True)
    return msgspec.structs.replace(plain, processes=(process,), ends=ends)


async def test_a_run_whose_end_is_the_machine_s_is_told_from_the_journal(driver: PilotDriver) -> None:
    await driver.start(held("exit 4", Ends.FIRST))
    started = await driver.start_process(MACHINE, 0, 1)
    await driver.wait(MACHINE)
    (state,) = await driver.process_states(MACHINE)
    assert started.run == state.run == 1
    assert state.exit is not None and state.exit.exit_code == 4
    assert (await driver.stop_process(MACHINE, 0, "SIGTERM", 1)).exit == state.exit


async def test_a_pilot_that_is_held_up_is_unavailable(driver: PilotDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = (await driver.start(held("sleep 1000"))).pid
    assert pid is not None
    monkeypatch.setattr("hawker.runtime.pilot.link.ANSWER_TIMEOUT_S", 0.1)
    os.kill(pid, signal.SIGSTOP)
    for call in (driver.process_states(MACHINE), driver.start_process(MACHINE, 0, 1)):
        with pytest.raises(Unavailable, match="does not answer"):
            await call
    os.kill(pid, signal.SIGCONT)


async def test_calls_about_no_process_are_refused(driver: PilotDriver) -> None:
    await driver.start(held("sleep 1000"))
    with pytest.raises(BadRequest):
        await driver.start_process(MACHINE, 1, 1)
    with pytest.raises(BadRequest):
        await driver.stop_process(MACHINE, -1, "SIGTERM", 1)
    with pytest.raises(BadRequest):
        await driver.conclude(MACHINE, 5)


async def test_nothing_is_begun_once_the_pilot_is_gone(driver: PilotDriver) -> None:
    pid = (await driver.start(held("sleep 1000"))).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await driver.wait(MACHINE)
    with pytest.raises(WrongState):
        await driver.start_process(MACHINE, 0, 1)
    (state,) = await driver.process_states(MACHINE)
    assert state.state is ProcessPhase.HELD
