"""The store in memory breaks as it is told to."""

from functools import partial
from pathlib import Path

import anyio
import pytest

from hawker.clock import ManualClock
from hawker.errors import NotServed, Unavailable
from hawker.store.contract import Bucket, Durability, Tx
from hawker.store.memory_store import MemoryStore, StoreFaults

pytestmark = pytest.mark.anyio

NUMBERS = Bucket("numbers", int)


async def put(store: MemoryStore, key: str, durability: Durability = Durability.ORDERED) -> None:
    def apply(tx: Tx) -> None:
        tx.put(NUMBERS, key, 1)

    await store.write(apply, durability)


def keys(store: MemoryStore) -> str:
    return "".join(key for key, _ in store.scan(NUMBERS))


@pytest.mark.parametrize(("keep", "left"), [(0, "ab"), (1, "abc"), (2, "abcd"), (3, "abcde")])
async def test_a_crash_keeps_what_is_durable_and_a_prefix_of_the_rest(keep: int, left: str) -> None:
    store = MemoryStore()
    for key, durability in zip(
        "abcde", [Durability.ORDERED, Durability.DURABLE, *[Durability.ORDERED] * 3], strict=True
    ):
        await put(store, key, durability)
    assert store.pending == 3
    survivor = store.crash(keep)
    assert keys(survivor) == left
    assert survivor.pending == 0


async def test_a_crash_brings_back_what_was_deleted_since() -> None:
    store = MemoryStore()
    await put(store, "a", Durability.DURABLE)
    await store.write(lambda tx: tx.delete(NUMBERS, "a"), Durability.ORDERED)
    assert (keys(store.crash(1)), keys(store.crash(0))) == ("", "a")


async def test_a_crash_freezes_the_old_store() -> None:
    store = MemoryStore()
    store.crash()
    with anyio.move_on_after(0.01) as scope:
        await put(store, "a")
    assert scope.cancelled_caught and keys(store) == ""


async def test_the_chosen_commit_fails_once_and_changes_nothing() -> None:
    store, called = MemoryStore(faults=StoreFaults(fail=frozenset({2}))), list[str]()

    def apply(tx: Tx) -> None:
        tx.put(NUMBERS, "b", 1)
        tx.on_commit(partial(called.append, "b"))

    await put(store, "a")
    with pytest.raises(Unavailable):
        await store.write(apply)
    assert (keys(store), called) == ("a", [])
    await store.write(apply)
    assert (keys(store), called, store.commits) == ("ab", ["b"], 2)


async def test_after_the_chosen_commit_nobody_hears_from_it() -> None:
    store = MemoryStore(faults=StoreFaults(freeze_after=2))
    await put(store, "a")
    with anyio.move_on_after(0.01) as scope:
        await put(store, "b")
    assert scope.cancelled_caught and store.frozen.is_set()
    assert keys(store.crash(keep=2)) == "ab"


async def test_a_slow_store_takes_its_clocks_time() -> None:
    clock = ManualClock()
    before = clock.now()
    await put(MemoryStore(clock, StoreFaults(delay_s=5)), "a")
    assert clock.now() == before + 5


async def test_closing_makes_everything_durable() -> None:
    store = MemoryStore()
    await put(store, "a")
    await store.close()
    assert keys(store.crash(0)) == "a"


async def test_memory_store_shows_its_values_as_they_are_kept() -> None:
    store = MemoryStore()
    await put(store, "a")
    assert [(name, bool(value)) for name, value in store.encoded()] == [("numbers", True)]
    await store.write(lambda tx: tx.delete(NUMBERS, "a"), Durability.ORDERED)
    assert list(store.encoded()) == []


async def test_memory_store_has_no_file_to_back_up(tmp_path: Path) -> None:
    with pytest.raises(NotServed):
        await MemoryStore().backup(tmp_path / "copy")
