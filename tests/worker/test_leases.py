import pytest

from hawker.clock import ManualClock
from hawker.errors import LeaseHeld, NotFound
from hawker.record.machine import MachineRecord
from hawker.store.memory_store import MemoryStore
from hawker.worker import leases
from hawker.worker.changes import Changes
from hawker.worker.table import MachineTable
from tests.worker.machines import NOW, machine

pytestmark = pytest.mark.anyio


class Holder:
    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.store = MemoryStore()
        self.table = MachineTable(self.clock, Changes())

    async def acquire(self, record: MachineRecord, nonce: str | None = None, ttl_s: float = 60) -> MachineRecord:
        fresh = leases.new(self.clock, "ann", "deploying", ttl_s)
        return await self.store.write(
            lambda tx: leases.acquire(tx, self.table, self.clock, record, nonce=nonce, fresh=fresh)
        )


async def test_a_lease_is_held_against_others_until_it_expires() -> None:
    holder = Holder()
    held = await holder.acquire(machine())
    with pytest.raises(LeaseHeld, match=r"machine ID 00000000000001 lease currently held by ann@.*, expires at 20.*Z"):
        leases.check(held, "other", holder.clock.now())
    holder.clock.advance(60)
    leases.check(held, None, holder.clock.now())


async def test_refreshing_keeps_the_nonce_and_moves_the_expiry() -> None:
    holder = Holder()
    held = await holder.acquire(machine())
    assert held.lease is not None
    holder.clock.advance(10)
    again = await holder.acquire(held, nonce=held.lease.nonce)
    assert again.lease is not None
    assert again.lease.nonce == held.lease.nonce and again.lease.expires_at == held.lease.expires_at + 10


async def test_nobody_else_can_acquire_a_held_lease() -> None:
    holder = Holder()
    held = await holder.acquire(machine())
    with pytest.raises(LeaseHeld):
        await holder.acquire(held)


async def test_releasing_needs_the_nonce_and_a_lease() -> None:
    holder = Holder()
    held = await holder.acquire(machine())
    with pytest.raises(LeaseHeld):
        await holder.store.write(lambda tx: leases.release(tx, holder.table, held, nonce=None, now=holder.clock.now()))
    with pytest.raises(NotFound, match="lease not found"):
        leases.require(machine(), NOW)


def test_a_lease_lasts_at_least_a_second_and_at_most_thirty_days() -> None:
    clock = ManualClock(NOW)
    assert leases.new(clock, "ann", "", -5).expires_at == NOW + 1
    assert leases.new(clock, "ann", "", 1e12).expires_at == NOW + leases.LONGEST_S
