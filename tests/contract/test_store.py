"""What every store promises: the same suite over the one on disk and the one in memory."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from hawker.errors import Conflict, Unavailable
from hawker.store.contract import Bucket, Durability, Reader, Store, Tx, encode
from hawker.store.memory_store import MemoryStore
from hawker.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio


class Fruit(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    weight: int = 0


class NewerFruit(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    colour: str


FRUITS = Bucket("fruits", Fruit)
OTHERS = Bucket("others", Fruit)
DEADLINE_S = 240.0


@pytest.fixture(params=["sqlite", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = SqliteStore(tmp_path / "store.db") if request.param == "sqlite" else MemoryStore()
    with anyio.fail_after(DEADLINE_S):
        yield made
        await made.close()


def put_all(*keys: str) -> Callable[[Tx], None]:
    def apply(tx: Tx) -> None:
        for key in keys:
            tx.put(FRUITS, key, Fruit(name=key))

    return apply


def keys(store: Reader, prefix: str = "", **how: object) -> list[str]:
    return [key for key, _ in store.scan(FRUITS, prefix, **how)]  # type: ignore[arg-type]


async def test_a_value_is_read_back_as_its_type(store: Store) -> None:
    await store.write(lambda tx: tx.put(FRUITS, "a", Fruit(name="apple", weight=3)))
    assert store.get(FRUITS, "a") == Fruit(name="apple", weight=3)


async def test_a_missing_key_is_none(store: Store) -> None:
    assert store.get(FRUITS, "a") is None


async def test_buckets_do_not_share_keys(store: Store) -> None:
    await store.write(put_all("a"))
    assert store.get(OTHERS, "a") is None
    assert store.count(OTHERS) == 0


async def test_putting_again_replaces(store: Store) -> None:
    await store.write(put_all("a"))
    await store.write(lambda tx: tx.put(FRUITS, "a", Fruit(name="b")))
    assert store.get(FRUITS, "a") == Fruit(name="b")
    assert store.count(FRUITS) == 1


async def test_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    await store.write(lambda tx: tx.delete(FRUITS, "a"))
    assert store.count(FRUITS) == 0


async def test_fields_that_a_newer_program_added_are_tolerated(store: Store) -> None:
    newer = Bucket("fruits", NewerFruit)
    await store.write(lambda tx: tx.put(newer, "a", NewerFruit(name="apple", colour="red")))
    assert store.get(FRUITS, "a") == Fruit(name="apple")


async def test_a_scan_is_in_key_order_within_the_prefix(store: Store) -> None:
    await store.write(put_all("b/2", "a", "b/10", "b/1", "c", "b"))
    assert keys(store, "b/") == ["b/1", "b/10", "b/2"]
    assert keys(store) == ["a", "b", "b/1", "b/10", "b/2", "c"]


async def test_a_scan_goes_backwards(store: Store) -> None:
    await store.write(put_all("a", "b/1", "b/2", "c"))
    assert keys(store, "b/", reverse=True) == ["b/2", "b/1"]


async def test_a_scan_continues_after_a_key_in_its_own_direction(store: Store) -> None:
    await store.write(put_all("a", "b", "c", "d"))
    assert keys(store, after="b") == ["c", "d"]
    assert keys(store, after="b", limit=1) == ["c"]
    assert keys(store, after="bb") == ["c", "d"]
    assert keys(store, after="c", reverse=True) == ["b", "a"]


async def test_after_before_the_prefix_changes_nothing(store: Store) -> None:
    await store.write(put_all("a", "b/1", "b/2", "c"))
    assert keys(store, "b/", after="a") == ["b/1", "b/2"]
    assert keys(store, "b/", after="c", reverse=True) == ["b/2", "b/1"]
    assert keys(store, "b/", after="c") == []


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4])
async def test_a_limit_cuts_a_scan(store: Store, limit: int) -> None:
    await store.write(put_all("a", "b", "c"))
    assert keys(store, limit=limit) == ["a", "b", "c"][:limit]


async def test_keys_beyond_ascii_are_ordered_by_code_point(store: Store) -> None:
    odd = ["\0", "a\0b", "é", "\uffff", "\U0001f34e", "\U0010ffff", "\U0010ffff\U0010ffff"]
    await store.write(put_all(*reversed(odd)))
    assert keys(store) == odd
    assert keys(store, "\U0010ffff") == odd[-2:]


async def test_count_counts_the_prefix(store: Store) -> None:
    await store.write(put_all("a/1", "a/2", "b/1"))
    assert store.count(FRUITS, "a/") == 2
    assert store.count(FRUITS) == 3


async def test_write_returns_what_the_function_returns(store: Store) -> None:
    assert await store.write(lambda tx: 42) == 42


async def test_a_transaction_reads_its_own_writes(store: Store) -> None:
    await store.write(put_all("a", "b"))

    def apply(tx: Tx) -> tuple[Fruit | None, list[str], int]:
        tx.put(FRUITS, "c", Fruit(name="c"))
        tx.delete(FRUITS, "a")
        return tx.get(FRUITS, "a"), keys(tx), tx.count(FRUITS)

    assert await store.write(apply) == (None, ["b", "c"], 2)


async def test_writing_during_a_scan_does_not_disturb_it(store: Store) -> None:
    await store.write(put_all("a", "b", "c"))

    def empty(tx: Tx) -> list[str]:
        seen = []
        for key, _ in tx.scan(FRUITS):
            tx.delete(FRUITS, key)
            tx.put(FRUITS, key + "x", Fruit(name=key))
            seen.append(key)
        return seen

    assert await store.write(empty) == ["a", "b", "c"]
    assert keys(store) == ["ax", "bx", "cx"]


async def test_raising_rolls_back_that_transaction_alone(store: Store) -> None:
    def fail(tx: Tx) -> None:
        tx.put(FRUITS, "bad", Fruit(name="bad"))
        tx.delete(FRUITS, "first")
        raise Conflict("no")

    refused: list[str] = []

    async def expect_conflict() -> None:
        with pytest.raises(Conflict):
            await store.write(fail)
        refused.append("bad")

    await store.write(put_all("first"))
    async with anyio.create_task_group() as group:  # all in one group commit, where there are any
        group.start_soon(store.write, put_all("one"))
        group.start_soon(expect_conflict)
        group.start_soon(store.write, put_all("two"))
    assert refused == ["bad"]
    assert keys(store) == ["first", "one", "two"]


@pytest.mark.parametrize("durability", Durability)
async def test_a_write_is_visible_when_it_returns(store: Store, durability: Durability) -> None:
    await store.write(put_all("a"), durability)
    assert keys(store) == ["a"]


async def test_writes_are_applied_in_the_order_they_were_made(store: Store) -> None:
    def append(number: int) -> None:
        order.append(number)

    order: list[int] = []
    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(store.write, lambda tx, number=number: append(number))
    assert order == list(range(50))


async def test_on_commit_runs_before_the_write_returns(store: Store) -> None:
    seen: list[str] = []

    def apply(tx: Tx) -> None:
        tx.put(FRUITS, "a", Fruit(name="a"))
        tx.on_commit(lambda: seen.append("first" if store.get(FRUITS, "a") else "too early"))
        tx.on_commit(lambda: seen.append("second"))

    await store.write(apply)
    assert seen == ["first", "second"]


async def test_on_commit_never_runs_on_rollback(store: Store) -> None:
    seen: list[str] = []

    def apply(tx: Tx) -> None:
        tx.on_commit(lambda: seen.append("called"))
        raise Conflict("no")

    with pytest.raises(Conflict):
        await store.write(apply)
    await store.write(put_all("a"))
    assert seen == []


async def test_a_snapshot_does_not_change(store: Store) -> None:
    await store.write(put_all("a"))
    with store.snapshot() as before:
        await store.write(put_all("b"))
        with store.snapshot() as after:
            assert keys(before) == ["a"]
            assert keys(after) == ["a", "b"]
        assert before.get(FRUITS, "b") is None
        assert before.count(FRUITS) == 1
    assert keys(store) == ["a", "b"]


async def test_cancelling_the_caller_does_not_break_the_store(store: Store) -> None:
    with anyio.move_on_after(0):
        await store.write(put_all("maybe"))
    await store.write(put_all("a"))
    assert "a" in keys(store)


async def test_a_closed_store_refuses_writes(tmp_path: Path) -> None:
    made: list[Store] = [SqliteStore(tmp_path / "store.db"), MemoryStore()]
    for store in made:
        await store.close()
        with pytest.raises(Unavailable):
            await store.write(put_all("a"))


# What was written is told.


async def test_each_change_is_told_once_and_after_its_commit(store: Store) -> None:
    assert isinstance(store, SqliteStore | MemoryStore)
    told = list[tuple[str, str, bool]]()
    store.listen(lambda bucket, key: told.append((bucket, key, store.get(FRUITS, "a") is not None)))

    def apply(tx: Tx) -> None:
        tx.put(FRUITS, "a", Fruit(name="apple"))
        tx.put(FRUITS, "a", Fruit(name="apple"))
        tx.put(OTHERS, "b", Fruit(name="pear"))

    await store.write(apply)
    assert told == [("fruits", "a", True), ("others", "b", True)]
    told.clear()
    await store.write(lambda tx: tx.delete(FRUITS, "a"))
    assert told == [("fruits", "a", False)]


async def test_a_change_that_is_rolled_back_is_not_told(store: Store) -> None:
    assert isinstance(store, SqliteStore | MemoryStore)
    told = list[str]()
    store.listen(lambda bucket, key: told.append(key))

    def fails(tx: Tx) -> None:
        tx.put(FRUITS, "a", Fruit(name="apple"))
        raise ValueError

    with pytest.raises(ValueError):
        await store.write(fails)
    assert not told and store.count(FRUITS) == 0


async def test_sizes_are_the_keys_of_a_scan_and_the_bytes_of_their_values(store: Store) -> None:
    await store.write(put_all("a", "ab", "b", "c"))
    assert store.sizes(FRUITS) == [(key, len(encode(fruit))) for key, fruit in store.scan(FRUITS)]
    assert [key for key, _ in store.sizes(FRUITS, "a")] == ["a", "ab"]
    assert [key for key, _ in store.sizes(FRUITS, after="ab", limit=1)] == ["b"]
    assert store.sizes(OTHERS) == []


async def test_sizes_read_no_value(store: Store) -> None:
    await store.write(lambda tx: tx.put(Bucket(FRUITS.name, int), "a", 7))
    assert store.sizes(FRUITS) == [("a", 1)]
