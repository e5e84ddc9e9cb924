"""Live queries and updates of tables, and those who listen to them: where each joins, what it is told first, and how it
goes on.
"""

import hashlib
import uuid
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, suppress
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import anyio
import apsw

from hawker.catalog.change import Value
from hawker.catalog.contract import RowChange, Statement, Touched
from hawker.catalog.json_lines import change_line, error_line, notify_line
from hawker.catalog.live.evaluation import Changed, Evaluation, QueryPlan
from hawker.catalog.live.feed import Feed, FeedEvent
from hawker.catalog.live.join_tree import TableInfo, quoted
from hawker.catalog.live.result_cache import Key, ResultSnapshot
from hawker.catalog.read_connection import ReadPool
from hawker.clock import Clock
from hawker.errors import BadRequest, DeadlineExceeded, Fault, Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.value_object import ValueObject

_ROWS = 500


class AnswerColumns(ValueObject, frozen=True):
    names: tuple[str, ...]
    """The names of the columns in the order of the answer; sent once, before all rows."""


class AnswerRows(ValueObject, frozen=True):
    """Some rows of the answer as it was when the listener joined, with their ids."""

    rows: list[tuple[int, tuple[Value, ...]]]


class AnswerEnd(ValueObject, frozen=True):
    """The end of the first rows of an answer; `change` is the last change that they have in them."""

    change: int


class AnswerChanges(ValueObject, frozen=True):
    """Changes, or what ends the subscription."""

    events: list[FeedEvent]


SubscriptionEvent: TypeAlias = AnswerColumns | AnswerRows | AnswerEnd | AnswerChanges


class Gone(Exception):
    """The changes that a listener asks for are not known any more."""

    def __init__(self, floor: int) -> None:
        super().__init__(f"subscription already deleted older changes, min change id: {floor}")


class Subscription:
    """The subscription to one live query. `turn` is held by the task that asks the database."""

    def __init__(self, number: uuid.UUID, evaluation: Evaluation, clock: Clock, ring_events: int) -> None:
        self.id = number
        self.hash = hash_of(evaluation.plan.sql)
        self.feed = Feed(clock, evaluation.cache.last + 1, events=ring_events)
        self.turn = anyio.Lock()
        self.cost_s = 0.0  # what the last look took
        self.awaited = False  # a look at the whole answer is to come
        self._evaluation, self._clock = evaluation, clock

    @property
    def plan(self) -> QueryPlan:
        return self._evaluation.plan

    @property
    def file(self) -> Path:
        return self._evaluation.cache.file

    def listener(self) -> AbstractContextManager[None]:
        return self.feed.listener()

    async def look(self, changed: Changed | None) -> None:
        """Ask again, and tell what changed. What makes that impossible ends the subscription."""
        async with self.turn:
            if self.feed.closed:
                return
            began = self._clock.monotonic()
            try:
                changes = await in_thread(Pool.QUERIES, self._evaluation.again, changed)
            except Unavailable:
                raise
            except (BadRequest, DeadlineExceeded, Fault) as error:
                self._end(error)
                return
            except (apsw.Error, OSError) as error:  # a disk that is full ends nobody but the subscription
                self._end(Fault(f"the answer cannot be kept: {error}"))
                return
            self.cost_s = self._clock.monotonic() - began
            self.feed.tell([FeedEvent(change, change_line(change)) for change in changes])

    def _end(self, error: BadRequest | DeadlineExceeded | Fault) -> None:
        self.feed.end(FeedEvent(error, error_line(text_of(error))))

    async def hear(
        self, *, after: int | None = None, skip_rows: bool = False
    ) -> AsyncGenerator[SubscriptionEvent, None]:
        """The events of the subscription. Once this returns, no later change is missed. `after` None or 0 begins with
        the answer as it is, unless that is skipped; else with the change after it. The items raise `Gone` before the
        first one, and `Lagged` when the caller was too slow."""
        try:
            snapshot = await in_thread(Pool.QUERIES, ResultSnapshot, self.file)
        except apsw.Error as error:
            raise Unavailable("this live query has just ended: subscribe anew") from error
        return self._heard(snapshot, after, skip_rows)

    async def _heard(
        self, snapshot: ResultSnapshot, after: int | None, skip_rows: bool
    ) -> AsyncGenerator[SubscriptionEvent, None]:
        try:
            if after:
                joined = max(after, snapshot.last)
                if after < snapshot.floor - 1:
                    raise Gone(snapshot.floor)
                missed = await in_thread(Pool.QUERIES, snapshot.changes_after, after)
                if missed:
                    yield AnswerChanges([FeedEvent(change, change_line(change)) for change in missed])
            else:
                joined = snapshot.last
                if not skip_rows:
                    async for heard in self._answer(snapshot):
                        yield heard
        finally:
            snapshot.close()
        async with aclosing(self.feed.events(min(joined + 1, self.feed.next))) as events:
            async for portion in events:
                later = [
                    one for one in portion if not isinstance(one.content, RowChange) or one.content.number > joined
                ]
                if later:
                    yield AnswerChanges(later)

    async def _answer(self, snapshot: ResultSnapshot) -> AsyncGenerator[SubscriptionEvent, None]:
        yield AnswerColumns(self.plan.columns)
        while rows := await in_thread(Pool.QUERIES, snapshot.rows, _ROWS):
            yield AnswerRows(rows)
        yield AnswerEnd(snapshot.last)

    async def close(self, *, keep: bool) -> None:
        """`keep` leaves the file for the next start, all in order."""
        with anyio.CancelScope(shield=True):
            async with self.turn:
                self.feed.end(None)
                await in_thread(Pool.QUERIES, self._close, keep)

    def _close(self, keep: bool) -> None:
        """One that cannot be kept is not restored: its file does not say that it is whole."""
        with suppress(apsw.Error, OSError):
            if keep:
                self._evaluation.cache.note(self.plan.about, completed=True)
        self._evaluation.cache.close()
        if not keep:
            remove(self.file)


