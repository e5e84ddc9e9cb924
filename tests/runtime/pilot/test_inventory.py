"""The inventory of a host, when some machines are in snapshots and have no process."""

from pathlib import Path

import anyio
import pytest

from hawker.clock import SystemClock
from hawker.errors import WrongState
from hawker.runtime.pilot.driver import PilotDriver
from tests.runtime.pilot.guests import Guest
from tests.runtime.plain import MACHINE, spec

pytestmark = pytest.mark.anyio


async def test_a_guest_in_a_snapshot_is_among_the_running_and_the_suspended(tmp_path: Path) -> None:
    driver = PilotDriver(Guest(), tmp_path, SystemClock())
    with anyio.fail_after(120):
        assert await driver.list() == [] and await driver.running() == frozenset()
        await driver.start(spec("sleep 1000"))
        assert await driver.running() == {MACHINE} and await driver.suspended() == frozenset()
        await driver.suspend(MACHINE)
        later = PilotDriver(Guest(), tmp_path, SystemClock())
        assert await later.running() == await later.suspended() == {MACHINE} == set(await later.list())
        assert await later.lost([MACHINE]) == {} and await later.orphans() == frozenset()
        with pytest.raises(WrongState, match="suspended"):
            await later.mend(MACHINE)
        await later.destroy(MACHINE)
        assert await later.running() == await later.suspended() == frozenset()
