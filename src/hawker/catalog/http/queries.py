"""Reads: `POST /v1/queries`. Rows are sent as they are found, so an answer takes little memory whatever its length."""

from collections.abc import AsyncGenerator

import anyio

from hawker.catalog.change import Value
from hawker.catalog.contract import Statement
from hawker.catalog.http.app import CatalogEndpoint, plain
from hawker.catalog.http.exchange import Exchange, number
from hawker.catalog.http.statement import statement_of
from hawker.catalog.json_lines import columns_line, end_line, error_line, row_lines
from hawker.catalog.read_connection import QueryCursor, ReadConnection, ReadPool
from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.fair.threads import Pool, in_thread
from hawker.value_object import ValueObject

TIMEOUT_S = 60
_ROWS = 1_000
_BYTES = 64 * 1024


class Queries:
    def __init__(self, pool: ReadPool, clock: Clock) -> None:
        self._pool, self._clock = pool, clock

    def endpoints(self) -> list[CatalogEndpoint]:
        return [CatalogEndpoint("POST", "/v1/queries", self.query, lasts=True)]

    async def query(self, exchange: Exchange, _: str) -> None:
        timeout_s = number(exchange.query(), "timeout")
        timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
        statement = statement_of(await exchange.json())
        deadline = self._clock.monotonic() + timeout_s if timeout_s else None
        with anyio.move_on_after(timeout_s + 1 if timeout_s else None):
            running = await in_thread(Pool.QUERIES, self._start, statement, deadline)
            try:
                await exchange.stream(self._lines(running), [])
            finally:
                self._end(running)

    def _start(self, statement: Statement, deadline: float | None) -> "_Running":
        """With its first rows, so that a short answer takes one turn of a thread. What fails after it was prepared is
        said where the rows end."""
        guarded = self._pool.take()
        try:
            guarded.deadline(deadline)
            answer = guarded.start(statement)
        except BaseException:
            self._pool.give(guarded)
            raise
        try:
            return _Running(guarded, answer, self._take(guarded, answer), None)
        except HawkerError as error:
            return _Running(guarded, answer, [], error)

    def _end(self, running: "_Running") -> None:
        running.answer.close()
        self._pool.give(running.guarded)

    async def _lines(self, running: "_Running") -> AsyncGenerator[bytes, None]:
        number = 1
        said, rows = columns_line(running.answer.columns), running.first
        try:
            if running.error is not None:
                raise running.error
            while rows:
                yield said + row_lines(enumerate(rows, number))
                number += len(rows)
                said = b""
                rows = await in_thread(Pool.QUERIES, self._take, running.guarded, running.answer)
        except HawkerError as error:
            yield said + error_line(plain(error))
            return
        yield said + end_line(0.0)

    def _take(self, guarded: ReadConnection, answer: QueryCursor) -> list[tuple[Value, ...]]:
        return guarded.take(answer, rows=_ROWS, size_bytes=_BYTES)


class _Running(ValueObject, frozen=True):
    guarded: ReadConnection
    answer: QueryCursor
    first: list[tuple[Value, ...]]
    error: HawkerError | None
