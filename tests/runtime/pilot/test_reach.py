"""Finding a machine's directory and its pilot."""

from pathlib import Path

import anyio
import pytest

from hawker.clock import SystemClock
from hawker.errors import NotFound, Unavailable, WrongState
from hawker.runtime.pilot import frames
from hawker.runtime.pilot.driver import PilotDriver
from hawker.runtime.pilot.reach import Reach
from hawker.runtime.process import ProcessTechnology, process_driver
from tests.runtime.pilot.guests import Guest
from tests.runtime.plain import MACHINE, spec

pytestmark = pytest.mark.anyio


async def test_a_pilot_is_reached_while_its_machine_runs(tmp_path: Path) -> None:
    driver, reach = process_driver(tmp_path, SystemClock()), Reach(ProcessTechnology(), tmp_path, SystemClock())
    with anyio.fail_after(120):
        with pytest.raises(NotFound):
            reach._existing(MACHINE)
        await driver.prepare(spec("exit 3"))
        assert reach._existing(MACHINE) == reach._run(MACHINE)
        with pytest.raises(WrongState):
            reach._running(MACHINE)
        await driver.start(spec("sleep 1000"))
        async with reach._pilot(MACHINE) as pilot:
            assert pilot.version == frames.VERSION
        (tmp_path / MACHINE / "run/pid").unlink()
        assert await reach._pid(reach._run(MACHINE)) == (await driver.inspect(MACHINE)).pid
        await driver.destroy(MACHINE)


async def test_another_machine_s_pilot_is_not_spoken_to(tmp_path: Path) -> None:
    """A VMM that is no longer ours could lead us there."""
    driver, reach = PilotDriver(Guest(), tmp_path, SystemClock()), Reach(Guest(), tmp_path, SystemClock())
    with anyio.fail_after(120):
        await driver.start(spec("sleep 1000"))
        run = reach._run(MACHINE)
        run.write_spec(spec("sleep 1000", instance="another"))
        with pytest.raises(Unavailable, match="not the pilot of machine"):
            async with reach._pilot(MACHINE):
                pass
        run.write_spec(spec("sleep 1000"))
        async with reach._pilot(MACHINE) as pilot:
            assert pilot.version == frames.VERSION
        await driver.destroy(MACHINE)
