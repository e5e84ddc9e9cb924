"""Reads of the replica: what workers and brokers ask of it in this process, whole answers and live ones; and point
reads by key.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import assert_never
from urllib.parse import quote

import apsw

from hawker.catalog.change import Value
from hawker.catalog.contract import ResultTable, RowChange, Statement
from hawker.catalog.database import check
from hawker.catalog.live.engine import Live
from hawker.catalog.live.feed import Lagged
from hawker.catalog.live.subscription import AnswerChanges, AnswerColumns, AnswerEnd, AnswerRows, SubscriptionEvent
from hawker.catalog.read_connection import QueryCursor, ReadConnection, ReadPool
from hawker.clock import Clock
from hawker.errors import CannotStart, HawkerError, Unavailable, Unprocessable

MOST_ROWS = 100_000
MOST_BYTES = 64 * 1024 * 1024
_TAKE_ROWS = 5_000


class Reads:
    """The answers of a replica beside its writes: `query` blocks, `subscribe` waits for changes."""

    def __init__(self, pool: ReadPool, live: Live, clock: Clock) -> None:
        self._pool, self._live, self._clock = pool, live, clock

    def query(self, statement: Statement, timeout_s: float) -> ResultTable:
        """The answer to a statement that reads. Raises `BadRequest` for what is no reading statement,
        `DeadlineExceeded`, `Unprocessable` when the answer is too big to be one."""
        with self._pool.one() as reader:
            reader.deadline(self._clock.monotonic() + timeout_s)
            answer = reader.start(statement)
            try:
                return ResultTable(columns=answer.columns, rows=tuple(_all(reader, answer)))
            finally:
                answer.close()

    @asynccontextmanager
    async def subscribe(self, statement: Statement) -> AsyncIterator[AsyncIterator[ResultTable | RowChange]]:
        subscription = await self._live.open(statement)
        with subscription.listener():
            async with aclosing(_told(await subscription.hear())) as told:
                yield told


def _all(reader: ReadConnection, answer: QueryCursor) -> Iterator[tuple[Value, ...]]:
    count = size = 0
    while rows := reader.take(answer, rows=_TAKE_ROWS, size_bytes=MOST_BYTES):
        count += len(rows)
        size += sum(len(cell) for row in rows for cell in row if isinstance(cell, str | bytes))
        if count > MOST_ROWS or size > MOST_BYTES:
            raise Unprocessable(f"the answer has more than {MOST_ROWS} rows or {MOST_BYTES >> 20} MiB: ask for less")
        yield from rows


async def _told(heard: AsyncGenerator[SubscriptionEvent, None]) -> AsyncGenerator[ResultTable | RowChange, None]:
    """The first answer as one table, then the changes. Raises `Unavailable` when the caller was too slow, or what ended
    the subscription."""
    columns: tuple[str, ...] = ()
    rows: list[tuple[Value, ...]] = []
    try:
        async with aclosing(heard):
            async for one in heard:
                match one:
                    case AnswerColumns():
                        columns = one.names
                    case AnswerRows():
                        rows.extend(row for _, row in one.rows)
                    case AnswerEnd():
                        yield ResultTable(columns=columns, rows=tuple(rows))
                        rows.clear()
                    case AnswerChanges():
                        for told in one.events:
                            yield _change(told.content)
                    case _:
                        assert_never(one)
    except Lagged as error:
        raise Unavailable("too slow for the changes of this live query: subscribe anew") from error
    raise Unavailable("the live query has ended: subscribe anew")


def _change(said: object) -> RowChange:
    if isinstance(said, HawkerError):
        raise said
    assert isinstance(said, RowChange)
    return said


# Point reads of the catalog's file: one connection that cannot write, for reads by key that are short enough for
# the event loop, in the daemon or in a process beside it.

WAIT_MS = 100
STATEMENTS_CACHED = 100
_FLAGS = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


class PointReader:
    """A reader of single rows of the catalog, for one thread. Raises `CannotStart` when there is no catalog that this
    version can read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            file = f"file:{quote(str(path))}"
            self._connection = apsw.Connection(file, flags=_FLAGS, statementcachesize=STATEMENTS_CACHED)
            self._connection.set_busy_timeout(WAIT_MS)
            self._connection.pragma("query_only", True)
            check(self._connection, path)
        except apsw.Error as error:
            raise CannotStart(f"cannot read the catalog {path}: {error}; does its node run here?") from error

    def rows(self, query: str, *params: Value) -> Sequence[tuple[Value, ...]]:
        """All rows of a constant query of ours. Raises `Unavailable` when the file cannot be read now."""
        try:
            found: list[tuple[Value, ...]] = self._connection.execute(query, params).fetchall()
            return found
        except apsw.Error as error:
            raise Unavailable(f"the catalog {self._path} cannot be read now: {error}") from error

    def close(self) -> None:
        self._connection.close()
