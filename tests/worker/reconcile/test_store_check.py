"""Indexes and the sum of what is held: torn by hand, found, written again from the records."""

import pytest

from hawker.errors import Moved
from hawker.ids import MachineId
from hawker.node import Resources
from hawker.proof import invariants
from hawker.record.machine import BY_APP, BY_IPV4, BY_NAME, BY_ORDER, MachineKey
from hawker.record.move import COMING_SNAPSHOTS, INCOMING, MOVED, MoveState, held_by_incoming
from hawker.record.node import USED, used
from hawker.sim.harness.loop import eventually
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.store.contract import Bucket, Tx
from hawker.worker.reconcile import Finding, Kind
from hawker.worker.reconcile.gone import GoneMachines
from hawker.worker.reconcile.store_check import audit, set_right
from tests.sim.moves.fleets import played_fleet

pytestmark = pytest.mark.anyio
GHOST = MachineKey(id=MachineId("00000000000bad"))


@pytest.fixture
def stall(stall: MemoryWorld) -> MemoryWorld:
    stall.reconciles = False
    return stall


async def two_machines(worker: SimWorker) -> None:
    await worker.create(key="order-1")
    await worker.create(key="order-2")
    await worker.at_rest()


async def test_the_books_of_a_healthy_worker_are_right(worker: SimWorker) -> None:
    await two_machines(worker)
    gone = await worker.started()
    await worker.destroy(gone, force=True)
    await worker.at_rest()
    gone_ones = await GoneMachines().read(worker.store)
    assert set(gone_ones) == {gone}
    assert await audit(worker.store, worker.machines(), gone_ones) == []
    before = {bucket: dict(worker.store.scan(bucket)) for bucket in (BY_APP, BY_NAME, BY_IPV4, BY_ORDER)}
    await worker.store.write(set_right)
    assert {bucket: dict(worker.store.scan(bucket)) for bucket in before} == before


async def test_a_wrong_sum_is_added_up_again(worker: SimWorker) -> None:
    await two_machines(worker)
    right = worker.parts.deps.table.used(worker.store)
    await worker.store.write(lambda tx: tx.put(USED, "all", right.plus(Resources(memory_mib=4096))))
    (finding,) = await worker.reconciler.once()
    assert finding == Finding(Kind.WRONG_SUM, "capacity")
    assert f"{right.memory_mib + 4096} MiB" in finding.detail and f"{right.memory_mib} MiB" in finding.detail
    assert worker.parts.deps.table.used(worker.store) == right
    assert await worker.reconciler.find() == []


@pytest.mark.parametrize("bucket", [BY_APP, BY_NAME, BY_ORDER], ids=lambda bucket: bucket.name)
@pytest.mark.parametrize("damage", ["missing", "surplus", "wrong"])
async def test_a_wrong_index_is_written_again(worker: SimWorker, bucket: Bucket[MachineKey], damage: str) -> None:
    await two_machines(worker)
    right = dict(worker.store.scan(bucket))
    first = min(right)

    def tear(tx: Tx) -> None:
        if damage == "missing":
            tx.delete(bucket, first)
        else:
            tx.put(bucket, first if damage == "wrong" else "stall/ghost", GHOST)

    await worker.store.write(tear)
    (finding,) = await worker.reconciler.once()
    assert finding == Finding(Kind.WRONG_INDEX, bucket.name) and finding.detail.startswith("1 entry disagrees")
    assert dict(worker.store.scan(bucket)) == right
    assert invariants.of_store(worker.store) == []


async def test_an_address_that_nobody_has_is_free_again(worker: SimWorker) -> None:
    await two_machines(worker)
    await worker.store.write(lambda tx: tx.put(BY_IPV4, "172.29.9.9", GHOST))
    await worker.store.write(lambda tx: tx.put(BY_IPV4, "172.29.9.8", GHOST))
    (finding,) = await worker.reconciler.once()
    assert finding == Finding(Kind.WRONG_INDEX, BY_IPV4.name)
    assert finding.detail == "2 entries disagree with the records, the first is 172.29.9.8"
    assert worker.store.get(BY_IPV4, "172.29.9.9") is None


async def test_an_order_of_a_machine_that_moved_is_kept_and_not_filled_again() -> None:
    async with played_fleet() as fleet:
        order = fleet.worker(0).record(fleet.machine).order
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        assert Kind.WRONG_INDEX not in {each.kind for each in await fleet.worker(0).reconciler.once()}
        with pytest.raises(Moved):
            await fleet.worker(0).create(key=order)
        assert fleet.worker(0).machines() == []
        await fleet.hosts[0].world.store.write(lambda tx: tx.delete(MOVED, fleet.machine))
        assert Kind.WRONG_INDEX in {each.kind for each in await fleet.worker(0).reconciler.once()}


async def test_room_of_a_move_on_its_way_here_is_no_wrong_sum() -> None:
    async with played_fleet() as fleet:
        move, store = await fleet.move(0, 1), fleet.hosts[1].world.store
        await eventually(fleet._clock, lambda: store.count(INCOMING), 60, 0.01)
        held = used(store)
        assert held.memory_mib > 0 and held == held_by_incoming(store)
        assert Kind.WRONG_SUM not in {each.kind for each in await fleet.worker(1).reconciler.once()}
        assert used(store) == held
        await fleet.ended(0, move.id)
        assert await fleet.settled() == []


async def test_room_of_a_snapshot_that_follows_is_no_wrong_sum() -> None:
    async with played_fleet() as fleet:
        store = fleet.hosts[1].world.store
        move = await fleet.move(0, 1)
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE
        assert store.count(COMING_SNAPSHOTS) == 1 and held_by_incoming(store) != Resources()
        assert Kind.WRONG_SUM not in {each.kind for each in await fleet.worker(1).reconciler.once()}
        await eventually(fleet._clock, lambda: store.count(COMING_SNAPSHOTS) == 0, 600)
        assert await fleet.settled() == []