def _is_after(event: FeedEvent, number: int) -> bool:
    return not isinstance(event.content, RowChange) or event.content.number > number


def remove(file: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)


def hash_of(sql: str) -> str:
    """Short and opaque: the same text, the same hash."""
    return hashlib.blake2b(sql.encode(), digest_size=8).hexdigest()


def text_of(error: BadRequest | DeadlineExceeded | Fault) -> str:
    """The text of an error without the word that the rest of Hawker puts before it."""
    return str(error).removeprefix(f"{error.prefix}: ")


# Updates of tables for those who listen: the buffer of keys that changed and were not looked at yet, and the feed
# of one table's updates (which rows changed, and whether they are still there; not what they hold).

MOST_KEYS = 20_000


class ChangedKeys(ValueObject, frozen=True):
    """Keys of changed rows by table. `everything`: any row may have changed, so no list of keys is complete."""

    tables: Mapping[str, frozenset[Key]]
    everything: bool

    @property
    def empty(self) -> bool:
        return not self.tables and not self.everything


class ChangeBuffer:
    """Collects changed keys until they are looked at. Bounded: beyond `MOST_KEYS` it holds `everything` instead."""

    def __init__(self) -> None:
        self._tables: dict[str, set[Key]] = {}
        self._everything = False

    @property
    def count(self) -> int:
        return MOST_KEYS if self._everything else sum(map(len, self._tables.values()))

    def add(self, touched: Touched) -> None:
        self._everything = self._everything or touched.everything
        for name, keys in touched.tables.items():
            self._tables.setdefault(name.lower(), set()).update(keys)
        if self.count > MOST_KEYS:
            self._everything = True
        if self._everything:
            self._tables.clear()

    def take(self) -> ChangedKeys:
        batch = ChangedKeys({name: frozenset(keys) for name, keys in self._tables.items()}, self._everything)
        self._tables, self._everything = {}, False
        return batch


_PORTION = 256
TOO_MUCH = "more changed than can be told row by row: read the table anew, then ask for its updates again"


class TableUpdates:
    def __init__(self, table: TableInfo, pool: ReadPool, clock: Clock) -> None:
        self.table = table
        self.feed = Feed(clock)
        self._pool = pool
        names = ", ".join(map(quoted, table.key))
        self._query = f"SELECT {names} FROM {quoted(table.name)} WHERE ({names}) IN (VALUES {{rows}})"
        self._one = f"({', '.join('?' * len(table.key))})"

    def look(self, keys: Collection[Key]) -> list[FeedEvent]:
        """The events of the rows with these keys, as they are now. Blocks."""
        there: set[Key] = set()
        left = iter(keys)
        with self._pool.one() as reader:
            while portion := list(islice(left, _PORTION)):
                params = tuple(value for key in portion for value in key)
                query = self._query.format(rows=", ".join([self._one] * len(portion)))
                answer = reader.start(Statement(query=query, params=params))
                there.update(reader.take(answer, rows=_PORTION + 1, size_bytes=1 << 30))
                answer.close()
        return list(self._told(keys, there))

    def overflow(self) -> None:
        """Tell those who listen that they have to begin again."""
        self.feed.end(FeedEvent(TOO_MUCH, error_line(TOO_MUCH)))

    def _told(self, keys: Collection[Key], there: set[Key]) -> Iterator[FeedEvent]:
        for key in keys:
            kind = "update" if key in there else "delete"
            yield FeedEvent((kind, key), notify_line(kind, key))
