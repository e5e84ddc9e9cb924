"""The invariants of GPUs, on a worker that keeps them and on one in which a single thing is wrong."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hawker.gpu import Gpu
from hawker.ids import MachineId
from hawker.node import Capacity
from hawker.proof import invariants
from hawker.proof.host_state import HostState
from hawker.proof.violation import Invariant
from hawker.record.machine import MACHINES
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio

FIRST, SECOND = Gpu(kind="a10", address="0000:01:00.0"), Gpu(kind="a10", address="0000:02:00.0")
ROOM = Capacity(cpus=8, memory_mib=4096, disk_mib=100_000, gpus=(FIRST, SECOND))
ONE = {"gpu_kind": "a10"}


@pytest.fixture
def stall(tmp_path: Path) -> MemoryWorld:
    return MemoryWorld(tmp_path, guests=True, room=ROOM)


@pytest.fixture
async def worker(stall: MemoryWorld) -> AsyncIterator[SimWorker]:
    async with stall.open() as worker:
        await worker.app()
        yield worker


async def _changed(worker: SimWorker, machine_id: str, **fields: Any) -> set[Invariant]:
    record = msgspec.structs.replace(worker.record(machine_id), **fields)
    await worker.store.write(lambda tx: tx.put(MACHINES, record.id, record))
    return {violation.invariant for violation in invariants.of_store(worker.store)}


def _at_rest(worker: SimWorker, seen: HostState) -> set[Invariant]:
    return {violation.invariant for violation in invariants.at_rest(worker.store, seen)}


async def test_a_sound_worker_keeps_them(worker: SimWorker, stall: MemoryWorld) -> None:
    await worker.started(guest=ONE)
    await worker.started(guest=ONE)
    assert invariants.at_rest(worker.store, stall.seen()) == []


async def test_a_device_of_two_machines_is_seen(worker: SimWorker) -> None:
    await worker.started(guest=ONE)
    other = await worker.started(guest=ONE)
    assert await _changed(worker, other, gpus=(FIRST,)) == {Invariant.CAPACITY}


async def test_a_started_machine_without_its_device_is_seen(worker: SimWorker) -> None:
    one = await worker.started(guest=ONE)
    assert await _changed(worker, one, gpus=()) == {Invariant.CAPACITY}
    assert await _changed(worker, one, gpus=(FIRST, FIRST)) == {Invariant.CAPACITY}


async def test_an_instance_with_another_device_than_its_machine_has_is_seen(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    one = MachineId(await worker.started(guest=ONE))
    assert _at_rest(worker, replace(stall.seen(), gpus={one: [SECOND.address]})) == {Invariant.CAPACITY}
    assert _at_rest(worker, stall.seen()) == set()
