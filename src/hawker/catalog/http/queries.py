"""Reads: `POST /v1/queries`. Rows are sent as they are found, so an answer takes little memory whatever its length."""

from collections.abc import AsyncGenerator

import anyio
import anyio.to_thread

from hawker.catalog.change import Value
from hawker.catalog.guarded import Answer, Guarded, Pool
from hawker.catalog.http.app import Endpoint, plain
from hawker.catalog.http.exchange import Exchange
from hawker.catalog.http.parameters import number
from hawker.catalog.http.statement import statement_of
from hawker.catalog.lines import columns_line, end_line, error_line, row_lines
from hawker.clock import Clock
from hawker.errors import HawkerError

TIMEOUT_S = 60
THREADS = 8
_ROWS = 1_000
_BYTES = 64 * 1024


class Queries:
    def __init__(self, pool: Pool, clock: Clock) -> None:
        self._pool, self._clock = pool, clock
        self._limiter = anyio.CapacityLimiter(THREADS)

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("POST", "/v1/queries", self.query, lasts=True)]

    async def query(self, exchange: Exchange, _: str) -> None:
        timeout_s = number(exchange.query(), "timeout")
        timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
        statement = statement_of(await exchange.json())
        deadline = self._clock.monotonic() + timeout_s if timeout_s else None
        guarded = await anyio.to_thread.run_sync(self._pool.take, limiter=self._limiter)
        try:
            guarded.deadline(deadline)
            with anyio.move_on_after(timeout_s + 1 if timeout_s else None):
                answer = await anyio.to_thread.run_sync(guarded.start, statement, limiter=self._limiter)
                try:
                    await exchange.stream(self._lines(guarded, answer), [])
                finally:
                    answer.close()
        finally:
            self._pool.give(guarded)

    async def _lines(self, guarded: Guarded, answer: Answer) -> AsyncGenerator[bytes, None]:
        number = 1
        said = columns_line(answer.columns)
        try:
            while rows := await anyio.to_thread.run_sync(self._take, guarded, answer, limiter=self._limiter):
                yield said + row_lines(enumerate(rows, number))
                number += len(rows)
                said = b""
        except HawkerError as error:
            yield said + error_line(plain(error))
            return
        yield said + end_line(0.0)

    def _take(self, guarded: Guarded, answer: Answer) -> list[tuple[Value, ...]]:
        return guarded.take(answer, rows=_ROWS, size_bytes=_BYTES)
