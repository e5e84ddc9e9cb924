"""Pure readings of a machine's record."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from hawker.config import Guest
from hawker.errors import Conflict, NoRoom, NotServed, Unprocessable
from hawker.gpu import Gpu
from hawker.ids import MachineId
from hawker.machine import State
from hawker.node import Capacity
from hawker.record.machine import Lease, claimed_by, counted, current_lease, taken
from hawker.sim.node.crash_points import Death
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.handlers.test_placements import fits
from tests.worker.invariants import check_at_rest, check_store

pytestmark = pytest.mark.anyio


async def test_lease_counts_until_it_expires(worker: SimWorker) -> None:
    record = worker.record(await worker.stopped())
    assert current_lease(record, 0.0) is None
    lease = Lease(nonce="n", owner="ann", description="", expires_at=100.0)
    held = msgspec.structs.replace(record, lease=lease)
    assert current_lease(held, 99.9) == lease
    assert current_lease(held, 100.0) is None


FIRST, SECOND = Gpu(kind="a10", address="0000:01:00.0"), Gpu(kind="a10", address="0000:02:00.0")
BIG = Gpu(kind="l40s", address="0000:65:00.0")
ROOM = Capacity(cpus=16, memory_mib=16_384, disk_mib=100_000, gpus=(FIRST, SECOND, BIG))
ONE = {"gpu_kind": "a10", "gpus": 1}
TWO = {"gpu_kind": "a10", "gpus": 2}


@pytest.fixture
def stall(tmp_path: Path) -> MemoryWorld:
    return MemoryWorld(tmp_path, guests=True, room=ROOM)


@pytest.fixture
async def worker(stall: MemoryWorld) -> AsyncIterator[SimWorker]:
    async with stall.open() as worker:
        await worker.app()
        yield worker
        await worker.at_rest()
        check_at_rest(stall)
        assert not stall.gpus.torn


def _given(stall: MemoryWorld, machine_id: str) -> tuple[str, ...]:
    """What the instance on the host has."""
    return stall.host.gpus()[MachineId(machine_id)]


async def test_each_machine_has_devices_of_its_own(worker: SimWorker, stall: MemoryWorld) -> None:
    one, other = await worker.started(guest=ONE), await worker.started(guest=ONE)
    assert _given(stall, one) == (FIRST.address,) and _given(stall, other) == (SECOND.address,)
    assert claimed_by(worker.record(one)) == (FIRST,)
    assert stall.gpus.ready == {FIRST.address, SECOND.address}


async def test_a_shortfall_is_told_by_kind_and_an_order_that_fits_is_still_filled(worker: SimWorker) -> None:
    await worker.started(guest=ONE)
    with pytest.raises(NoRoom, match=r"short of 1 gpus\.a10") as refused:
        await worker.create(guest=TWO)
    assert refused.value.shortfall == {"gpus.a10": 1}
    with pytest.raises(NoRoom) as refused:
        await worker.create(guest={"gpu_kind": "h100"})
    assert refused.value.shortfall == {"gpus.h100": 1}
    await worker.started(guest=ONE)


async def test_a_machine_at_rest_gives_them_back(worker: SimWorker, stall: MemoryWorld) -> None:
    one = await worker.started(guest=TWO)
    await worker.stop(one)
    await worker.wait(one, "stopped")
    assert claimed_by(worker.record(one)) == () and taken(worker.store) == frozenset()
    other = await worker.started(guest=ONE)
    with pytest.raises(Conflict, match="insufficient GPUs"):
        await worker.start(one)
    await worker.destroy(other, force=True)
    await worker.wait(other, "destroyed")
    await worker.start(one)
    await worker.reaches(one, State.STARTED)
    assert set(_given(stall, one)) == {FIRST.address, SECOND.address}


async def test_a_machine_that_is_not_launched_has_none(worker: SimWorker) -> None:
    await worker.create(guest=TWO, order={"skip_launch": True})
    assert taken(worker.store) == frozenset()


async def test_a_restart_keeps_them(worker: SimWorker, stall: MemoryWorld) -> None:
    await worker.started(guest=ONE)
    other = await worker.started(guest=ONE)
    await worker.restart(other)
    await worker.at_rest()
    assert _given(stall, other) == (SECOND.address,)


async def test_an_update_keeps_what_it_can_and_gives_back_the_rest(worker: SimWorker, stall: MemoryWorld) -> None:
    one = await worker.started(guest=ONE)
    for guest, expected in ((TWO, (FIRST, SECOND)), ({"gpu_kind": "l40s"}, (BIG,)), ({}, ()), (ONE, (FIRST,))):
        await worker.update(one, guest=guest)
        await worker.at_rest()
        assert claimed_by(worker.record(one)) == expected
        assert _given(stall, one) == tuple(gpu.address for gpu in expected)


async def test_an_update_that_needs_more_than_there_is_changes_nothing(worker: SimWorker, stall: MemoryWorld) -> None:
    one = await worker.started(guest=ONE)
    await worker.started(guest=ONE)
    with pytest.raises(Conflict, match="insufficient GPUs"):
        await worker.update(one, guest=TWO)
    assert _given(stall, one) == (FIRST.address,)


async def test_a_machine_with_gpus_is_not_suspended(worker: SimWorker) -> None:
    with pytest.raises(NotServed, match="GPUs"):
        await worker.suspend(await worker.started(guest=ONE))
    await worker.suspend(await worker.started())


async def test_a_device_that_cannot_be_taken_fails_the_start_and_is_given_back(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    one = await worker.stopped(guest=ONE)
    stall.gpus.broken.add(FIRST.address)
    await worker.start(one)
    record = await worker.reaches(one, State.FAILED)
    assert claimed_by(record) == () and taken(worker.store) == frozenset()


async def test_placements_count_them(worker: SimWorker) -> None:
    assert await fits(worker, compute=Guest(gpu_kind="a10")) == 2
    assert await fits(worker, compute=Guest(gpu_kind="a10", gpus=2)) == 1
    await worker.started(guest=ONE)
    assert await fits(worker, compute=Guest(gpu_kind="a10")) == 1
    assert await fits(worker, compute=Guest(gpu_kind="h100")) == 0


async def test_devices_are_counted_by_kind() -> None:
    assert counted([BIG, FIRST, SECOND]) == {"a10": 2, "l40s": 1} and counted([]) == {}


async def test_a_driver_that_cannot_says_so_by_name(tmp_path: Path) -> None:
    async with MemoryWorld(tmp_path, room=ROOM).open() as worker:
        await worker.app()
        with pytest.raises(Unprocessable, match=r"config\.guest\.gpu_kind is not served by this node's driver"):
            await worker.create(guest=ONE)


@pytest.mark.parametrize("edge", range(2, 60, 3))
async def test_no_device_is_two_machines_wherever_the_daemon_dies(tmp_path: Path, edge: int) -> None:
    stall = MemoryWorld(tmp_path, guests=True, room=ROOM)
    try:
        async with stall.open() as worker:
            await worker.app()
            one = await worker.started(guest=ONE)
            stall.crash_points.burns_at = stall.crash_points.edges + edge
            await worker.update(one, guest=TWO)
            await worker.at_rest()
            await worker.stop(one)
            await worker.at_rest()
    except Death:
        stall.crash()
    stall.crash_points.burns_at = None
    async with stall.open() as worker:
        await worker.at_rest()
        check_store(worker.store)
        free = len({FIRST.address, SECOND.address} - taken(worker.store))
        for _ in range(free):
            await worker.started(guest=ONE)
        await worker.at_rest()
        check_at_rest(stall)
        assert not stall.gpus.torn
