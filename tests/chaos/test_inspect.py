"""What an inspection of a stopped node sees: nothing when it is well, and each kind of damage."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from anyio.to_thread import run_sync

from hawker.chaos.daemon import Daemon
from hawker.chaos.inspect import inspect, violations_at_rest
from hawker.chaos.scenario_context import SampleMachines, ScenarioClient
from hawker.clock import SystemClock
from hawker.ids import MachineId
from hawker.machine import State
from hawker.proof.promises import ClientCall, Promises
from hawker.proof.violation import Invariant
from hawker.record.machine import MACHINES
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
CLOCK = SystemClock()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


MORE = pytest.mark.long(reason="machines that are processes are the short form")


@pytest.fixture(params=["process", pytest.param("container", marks=[pytest.mark.root, MORE])])
async def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Daemon]:
    daemon = Daemon(tmp_path, CLOCK, driver=request.param)
    await run_sync(daemon.start)
    yield daemon
    assert await run_sync(daemon.withdraw) == []


async def machines(daemon: Daemon) -> tuple[MachineId, MachineId]:
    """One that runs and one that is off; then the daemon is stopped."""
    async with daemon.client() as client:
        customer, config = ScenarioClient(client, "shop"), SampleMachines(daemon.driver, "", daemon.directory).sample()
        await customer.open()
        running, off = await customer.create(config, "1"), await customer.create(config, "2", launch=False)
        await customer.reaches(running, State.STARTED)
        await customer.reaches(off, State.STOPPED)
    await run_sync(daemon.stop)
    return running, off


async def test_a_node_that_is_well_and_then_is_hurt(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    running, off = await machines(daemon)
    async with inspect(daemon, CLOCK) as seen:
        record = seen.reader.get(MACHINES, running)
        assert record is not None and record.running is not None
        instance_id, pilot = record.running.instance_id, record.running.pid
        assert seen.host.running == {running: instance_id}
        assert seen.host.instances == {running}
    promises = Promises()
    assert promises.created(running, "1") == [] and promises.created(off, "2") == []
    assert await violations_at_rest(daemon, CLOCK, promises) == []

    promises.ask(running, ClientCall.STOP).acknowledged()
    [unkept] = await violations_at_rest(daemon, CLOCK, promises)
    assert (unkept.invariant, unkept.about) == (Invariant.KEPT, running)

    monkeypatch.setattr("hawker.chaos.inspect._DYING_S", 0.1)  # what is found from here on stays
    stray = daemon.place.machines / "0123456789abcd"
    stray.mkdir()
    found = await violations_at_rest(daemon, CLOCK)
    assert {(each.invariant, each.about) for each in found} == {(Invariant.NOTHING_STRAY, stray.name)}
    stray.rmdir()

    assert pilot is not None
    os.kill(pilot, signal.SIGKILL)
    await eventually(lambda: not _command(pilot))
    found = await violations_at_rest(daemon, CLOCK)
    assert (Invariant.ONE_INSTANCE, running) in {(each.invariant, each.about) for each in found}


def _command(pid: int) -> str:
    """Empty of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
