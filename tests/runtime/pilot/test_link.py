"""The link to a machine's pilot: which pilots are spoken to."""

from pathlib import Path

import anyio
import pytest

from hawker.clock import SystemClock
from hawker.errors import NotFound, Unavailable, WrongState
from hawker.runtime.pilot import frames
from hawker.runtime.pilot.driver import PilotDriver
from hawker.runtime.pilot.link import PilotLink
from hawker.runtime.pilot.rundir import MachineFiles
from hawker.runtime.pilot.technology import Technology
from hawker.runtime.process import ProcessTechnology, process_driver
from tests.runtime.pilot.guests import Guest
from tests.runtime.plain import MACHINE, spec

pytestmark = pytest.mark.anyio


def link_of(technology: Technology, machines: Path) -> PilotLink:
    return PilotLink(technology, MachineFiles(machines), SystemClock())


async def test_a_pilot_is_reached_while_its_machine_runs(tmp_path: Path) -> None:
    driver, link = process_driver(tmp_path, SystemClock()), link_of(ProcessTechnology(), tmp_path)
    files = MachineFiles(tmp_path)
    with anyio.fail_after(120):
        with pytest.raises(NotFound):
            files.existing(MACHINE)
        await driver.prepare(spec("exit 3"))
        assert files.existing(MACHINE) == files.run(MACHINE)
        with pytest.raises(WrongState):
            link.running(MACHINE)
        await driver.start(spec("sleep 1000"))
        async with link.open(MACHINE) as pilot:
            assert pilot.version == frames.VERSION
        (tmp_path / MACHINE / "run/pid").unlink()
        assert await link.pid(files.run(MACHINE)) == (await driver.inspect(MACHINE)).pid
        await driver.destroy(MACHINE)


async def test_another_machine_s_pilot_is_not_spoken_to(tmp_path: Path) -> None:
    """A VMM that is no longer ours could lead us there."""
    driver, link = PilotDriver(Guest(), tmp_path, SystemClock()), link_of(Guest(), tmp_path)
    files = MachineFiles(tmp_path)
    with anyio.fail_after(120):
        await driver.start(spec("sleep 1000"))
        run = files.run(MACHINE)
        run.write_spec(spec("sleep 1000", instance="another"))
        with pytest.raises(Unavailable, match="another machine answers"):
            async with link.open(MACHINE):
                pass
        run.write_spec(spec("sleep 1000"))
        async with link.open(MACHINE) as pilot:
            assert pilot.version == frames.VERSION
        await driver.destroy(MACHINE)
