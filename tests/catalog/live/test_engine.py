"""`Live` over a real file, without HTTP: sharing, resuming, restarts, sweeping, what everything-changed means."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import apsw
import pytest

from hawker.catalog.contract import RowChange, Statement, Touched
from hawker.catalog.live.engine import IDLE_S, MOST, Live
from hawker.catalog.live.subscription import (
    TOO_MUCH,
    AnswerChanges,
    AnswerColumns,
    AnswerEnd,
    AnswerRows,
    Gone,
    Subscription,
    SubscriptionEvent,
)
from hawker.clock import SystemClock
from hawker.errors import BadRequest, DeadlineExceeded, Fault, NotFound, Unavailable

pytestmark = pytest.mark.anyio
_ALL = Statement(query="SELECT id, state FROM machines")


class Shifted(SystemClock):
    """Monotonic time that can be moved on."""

    def __init__(self) -> None:
        self.by_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.by_s


class Bench:
    def __init__(self, folder: Path) -> None:
        self.clock = Shifted()
        self.file, self.place = folder / "catalog.db", folder / "live"
        fresh = not self.file.exists()
        self._writer = apsw.Connection(str(self.file))
        if fresh:
            self._writer.execute("PRAGMA journal_mode = WAL").fetchall()
            self._writer.execute(
                "CREATE TABLE machines (node TEXT NOT NULL, id TEXT NOT NULL, state TEXT, PRIMARY KEY (node, id)) "
                "WITHOUT ROWID"
            )
        self.live = Live(self.file, self.place, self.clock)

    def write(self, number: str, state: str | None) -> None:
        """None deletes. Does not tell."""
        if state is None:
            self._writer.execute("DELETE FROM machines WHERE id = ?", (number,))
        else:
            self._writer.execute("INSERT OR REPLACE INTO machines VALUES ('n', ?, ?)", (number, state))

    def put(self, number: str, state: str | None) -> None:
        self.write(number, state)
        self.live.touched(Touched(tables={"machines": frozenset({("n", number)})}))

    def alter(self, sql: str) -> None:
        self._writer.execute(sql)
        self.live.touched(Touched(tables={}, everything=True))

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def _bench(folder: Path) -> AsyncIterator[Bench]:
    bench = Bench(folder)
    try:
        async with bench.live.running():
            yield bench
    finally:
        bench.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with _bench(tmp_path) as one:
        yield one


async def _beginning(heard: AsyncGenerator[SubscriptionEvent, None]) -> tuple[list[tuple[Any, ...]], int]:
    """Rows, and the number of the last change in them."""
    assert await anext(heard) == AnswerColumns(("id", "state"))
    rows: list[tuple[Any, ...]] = []
    while isinstance(one := await anext(heard), AnswerRows):
        rows += [row for _, row in one.rows]
    assert isinstance(one, AnswerEnd)
    return rows, one.change


async def _change(heard: AsyncGenerator[SubscriptionEvent, None]) -> RowChange:
    one = await anext(heard)
    assert isinstance(one, AnswerChanges)
    (told,) = one.events
    assert isinstance(told.content, RowChange)
    return told.content


async def test_the_same_text_shares_one_answer(bench: Bench) -> None:
    bench.write("1", "on")
    first = await bench.live.open(_ALL)
    assert await bench.live.open(Statement(query=_ALL.query)) is first
    assert await bench.live.open(Statement(query=_ALL.query + " ")) is not first
    assert bench.live.find(str(first.id)) is first
    async with aclosing(await first.hear()) as one, aclosing(await first.hear()) as other:
        assert await _beginning(one) == await _beginning(other) == ([("1", "on")], 0)
        bench.put("2", "off")
        assert (
            await _change(one) == await _change(other) == RowChange(kind="insert", row_id=2, row=("2", "off"), number=1)
        )


async def test_later_listener_hears_the_changes_it_missed(bench: Bench) -> None:
    subscription = await bench.live.open(_ALL)
    for turn in range(3):
        bench.put("1", f"turn {turn}")
        await bench.live.flush()
    assert subscription.feed.next == 4
    async with aclosing(await subscription.hear(after=1)) as heard:
        missed = await anext(heard)
        assert isinstance(missed, AnswerChanges)
        assert [one.content.number for one in missed.events if isinstance(one.content, RowChange)] == [2, 3]
    async with aclosing(await subscription.hear(skip_rows=True)) as heard:
        bench.put("1", "later")
        assert (await _change(heard)).number == 4


async def test_changes_that_are_gone_cannot_be_heard(bench: Bench) -> None:
    subscription = await bench.live.open(_ALL)
    for part in range(7):
        for number in range(100):
            bench.put(f"{part}-{number}", "on")
        await bench.live.flush()
    with pytest.raises(Gone, match="min change id: "):
        async with aclosing(await subscription.hear(after=1)) as heard:
            await anext(heard)


async def test_a_clean_stop_keeps_ids_and_what_came_meanwhile_is_told(tmp_path: Path) -> None:
    async with _bench(tmp_path) as bench:
        bench.write("1", "on")
        before = await bench.live.open(_ALL)
        bench.put("2", "on")
        await bench.live.flush()
    async with _bench(tmp_path) as again:
        (after,) = again.live.subscriptions
        assert (after.id, after.hash) == (before.id, before.hash)
        assert after.feed.next == 2
    async with _bench(tmp_path) as bench:
        bench.write("3", "on")
    async with _bench(tmp_path) as again:
        restored = again.live.find(str(before.id))
        async with aclosing(await restored.hear(after=1)) as heard:
            assert await _change(heard) == RowChange(kind="insert", row_id=3, row=("3", "on"), number=2)


async def test_live_query_that_was_not_closed_is_not_restored(tmp_path: Path) -> None:
    async with _bench(tmp_path) as bench:
        subscription = await bench.live.open(_ALL)
        crashed = subscription.file.read_bytes()
    subscription.file.write_bytes(crashed)
    (tmp_path / "live" / "no-id.db").write_bytes(b"")
    async with _bench(tmp_path) as again:
        assert again.live.subscriptions == []
        assert list((tmp_path / "live").iterdir()) == []


async def test_live_query_without_listener_is_closed_after_a_while(bench: Bench) -> None:
    alone = await bench.live.open(_ALL)
    heard_of = await bench.live.open(Statement(query="SELECT id FROM machines"))
    with heard_of.listener():
        bench.clock.by_s = IDLE_S - 5
        await bench.live.sweep()
        assert len(bench.live.subscriptions) == 2
        bench.clock.by_s = IDLE_S + 5
        await bench.live.sweep()
        assert bench.live.subscriptions == [heard_of]
        assert not alone.file.exists()
    with pytest.raises(NotFound, match="could not find subscription with id"):
        bench.live.find(str(alone.id))


async def test_when_everything_may_have_changed_all_is_looked_at(bench: Bench) -> None:
    subscription = await bench.live.open(_ALL)
    updates = await bench.live.updates("machines")
    async with aclosing(await subscription.hear()) as heard, aclosing(updates.feed.events(1)) as events:
        await _beginning(heard)
        bench.write("1", "on")
        bench.live.touched(Touched(tables={}, everything=True))
        assert (await _change(heard)).row == ("1", "on")
        assert [one.content for one in await anext(events)] == [TOO_MUCH]


async def test_a_whole_query_is_asked_again_after_a_pause(bench: Bench) -> None:
    counted = await bench.live.open(Statement(query="SELECT count(*) AS n FROM machines"))
    async with aclosing(await counted.hear(skip_rows=True)) as heard:
        bench.put("1", "on")
        assert (await _change(heard)).row == (1,)
        bench.put("2", "on")
        assert (await _change(heard)).row == (2,)


async def test_updates_name_rows_and_whether_they_are_there(bench: Bench) -> None:
    updates = await bench.live.updates("Machines")
    assert await bench.live.updates("machines") is updates
    async with aclosing(updates.feed.events(1)) as events:
        bench.put("1", "on")
        assert [one.content for one in await anext(events)] == [("update", ("n", "1"))]
        bench.put("1", None)
        assert [one.content for one in await anext(events)] == [("delete", ("n", "1"))]
    with pytest.raises(BadRequest, match="table `nowhere` not found in schema"):
        await bench.live.updates("nowhere")


@pytest.mark.parametrize("error", [DeadlineExceeded("too much"), apsw.CantOpenError("unable to open database file")])
async def test_updates_that_cannot_be_looked_at_end_and_nothing_else_does(bench: Bench, error: Exception) -> None:
    def fail(keys: object) -> NoReturn:
        raise error

    updates = await bench.live.updates("machines")
    updates.look = fail  # type: ignore[method-assign]
    async with aclosing(updates.feed.events(1)) as events:
        bench.put("1", "on")
        assert [one.content for one in await anext(events)] == [TOO_MUCH]
    again = await bench.live.updates("machines")
    async with aclosing(again.feed.events(1)) as events:
        bench.put("2", "on")
        assert [one.content for one in await anext(events)] == [("update", ("n", "2"))]


async def test_a_query_that_cannot_be_asked_any_more_ends(bench: Bench) -> None:
    subscription = await bench.live.open(_ALL)
    async with aclosing(await subscription.hear(skip_rows=True)) as heard:
        bench.alter("ALTER TABLE machines DROP COLUMN state")
        ended = await anext(heard)
        assert isinstance(ended, AnswerChanges)
        assert isinstance(ended.events[0].content, BadRequest | Fault)
        with pytest.raises(StopAsyncIteration):
            await anext(heard)
    with pytest.raises(NotFound):
        bench.live.find(str(subscription.id))


async def test_to_resume_it_must_be_there(bench: Bench) -> None:
    with pytest.raises(BadRequest, match="no existing subscription found"):
        await bench.live.open(_ALL, existing=True)
    subscription = await bench.live.open(_ALL)
    assert await bench.live.open(_ALL, existing=True) is subscription


async def test_queries_are_so_many_at_most(bench: Bench) -> None:
    subscription = await bench.live.open(_ALL)
    with subscription.listener():
        bench.live._by_id.update({bench.live.new_id(): subscription for _ in range(MOST)})
        with pytest.raises(Unavailable, match=f"{MOST} live queries"):
            await bench.live.open(Statement(query="SELECT 1 FROM machines"))
        bench.live._by_id = {subscription.id: subscription}


def test_subscriptions_are_listed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    listed: list[Subscription] = bench.live.subscriptions
    assert listed == []
    bench.close()
