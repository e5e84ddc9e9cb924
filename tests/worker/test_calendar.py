"""Machines that the clock starts: when they are due, and that they are started then, once."""

from datetime import UTC, datetime

import pytest

from hawker.api.contract.machine_operation import CREATE_LEASE, LeaseRequest
from hawker.ids import MachineId
from hawker.machine import State
from hawker.sim.node.sim_worker import SimWorker, params
from hawker.sim.node.world import MemoryWorld
from hawker.worker.calendar import RETRY_S

pytestmark = pytest.mark.anyio

HOUR_S, DAY_S = 3600.0, 86_400.0
ONCE = {"policy": "no"}


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


async def finished(worker: SimWorker, stall: MemoryWorld, machine_id: str) -> None:
    stall.host.end(MachineId(machine_id), 0)
    await worker.reaches(machine_id, State.STOPPED)


def starts(worker: SimWorker, machine_id: str) -> int:
    return worker.events(machine_id).count("start/started")


async def test_a_machine_is_started_once_in_each_period(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(schedule="hourly", restart=ONCE)
    created_at = worker.record(machine_id).created_at
    for period in (1, 2, 3):
        await finished(worker, stall, machine_id)
        await stall.clock.sleep(created_at + period * HOUR_S - stall.clock.now() - 1)
        assert worker.record(machine_id).state is State.STOPPED
        await stall.clock.sleep(2)
        await worker.reaches(machine_id, State.STARTED)
    assert starts(worker, machine_id) == 4


async def test_a_moment_that_passes_while_it_runs_is_passed_over(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(schedule="hourly", restart=ONCE)
    await stall.clock.sleep(2.5 * HOUR_S)
    assert starts(worker, machine_id) == 1
    await finished(worker, stall, machine_id)
    await stall.clock.sleep(0.4 * HOUR_S)
    assert starts(worker, machine_id) == 1
    await stall.clock.sleep(0.2 * HOUR_S)
    assert starts(worker, machine_id) == 2


async def test_moments_without_a_daemon_are_made_up_for_once(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started(schedule="hourly", restart=ONCE)
        await finished(worker, stall, machine_id)
    await stall.clock.sleep(5.5 * HOUR_S)
    async with stall.open() as worker:
        await worker.reaches(machine_id, State.STARTED)
        assert starts(worker, machine_id) == 2
        await finished(worker, stall, machine_id)
        await stall.clock.sleep(0.3 * HOUR_S)
        assert starts(worker, machine_id) == 2


async def test_one_that_was_never_launched_waits_for_its_first_moment(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped(schedule="daily", restart=ONCE)
    await stall.clock.sleep(DAY_S - 60)
    assert worker.record(machine_id).state is State.STOPPED
    await stall.clock.sleep(120)
    await worker.reaches(machine_id, State.STARTED)


async def test_a_start_that_is_refused_is_tried_again(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped(schedule="hourly", restart=ONCE)
    await stall.clock.sleep(HOUR_S - 10)
    await worker.api.call(CREATE_LEASE, params=params(machine_id), body=LeaseRequest(ttl=100))
    await stall.clock.sleep(10 + RETRY_S)
    assert worker.record(machine_id).state is State.STOPPED, "someone holds its lease"
    await stall.clock.sleep(RETRY_S + 1)
    await worker.reaches(machine_id, State.STARTED)
    assert starts(worker, machine_id) == 1


async def test_a_schedule_that_an_update_takes_away_ends(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(schedule="hourly", restart=ONCE)
    await worker.update(machine_id, restart=ONCE)
    await worker.reaches(machine_id, State.STARTED)
    await finished(worker, stall, machine_id)
    await stall.clock.sleep(3 * HOUR_S)
    assert worker.record(machine_id).state is State.STOPPED
