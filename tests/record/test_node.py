import pytest

from hawker.node import Resources
from hawker.record.node import hold, used
from hawker.store.memory_store import MemoryStore

pytestmark = pytest.mark.anyio


async def test_used_memory_is_the_held_and_not_given_back() -> None:
    store, two, five = MemoryStore(), Resources(disk_mib=2), Resources(disk_mib=5, memory_mib=1)
    assert used(store) == Resources()
    await store.write(lambda tx: hold(tx, Resources(), two))
    await store.write(lambda tx: hold(tx, Resources(), five))
    assert used(store) == Resources(disk_mib=7, memory_mib=1)
    await store.write(lambda tx: hold(tx, two, Resources()))
    await store.write(lambda tx: hold(tx, five, five))
    assert used(store) == five
