"""A keeper and a real daemon of machines that are processes: for anyone, with nothing installed."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from anyio.to_thread import run_sync

from hawker.api.routes import HEALTH
from hawker.chaos.daemon import Daemon
from hawker.chaos.daemon_supervisor import DaemonSupervisor
from hawker.chaos.tally import SoakTally
from hawker.clock import SystemClock
from hawker.errors import Unavailable
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[DaemonSupervisor]:
    keeper = DaemonSupervisor(Daemon(tmp_path, SystemClock(), driver="process"), SystemClock(), SoakTally())
    yield keeper
    await keeper.cut()
    assert await run_sync(keeper.daemon.withdraw) == []


async def test_an_end_that_nobody_asked_for_is_noted_and_mended(keeper: DaemonSupervisor) -> None:
    await keeper.start()
    first = keeper.daemon.pid
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.watch)
        await eventually(lambda: keeper.answers)
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: keeper.answers and keeper.daemon.pid != first)
        tasks.cancel_scope.cancel()
    (found,) = keeper.tally.findings
    assert "ended by itself with status -9" in found.what
    assert len(keeper.tally.boots_ms) == 2 and keeper.tally.gaps_s, "a busy host may have kept it silent once more"


async def test_an_end_that_was_asked_for_is_none_of_its_business(keeper: DaemonSupervisor) -> None:
    await keeper.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.watch)
        await keeper.kill()
        await eventually(lambda: not keeper.answers)
        await keeper.start()
        await keeper.stop()
        await keeper.start()
        await keeper.answering()
        tasks.cancel_scope.cancel()
    assert keeper.tally.findings == []


async def test_a_boot_that_is_refused_as_it_should_be_is_no_finding(keeper: DaemonSupervisor) -> None:
    keeper.daemon.data_dir.write_text("in the way")
    assert not await keeper.try_start()
    assert keeper.tally.findings == [] and not keeper.daemon.alive
    with pytest.raises(Unavailable, match="not ready"):
        await keeper.start()


async def test_cut_connections_are_made_again(keeper: DaemonSupervisor) -> None:
    await keeper.start()
    await keeper.client.call(HEALTH)
    await keeper.cut()
    await keeper.client.call(HEALTH)


async def test_the_same_thing_is_noted_once_without_the_lines_about_requests(keeper: DaemonSupervisor) -> None:
    await keeper.start()
    await keeper.answering()
    keeper.note("broken")
    keeper.note("broken")
    (found,) = keeper.tally.findings
    assert '"ready"' in found.log and '"request"' not in found.log
