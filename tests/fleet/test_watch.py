import pytest

from hawker.fleet.watch import WatchedStore
from hawker.ids import AppName
from hawker.record.machine import BY_APP, MACHINES, MachineKey
from hawker.store.contract import Bucket, Tx
from hawker.store.memory_store import MemoryStore
from tests.worker.machines import machine

pytestmark = pytest.mark.anyio

RECORD = machine()


async def test_each_change_is_told_once_and_after_its_commit() -> None:
    store, told = WatchedStore(MemoryStore()), []

    def hear(bucket: str, key: str) -> None:
        told.append((bucket, key, store.get(MACHINES, RECORD.id) is not None))

    store.listen(hear)

    def apply(tx: Tx) -> None:
        tx.put(MACHINES, RECORD.id, RECORD)
        tx.put(MACHINES, RECORD.id, RECORD)
        tx.put(BY_APP, "stall/1", MachineKey(id=RECORD.id))
        assert tx.get(MACHINES, RECORD.id) == RECORD
        assert tx.count(MACHINES) == 1 and [key for key, _ in tx.scan(MACHINES)] == [RECORD.id]

    await store.write(apply)
    assert told == [("machines", RECORD.id, True), ("machines_by_app", "stall/1", True)]
    told.clear()
    await store.write(lambda tx: tx.delete(MACHINES, RECORD.id))
    assert told == [("machines", RECORD.id, False)]
    await store.close()


async def test_what_is_rolled_back_is_not_told() -> None:
    store, told = WatchedStore(MemoryStore()), []
    store.listen(lambda bucket, key: told.append(key))

    def fails(tx: Tx) -> None:
        tx.put(MACHINES, RECORD.id, RECORD)
        raise ValueError

    with pytest.raises(ValueError):
        await store.write(fails)
    assert not told and store.count(MACHINES) == 0


async def test_reads_go_straight_through() -> None:
    store = WatchedStore(MemoryStore())
    await store.write(lambda tx: tx.put(MACHINES, RECORD.id, RECORD))
    with store.snapshot() as view:
        assert view.get(MACHINES, RECORD.id) == store.get(MACHINES, RECORD.id) == RECORD
    assert [key for key, _ in store.scan(Bucket("machines", type(RECORD)), limit=1)] == [RECORD.id]
    assert RECORD.app == AppName("stall")
