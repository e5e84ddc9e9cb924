"""What an observer of the store hears."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest

from hawker.errors import Conflict, Fault, Unavailable
from hawker.store.contract import Bucket, Durability, Tx, decode, encode
from hawker.store.sqlite import SqliteStore
from tests.waiting import eventually


class Pear(msgspec.Struct, frozen=True, kw_only=True):
    name: str


def test_a_value_comes_back() -> None:
    assert decode(Bucket("pears", Pear), "a", encode(Pear(name="conference"))) == Pear(name="conference")


def test_plain_types_come_back() -> None:
    assert decode(Bucket("numbers", int), "a", encode(7)) == 7
    assert decode(Bucket("lists", list[str]), "a", encode(["a"])) == ["a"]


def test_bytes_of_another_type_are_refused() -> None:
    with pytest.raises(Fault, match=r"record 'a 1' in bucket pears of the store cannot be read .*restore a backup"):
        decode(Bucket("pears", Pear), "a\0" + "1\0", encode(7))


def test_bytes_that_are_cut_short_are_refused() -> None:
    with pytest.raises(Fault, match="bucket pears"):
        decode(Bucket("pears", Pear), "a", encode(Pear(name="conference"))[:-3])


def test_fields_of_a_newer_program_are_passed_over() -> None:
    assert decode(Bucket("pears", Pear), "a", encode({"name": "abate", "ripe": True})) == Pear(name="abate")


pytestmark = pytest.mark.anyio
NUMBERS = Bucket("numbers", int)


def put(tx: Tx, number: int) -> None:
    tx.put(NUMBERS, str(number), number)


class Ears:
    """Writes down each group and how its commit went."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, bool, str]] = []
        self.failures = 0

    @contextmanager
    def commit(self, transactions: int, *, durable: bool) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.heard.append((transactions, durable, "failed"))
            raise
        self.heard.append((transactions, durable, "committed"))

    def failed(self) -> None:
        self.failures += 1


@pytest.fixture
def ears() -> Ears:
    return Ears()


async def test_an_observer_hears_of_each_group_and_whether_it_was_synced(tmp_path: Path, ears: Ears) -> None:
    store = SqliteStore(tmp_path / "store.db", ears)
    await store.write(partial(put, number=1))
    await store.write(partial(put, number=2), Durability.ORDERED)
    await store.close()
    assert ears.heard == [(1, True, "committed"), (1, False, "committed")]


async def test_transactions_that_wait_together_are_one_group(tmp_path: Path, ears: Ears) -> None:
    store, held, let_go = SqliteStore(tmp_path / "store.db", ears), threading.Event(), threading.Event()

    def hold(tx: Tx) -> None:
        held.set()
        assert let_go.wait(60)

    async with anyio.create_task_group() as group:
        group.start_soon(store.write, hold)
        await eventually(held.is_set)
        for number in range(3):
            group.start_soon(store.write, partial(put, number=number))
        await eventually(lambda: store.waiting == 3)
        let_go.set()
    await store.close()
    assert ears.heard == [(1, True, "committed"), (3, True, "committed")]


async def test_an_observer_hears_that_a_group_failed(tmp_path: Path, ears: Ears) -> None:
    store = SqliteStore(tmp_path / "store.db", ears)
    store._connection.set_commit_hook(lambda: True)
    with pytest.raises(Unavailable):
        await store.write(partial(put, number=1))
    assert (ears.heard, ears.failures) == ([(1, True, "failed")], 1)
    store._connection.set_commit_hook(None)
    await store.close()


async def test_a_transaction_that_its_caller_gives_up_is_no_failure_of_the_store(tmp_path: Path, ears: Ears) -> None:
    store = SqliteStore(tmp_path / "store.db", ears)

    def refuse(tx: Tx) -> None:
        raise Conflict("taken")

    with pytest.raises(Conflict):
        await store.write(refuse)
    await store.close()
    assert ears.failures == 0
