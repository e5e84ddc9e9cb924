import pytest

from hawker.sim.node.faulty_store import StoreOver, TxOver
from hawker.store.contract import Bucket, Tx
from hawker.store.memory_store import MemoryStore

NUMBERS = Bucket("numbers", int)


@pytest.mark.anyio
async def test_store_over_reads_what_inner_store_has() -> None:
    inner = MemoryStore()
    await inner.write(lambda tx: tx.put(NUMBERS, "one", 1))
    store = StoreOver(inner)
    assert store.get(NUMBERS, "one") == 1 and store.count(NUMBERS) == 1 and list(store.scan(NUMBERS)) == [("one", 1)]
    with store.snapshot() as reader:
        assert reader.get(NUMBERS, "one") == 1
    await store.close()


@pytest.mark.anyio
async def test_transaction_over_another_reads_its_changes() -> None:
    def put_and_read(tx: Tx) -> int | None:
        tx.put(NUMBERS, "one", 1)
        return TxOver(tx).get(NUMBERS, "one")

    assert await MemoryStore().write(put_and_read) == 1
