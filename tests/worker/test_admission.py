"""Facts about room: asked for together, refused together, granted by address."""

from collections.abc import AsyncIterator
from ipaddress import IPv4Network
from pathlib import Path

import msgspec
import pytest

from hawker.errors import Conflict, NoRoom
from hawker.gpu import Gpu
from hawker.ids import MachineId
from hawker.machine import State
from hawker.node import Capacity, Resources
from hawker.record.machine import BY_IPV4, MachineKey, MachineRecord
from hawker.sim.node.sim_worker import SimWorker, config_of
from hawker.sim.node.world import MemoryWorld
from hawker.store.memory_store import MemoryStore
from hawker.worker.admission import Admission, free_ipv4

pytestmark = pytest.mark.anyio

GPU = Gpu(kind="a10", address="0000:01:00.0")
ROOM = Capacity(cpus=4, memory_mib=1024, disk_mib=1000, gpus=(GPU,))
ONE = {"gpu_kind": "a10", "memory_mb": 256}


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[SimWorker]:
    async with MemoryWorld(tmp_path, guests=True, room=ROOM).open() as worker:
        await worker.app()
        yield worker


def _admission(worker: SimWorker) -> Admission:
    deps = worker.parts.deps
    return Admission(deps.table, deps.driver, deps.settings, lambda: ROOM, worker.parts.quotas)


async def _placed(worker: SimWorker, record: MachineRecord) -> MachineRecord:
    return await worker.store.write(lambda tx: _admission(worker).place(tx, record))


async def _new(worker: SimWorker, *, launch: bool = True) -> MachineRecord:
    """One that is not in the store."""
    one = await worker.stopped(guest=ONE)
    record = await worker.reaches(one, State.STOPPED)
    holds = Resources(shared_cpus=1, memory_mib=256) if launch else Resources()
    return msgspec.structs.replace(record, gpus=(), holds=holds)


async def test_a_new_machine_is_given_its_device(worker: SimWorker) -> None:
    record = await _new(worker)
    assert (await _placed(worker, record)).gpus == (GPU,)


async def test_one_that_is_not_launched_is_given_none(worker: SimWorker) -> None:
    assert (await _placed(worker, await _new(worker, launch=False))).gpus == ()


async def test_all_that_is_missing_is_told_at_once(worker: SimWorker) -> None:
    record = await _new(worker)
    await worker.started(guest=ONE)
    large = msgspec.structs.replace(record, holds=Resources(shared_cpus=1, memory_mib=1000))
    with pytest.raises(NoRoom) as refused:
        await _placed(worker, large)
    assert set(refused.value.shortfall) == {"memory_mb", "gpus.a10"}


async def test_resources_a_machine_holds_count_as_free_for_it(worker: SimWorker) -> None:
    one = worker.record(await worker.started(guest=ONE))
    granted = _admission(worker).admit(worker.store, one, one.config)
    assert granted.gpus == (GPU,) and granted.holds == one.holds
    assert _admission(worker).admit(worker.store, one, config_of(guest={"memory_mb": 256})).gpus == (GPU,)
    with pytest.raises(Conflict, match="insufficient GPUs"):
        _admission(worker).admit(worker.store, one, config_of(guest={"gpu_kind": "a10", "gpus": 2}))


POOL = IPv4Network("10.0.0.0/29")


async def _take(store: MemoryStore, number: int) -> str:
    machine_id = MachineId(f"{number:014x}")
    address = free_ipv4(store, POOL, machine_id)
    await store.write(lambda tx: tx.put(BY_IPV4, address, MachineKey(id=machine_id)))
    return address


async def test_every_address_of_the_pool_is_given_once_and_then_none() -> None:
    store = MemoryStore()
    taken = {await _take(store, 3) for _ in range(5)}
    assert taken == {f"10.0.0.{last}" for last in range(2, 7)}, "neither the network, the host nor broadcast"
    with pytest.raises(Conflict, match="insufficient IPs available to fulfill request"):
        await _take(store, 3)


async def test_the_search_begins_where_the_id_says() -> None:
    assert free_ipv4(MemoryStore(), POOL, MachineId(f"{1:014x}")) == "10.0.0.3"
    assert free_ipv4(MemoryStore(), POOL, MachineId(f"{6:014x}")) == "10.0.0.3"


async def test_a_node_has_so_many_machines_also_stopped_ones(tmp_path: Path) -> None:
    async with MemoryWorld(tmp_path, max_machines=2).open() as worker:
        await worker.app()
        for _ in range(2):
            await worker.stopped()
        with pytest.raises(NoRoom, match=r"stopped ones too, which is the most \(max_machines\)"):
            await worker.create(order={"skip_launch": True})
