import pytest

from hawker.errors import BadRequest, OrderCancelled
from hawker.ids import AppName, NodeId, OrderId
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.worker.order_ledger import CANCELLED, CLAIMS, MAX_KEY_BYTES, OrderLedger

pytestmark = pytest.mark.anyio
SHOP, KEY = AppName(APP), OrderId("k")
A, B, C = NodeId("0000000a"), NodeId("0000000b"), NodeId("0000000c")


@pytest.fixture
def ledger(worker: SimWorker) -> OrderLedger:
    return OrderLedger(worker.store, worker.parts.deps.clock, worker.parts.deps.table)


async def test_a_cancelled_order_is_refused_whenever_it_comes(ledger: OrderLedger, worker: SimWorker) -> None:
    ledger.check(worker.store, SHOP, KEY)
    assert await ledger.cancel(SHOP, KEY) is None
    with pytest.raises(OrderCancelled, match="order k was cancelled"):
        ledger.check(worker.store, SHOP, KEY)
    ledger.check(worker.store, AppName("other"), KEY)


async def test_a_cancel_that_came_too_late_gives_the_machine(ledger: OrderLedger, worker: SimWorker) -> None:
    made = await worker.create(key="k")
    found = await ledger.cancel(SHOP, KEY)
    assert found is not None and found.id == made.id
    ledger.check(worker.store, SHOP, KEY)


async def test_what_is_undone_counts_as_not_filled(ledger: OrderLedger, worker: SimWorker) -> None:
    made = await worker.create(key="k")
    found = await ledger.cancel(SHOP, KEY, anyway=True)
    assert found is not None and found.id == made.id
    assert await ledger.cancel(SHOP, KEY) is None
    again = await ledger.cancel(SHOP, KEY, anyway=True)
    assert again is not None and again.id == made.id


async def test_the_first_claim_counts_until_it_is_moved_on(ledger: OrderLedger) -> None:
    first = await ledger.claim(SHOP, KEY, A, None)
    assert (first.node, first.number) == (A, 0)
    assert await ledger.claim(SHOP, KEY, B, None) == first
    moved = await ledger.claim(SHOP, KEY, B, 0)
    assert (moved.node, moved.number) == (B, 1)
    assert await ledger.claim(SHOP, KEY, C, 0) == moved


async def test_old_entries_are_dropped_as_new_ones_come(worker: SimWorker) -> None:
    ledger = OrderLedger(worker.store, worker.parts.deps.clock, worker.parts.deps.table, kept_s=60.0)
    for number in range(50):
        await ledger.cancel(SHOP, OrderId(f"old{number}"))
        await ledger.claim(SHOP, OrderId(f"old{number}"), A, None)
    await worker.parts.deps.clock.sleep(61)
    for number in range(50):
        await ledger.cancel(SHOP, OrderId(f"new{number}"))
        await ledger.claim(SHOP, OrderId(f"new{number}"), A, None)
    cancelled = [key for key, _ in worker.store.scan(CANCELLED)]
    claims = [key for key, _ in worker.store.scan(CLAIMS)]
    for left in (cancelled, claims):
        assert not [key for key in left if "old" in key] and len(left) == 50


@pytest.mark.parametrize("key", ["", "k" * (MAX_KEY_BYTES + 1), "é" * MAX_KEY_BYTES])
async def test_a_key_has_bounds(ledger: OrderLedger, key: str) -> None:
    with pytest.raises(BadRequest):
        await ledger.cancel(SHOP, OrderId(key))
    with pytest.raises(BadRequest):
        await ledger.claim(SHOP, OrderId(key), A, None)
