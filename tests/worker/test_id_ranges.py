"""Facts about the ranges of ids: each machine has one of its own, from its record's first transaction to its last."""

import pytest

from hawker.errors import Conflict
from hawker.host_ids import IDS_EACH
from hawker.ids import MachineId
from hawker.record.machine import BY_FIRST_ID, MachineKey, id_key
from hawker.store.memory_store import MemoryStore
from hawker.worker.id_ranges import IdPool, with_ids
from tests.worker.machines import machine

pytestmark = pytest.mark.anyio
POOL = IdPool(first=1 << 30, count=3)


async def _taken(store: MemoryStore, machine_id: str) -> int:
    record = with_ids(store, POOL, machine(machine_id, first_id=None))
    assert record.first_id is not None
    key, first = MachineKey(id=record.id), record.first_id
    await store.write(lambda tx: tx.put(BY_FIRST_ID, id_key(first), key))
    return first


async def test_no_two_machines_share_a_range_and_a_full_pool_says_so() -> None:
    store = MemoryStore()
    taken = [await _taken(store, f"{number:014x}") for number in (1, 4, 7)]  # all would begin at the same place
    assert sorted(taken) == [(1 << 30) + n * IDS_EACH for n in range(3)]
    with pytest.raises(Conflict, match="--userns-ids"):
        await _taken(store, f"{10:014x}")


async def test_a_machine_keeps_what_it_has_and_gets_none_where_there_are_none() -> None:
    store = MemoryStore()
    assert with_ids(store, POOL, machine(first_id=77)).first_id == 77
    assert with_ids(store, None, machine()).first_id is None
    assert POOL.free(store, MachineId("00000000000002")) == (1 << 30) + 2 * IDS_EACH
