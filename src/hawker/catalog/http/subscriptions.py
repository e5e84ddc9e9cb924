"""Live answers: `/v1/subscriptions` and `/v1/updates/{table}`. A client that is too slow finds its answer cut off."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import assert_never

from hawker.catalog.http.app import CatalogEndpoint
from hawker.catalog.http.exchange import AnswerCut, Exchange, Headers, flag, number
from hawker.catalog.http.statement import statement_of
from hawker.catalog.json_lines import columns_line, end_line, error_line, row_lines
from hawker.catalog.live.engine import Live
from hawker.catalog.live.feed import FeedEvent, Lagged
from hawker.catalog.live.subscription import (
    AnswerChanges,
    AnswerColumns,
    AnswerEnd,
    AnswerRows,
    Gone,
    Subscription,
    SubscriptionEvent,
)
from hawker.clock import Clock


class Subscriptions:
    def __init__(self, live: Live, clock: Clock) -> None:
        self._live, self._clock = live, clock

    def endpoints(self) -> list[CatalogEndpoint]:
        return [
            CatalogEndpoint("POST", "/v1/subscriptions", self.subscribe, lasts=True),
            CatalogEndpoint("GET", "/v1/subscriptions", self.join, rest=True, lasts=True),
            CatalogEndpoint("POST", "/v1/updates", self.updates, rest=True, lasts=True),
        ]

    async def subscribe(self, exchange: Exchange, _: str) -> None:
        query = exchange.query()
        after, skip_rows = number(query, "from"), flag(query, "skip_rows")
        statement = statement_of(await exchange.json())
        subscription = await self._live.open(statement, existing=after is not None)
        await self._send(exchange, subscription, after, skip_rows)

    async def join(self, exchange: Exchange, rest: str) -> None:
        query = exchange.query()
        after, skip_rows = number(query, "from"), flag(query, "skip_rows")
        await exchange.body()
        await self._send(exchange, self._live.find(rest), after, skip_rows)

    async def updates(self, exchange: Exchange, rest: str) -> None:
        await exchange.body()
        updates = await self._live.updates(rest)
        number = str(self._live.new_id()).encode()
        with updates.feed.listener():
            lines = _joined(updates.feed.events(updates.feed.next))
            await exchange.stream(lines, [(b"corro-query-id", number)])

    async def _send(self, exchange: Exchange, subscription: Subscription, after: int | None, skip_rows: bool) -> None:
        headers: Headers = [
            (b"corro-query-id", str(subscription.id).encode()),
            (b"corro-query-hash", subscription.hash.encode()),
        ]
        with subscription.listener():
            heard = await subscription.hear(after=after, skip_rows=skip_rows)
            await exchange.stream(self._lines(heard), headers)

    async def _lines(self, heard: AsyncGenerator[SubscriptionEvent, None]) -> AsyncGenerator[bytes, None]:
        began = self._clock.monotonic()
        try:
            async with aclosing(heard):
                async for one in heard:
                    yield self._line(one, began)
        except Gone as gone:
            yield error_line(str(gone))
        except Lagged as lagged:
            raise AnswerCut from lagged

    def _line(self, heard: SubscriptionEvent, began: float) -> bytes:
        match heard:
            case AnswerColumns():
                return columns_line(heard.names)
            case AnswerRows():
                return row_lines(heard.rows)
            case AnswerEnd():
                return end_line(self._clock.monotonic() - began, heard.change)
            case AnswerChanges():
                return _lines_of(heard.events)
            case _:
                assert_never(heard)


async def _joined(portions: AsyncGenerator[list[FeedEvent], None]) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(portions):
            async for portion in portions:
                yield _lines_of(portion)
    except Lagged as lagged:
        raise AnswerCut from lagged


def _lines_of(told: list[FeedEvent]) -> bytes:
    return b"".join(one.line for one in told)
