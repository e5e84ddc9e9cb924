"""Revoked tokens of one node: kept in its store, first come first kept."""

import pytest

from hawker.auth.revocations import Revocations
from hawker.clock import ManualClock
from hawker.store.memory_store import MemoryStore

pytestmark = pytest.mark.anyio


async def test_a_revoked_id_counts_wherever_it_stands_in_a_chain() -> None:
    revocations = Revocations(MemoryStore(), ManualClock())
    await revocations.add("b", by="ann", note="lost")
    assert revocations(["a", "b", "c"]) and not revocations(["a", "c"]) and not revocations([])


async def test_the_first_revocation_stands() -> None:
    clock = ManualClock()
    revocations = Revocations(MemoryStore(), clock)
    first = await revocations.add("b", by="ann", note="lost")
    clock.advance(10)
    assert await revocations.add("b", by="eve") == first
    assert list(revocations.list()) == [first]


async def test_a_revocation_outlives_the_daemon() -> None:
    store = MemoryStore()
    await Revocations(store, ManualClock()).add("b", by="ann")
    assert Revocations(store.crash(0), ManualClock())(["b"])
