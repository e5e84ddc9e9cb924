import uuid
from contextlib import aclosing
from pathlib import Path

import apsw
import pytest

from hawker.catalog.contract import Statement, Touched
from hawker.catalog.live.evaluation import Evaluation, plan_of, read_schema
from hawker.catalog.live.feed import Lagged
from hawker.catalog.live.join_tree import TableInfo
from hawker.catalog.live.result_cache import ResultCache, completed_query
from hawker.catalog.live.subscription import (
    MOST_KEYS,
    TOO_MUCH,
    AnswerChanges,
    AnswerColumns,
    AnswerEnd,
    AnswerRows,
    ChangeBuffer,
    Subscription,
    TableUpdates,
    hash_of,
    text_of,
)
from hawker.catalog.read_connection import ReadConnection, ReadPool
from hawker.clock import ManualClock, SystemClock
from hawker.errors import BadRequest, Fault, Unavailable

pytestmark = pytest.mark.anyio


class Bench:
    def __init__(self, folder: Path, ring_events: int = 100) -> None:
        file, clock = folder / "catalog.db", SystemClock()
        self.writer = apsw.Connection(str(file))
        self.writer.execute("PRAGMA journal_mode = WAL").fetchall()
        self.writer.execute("CREATE TABLE t (k INTEGER NOT NULL PRIMARY KEY, v TEXT) WITHOUT ROWID")
        self._pool = ReadPool(lambda: ReadConnection(file, clock))
        with self._pool.one() as guarded:
            plan = plan_of(guarded, Statement(query="SELECT v FROM t"), read_schema(file))
        asked = Evaluation(plan, ResultCache(folder / "kept.db", plan.sources), self._pool, clock)
        asked.first()
        self.subscription = Subscription(uuid.UUID(int=1), asked, clock, ring_events)

    async def put(self, key: int, value: str) -> None:
        self.writer.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (key, value))
        await self.subscription.look({"t": {(key,)}})

    async def close(self, *, keep: bool) -> None:
        await self.subscription.close(keep=keep)
        self._pool.close()
        self.writer.close()


async def test_the_answer_its_end_and_what_follows(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.put(1, "a")
    async with aclosing(await bench.subscription.hear()) as heard:
        assert await anext(heard) == AnswerColumns(("v",))
        assert await anext(heard) == AnswerRows([(1, ("a",))])
        await bench.put(1, "b")
        assert await anext(heard) == AnswerEnd(1), "what came meanwhile is not in it"
        news = await anext(heard)
        assert isinstance(news, AnswerChanges)
        assert [one.line for one in news.events] == [b'{"change":["update",1,["b"],2]}\n']
    await bench.close(keep=False)
    assert not (tmp_path / "kept.db").exists()


async def test_slow_listener_is_cut_off(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ring_events=2)
    async with aclosing(await bench.subscription.hear()) as heard:
        await anext(heard)
        await anext(heard)
        for number in range(4):
            await bench.put(number, "x")
        with pytest.raises(Lagged):
            await anext(heard)
    await bench.close(keep=False)


async def test_full_disk_ends_the_subscription_and_nothing_else(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    cache = bench.subscription._evaluation.cache._db
    cache.pragma("max_page_count", cache.pragma("page_count"))
    for number in range(20):
        await bench.put(number, "x" * 1000)
    assert bench.subscription.feed.closed
    await bench.close(keep=True)


async def test_closed_subscription_can_be_resumed_from_its_cache(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.close(keep=True)
    assert completed_query(tmp_path / "kept.db") == bench.subscription.plan.about


async def test_one_that_has_ended_cannot_be_heard(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.close(keep=False)
    with pytest.raises(Unavailable, match="subscribe anew"):
        await bench.subscription.hear()


def test_names_of_texts() -> None:
    assert hash_of("SELECT 1") == hash_of("SELECT 1") != hash_of("SELECT  1")
    assert len(hash_of("")) == 16
    assert text_of(BadRequest("no")) == "no"
    assert text_of(Fault("broke")) == "broke"


def _touched(table: str, *keys: int) -> Touched:
    return Touched(tables={table: frozenset((key,) for key in keys)})


def test_keys_gather_until_they_are_taken() -> None:
    pending = ChangeBuffer()
    pending.add(_touched("Machines", 1, 2))
    pending.add(_touched("machines", 2, 3))
    assert pending.count == 3
    batch = pending.take()
    assert batch.tables == {"machines": {(1,), (2,), (3,)}}
    assert not batch.everything
    assert pending.take().empty


def test_too_many_keys_are_everything() -> None:
    pending = ChangeBuffer()
    pending.add(_touched("machines", *range(MOST_KEYS + 1)))
    batch = pending.take()
    assert batch.everything
    assert batch.tables == {}
    assert not batch.empty


def test_everything_stays_everything() -> None:
    pending = ChangeBuffer()
    pending.add(Touched(tables={}, everything=True))
    pending.add(_touched("machines", 1))
    assert pending.take() == type(pending.take())({}, True)


def test_whether_rows_are_there(tmp_path: Path) -> None:
    file, clock = tmp_path / "catalog.db", ManualClock()
    db = apsw.Connection(str(file))
    db.execute("CREATE TABLE t (a, b, PRIMARY KEY (a, b)) WITHOUT ROWID")
    db.executemany("INSERT INTO t VALUES ('n', ?)", [(number,) for number in range(600)])
    pool = ReadPool(lambda: ReadConnection(file, clock))
    updates = TableUpdates(TableInfo("t", ("a", "b"), ("a", "b")), pool, clock)
    told = updates.look([("n", number) for number in range(590, 1200)])
    assert [one.content for one in told[:2]] == [("update", ("n", 590)), ("update", ("n", 591))]
    assert [one.content for one in told[10:12]] == [("delete", ("n", 600)), ("delete", ("n", 601))]
    assert len(told) == 610
    assert told[0].line == b'{"notify":["update",["n",590]]}\n'
    pool.close()
    db.close()


def test_too_much_ends_it() -> None:
    clock = ManualClock()
    updates = TableUpdates(TableInfo("t", ("a",), ("a",)), ReadPool(lambda: ReadConnection(Path(), clock)), clock)
    updates.overflow()
    assert updates.feed.closed
    assert "read the table anew" in TOO_MUCH
