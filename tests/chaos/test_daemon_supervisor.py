"""A keeper and a real daemon of machines that are processes: for anyone, with nothing installed."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from anyio.to_thread import run_sync

from hawker.api.contract.node import HEALTH
from hawker.chaos.daemon import Daemon
from hawker.chaos.daemon_supervisor import READY_WITHIN_S, DaemonSupervisor
from hawker.chaos.tally import SoakTally
from hawker.clock import SystemClock
from hawker.errors import Unavailable
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[DaemonSupervisor]:
    supervisor = DaemonSupervisor(Daemon(tmp_path, SystemClock(), driver="process"), SystemClock(), SoakTally())
    yield supervisor
    await supervisor.cut()
    assert await run_sync(supervisor.daemon.withdraw) == []


async def test_an_end_that_nobody_asked_for_is_noted_and_mended(supervisor: DaemonSupervisor) -> None:
    await supervisor.start()
    first = supervisor.daemon.pid
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.watch)
        await eventually(lambda: supervisor.answers)
        os.kill(first, signal.SIGKILL)
        tally = supervisor.tally
        await eventually(lambda: supervisor.answers and len(tally.boots_ms) == 2, READY_WITHIN_S + 60.0)
        tasks.cancel_scope.cancel()
    (found,) = supervisor.tally.findings
    assert "ended by itself with status -9" in found.what
    assert len(supervisor.tally.boots_ms) == 2 and supervisor.tally.gaps_s, (
        "a busy host may have kept it silent once more"
    )


async def test_an_end_that_was_asked_for_is_none_of_its_business(supervisor: DaemonSupervisor) -> None:
    await supervisor.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.watch)
        await supervisor.kill()
        await eventually(lambda: not supervisor.answers)
        await supervisor.start()
        await supervisor.stop()
        await supervisor.start()
        await supervisor.answering()
        tasks.cancel_scope.cancel()
    assert supervisor.tally.findings == []


async def test_a_boot_that_is_refused_as_it_should_be_is_no_finding(supervisor: DaemonSupervisor) -> None:
    supervisor.daemon.data_dir.write_text("in the way")
    assert not await supervisor.try_start()
    assert supervisor.tally.findings == [] and not supervisor.daemon.alive
    with pytest.raises(Unavailable, match="not ready"):
        await supervisor.start()


async def test_cut_connections_are_made_again(supervisor: DaemonSupervisor) -> None:
    await supervisor.start()
    await supervisor.client.call(HEALTH)
    await supervisor.cut()
    await supervisor.client.call(HEALTH)


async def test_the_same_thing_is_noted_once_without_the_lines_about_requests(supervisor: DaemonSupervisor) -> None:
    await supervisor.start()
    await supervisor.answering()
    supervisor.note("broken")
    supervisor.note("broken")
    (found,) = supervisor.tally.findings
    assert '"ready"' in found.log and '"request"' not in found.log
