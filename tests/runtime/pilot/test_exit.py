"""Ends that no pilot has recorded: of keepers before their VMMs, of guests in a snapshot, of what cannot go on."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from hawker.clock import SystemClock
from hawker.errors import NotFound
from hawker.ids import MachineId
from hawker.runtime.driver import Exit, Phase
from hawker.runtime.pilot.driver import PilotDriver
from hawker.runtime.pilot.rundir import RunDir
from tests.runtime.pilot.guests import Guest, Program
from tests.runtime.plain import MACHINE, marked, spec

pytestmark = pytest.mark.anyio


class PatientClock(SystemClock):
    """Counts how often somebody waits a while."""

    def __init__(self) -> None:
        self.naps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        await super().sleep(seconds)


@pytest.fixture
async def clock() -> AsyncIterator[PatientClock]:
    with anyio.fail_after(120):
        yield PatientClock()


def run_of(place: Path) -> RunDir:
    return RunDir(place / MACHINE / "run")


async def test_a_keeper_that_ends_before_its_vmm_is_not_the_end(tmp_path: Path, clock: PatientClock) -> None:
    """The one that was launched is gone, and another holds the lock: looked at again and again, but with pauses."""
    keeper = "import os, time; os.fork() and os._exit(0); time.sleep(1)"
    program = Program(keeper, boots=False)
    driver = PilotDriver(program, tmp_path, clock)
    await driver.prepare(spec("unused"))
    run = run_of(tmp_path)
    with program.channel.files(run, spec("unused")) as fds:
        pid = await program.launch(spec("unused"), run, fds)
        run.write_pid(pid)
    exit = await driver.wait(MACHINE)
    assert exit.fault == "kernel panic: no root" and not run.alive()
    assert 1 <= len(clock.naps) <= 300
    await driver.destroy(MACHINE)


async def test_a_guest_in_a_snapshot_has_not_ended(tmp_path: Path, clock: PatientClock) -> None:
    driver = PilotDriver(Guest(), tmp_path, clock)
    await driver.start(spec("sleep 1000"))
    await driver.suspend(MACHINE)
    seen = await PilotDriver(Guest(), tmp_path, clock).inspect(MACHINE)
    assert (seen.phase, seen.pid) == (Phase.SUSPENDED, None) and marked(spec("")) == []
    ended: list[Exit] = []

    async def wait() -> None:
        ended.append(await driver.wait(MACHINE))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        while not clock.naps:
            await anyio.lowlevel.checkpoint()
        assert ended == []
        await driver.destroy(MACHINE)
        group.cancel_scope.cancel()
    assert not run_of(tmp_path).exists()


async def test_stop_gives_up_a_snapshot_that_cannot_be_used(tmp_path: Path, clock: PatientClock) -> None:
    driver = PilotDriver(Guest(whole=False), tmp_path, clock)
    await driver.start(spec("sleep 1000"))
    await driver.suspend(MACHINE)
    exit = await driver.stop(MACHINE, "SIGTERM", 5)
    assert exit.exit_code == 137 and (await driver.inspect(MACHINE)).phase is Phase.EXITED
    await driver.destroy(MACHINE)


async def test_a_process_that_ended_by_itself_before_it_began_is_judged_once(
    tmp_path: Path, clock: PatientClock
) -> None:
    driver = PilotDriver(Program("", boots=False), tmp_path, clock)
    seen = await driver.start(spec("unused"))
    assert seen.phase is Phase.EXITED and seen.exit is not None and seen.exit.fault == "kernel panic: no root"
    again = await PilotDriver(Guest(), tmp_path, clock).inspect(MACHINE)
    assert again.exit == seen.exit
    await driver.destroy(MACHINE)


async def test_nothing_that_never_began_has_ended(tmp_path: Path, clock: PatientClock) -> None:
    driver = PilotDriver(Guest(), tmp_path, clock)
    await driver.prepare(spec("unused"))
    with pytest.raises(NotFound):
        await driver.wait(MACHINE)
    assert (await driver.inspect(MACHINE)).phase is Phase.PREPARED
    await driver.destroy(MACHINE)
    assert os.listdir(tmp_path) == []


class Slow(Guest):
    """Others come while it ends what is left of a machine."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = 0

    async def kill(self, machine_id: MachineId, run: RunDir, pid: int | None) -> None:
        self.ended += 1
        await anyio.lowlevel.checkpoint()
        await super().kill(machine_id, run, pid)


async def test_an_exit_that_two_wait_for_is_settled_once(tmp_path: Path, clock: PatientClock) -> None:
    technology = Slow()
    driver = PilotDriver(technology, tmp_path, clock)
    await driver.start(spec("sleep 1000"))
    found: list[Exit] = []

    async def wait() -> None:
        found.append(await driver.wait(MACHINE))

    ended_before = technology.ended
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(wait)
        await driver.signal(MACHINE, 9)
    assert len(found) == 3 and len(set(found)) == 1 and technology.ended == ended_before + 1
    await driver.destroy(MACHINE)
