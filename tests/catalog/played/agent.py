"""A Corrosion agent, played: its HTTP API with its statuses and texts, an actor of its own, subscriptions that outlive
their listeners, replication that takes its time, in any order. What it cannot play is in `docs/catalog-http.md`.

Our own server carries it, because what is played is what an agent says, not how HTTP does it.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream

from hawker.catalog.http.app import CatalogApp, CatalogEndpoint
from hawker.catalog.http.exchange import Answered, Exchange, flag, number
from hawker.catalog.http.server import bind, serving
from hawker.catalog.http.service import CatalogAccess
from hawker.catalog.json_lines import columns_line, end_line, error_line, row_lines
from hawker.clock import SystemClock
from tests.catalog.played.database import PlayedChange, PlayedDatabase, RefusedSql
from tests.catalog.played.statement import NoJson, NoStatement, statement_of, statements_of
from tests.catalog.played.subscriptions import NoSubscription, PlayedSubscription, PlayedSubscriptions
from tests.ports import free_port

QUERY_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds: until others hear of a change, until subscribers do, between two looks for what was missed."""

    broadcast_s: float = 0.3
    flush_s: float = 0.6
    sync_s: float = 1.0


QUICK = Pace(broadcast_s=0.01, flush_s=0.02, sync_s=0.05)


class PlayedAgent:
    """Its file, its address and what it is subscribed to outlive its lives. `others` are the agents that it gossips
    with, of the same event loop."""

    def __init__(self, folder: Path, schemas: Sequence[str], pace: Pace = QUICK, token: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file, self._schemas = folder / "corrosion.db", schemas
        self._pace, self._access = pace, CatalogAccess(token=token)
        self._clock = SystemClock()
        self._subscriptions = PlayedSubscriptions()
        self._port = free_port()  # one that nobody is given while it is down
        self._database: PlayedDatabase | None = None
        self._tasks: TaskGroup | None = None
        self._turn = 0
        self.url = ""
        self.others: list[PlayedAgent] = []

    @property
    def up(self) -> bool:
        return self._database is not None

    @property
    def database(self) -> PlayedDatabase:
        assert self._database is not None, "it is down"
        return self._database

    @asynccontextmanager
    async def running(self, *, clean: bool = True) -> AsyncIterator[str]:
        """One life. Unless its end is `clean` it forgets all subscriptions."""
        database = self._database = PlayedDatabase(self._file, self._schemas)
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._flush)
                tasks.start_soon(self._sync)
                app = CatalogApp(self._endpoints(), self._access)
                async with serving(app, bind(f"127.0.0.1:{self._port}")) as self.url:
                    yield self.url
                    self._database = None
                    self._subscriptions.disconnect()
                tasks.cancel_scope.cancel()
        finally:
            self._database = self._tasks = None
            if not clean:
                self._subscriptions.forget()
            database.close()

    def reload(self, schemas: Sequence[str]) -> None:
        """Read these schema files, as `corrosion reload` does."""
        self._schemas = schemas
        for schema in schemas:
            self.database.declare(schema)

    def _endpoints(self) -> list[CatalogEndpoint]:
        return [
            CatalogEndpoint("POST", "/v1/transactions", self._transactions),
            CatalogEndpoint("POST", "/v1/queries", self._queries, lasts=True),
            CatalogEndpoint("POST", "/v1/subscriptions", self._subscribe, lasts=True),
            CatalogEndpoint("GET", "/v1/subscriptions", self._join, rest=True, lasts=True),
            CatalogEndpoint("POST", "/v1/updates", self._follow, rest=True, lasts=True),
            CatalogEndpoint("GET", "/v1/health", self._health, most=4),
        ]

    # What it answers.

    async def _transactions(self, exchange: Exchange, _: str) -> None:
        timeout_s = number(exchange.query(), "timeout")
        with _read():
            statements = statements_of(await exchange.json())
        if not statements:
            return await self._failed(exchange, 400, "at least 1 statement is required")
        try:
            written = self.database.transact(statements, timeout_s)
        except RefusedSql as error:
            return await self._failed(exchange, 500, str(error))
        self._broadcast(written.change)
        results = [{"rows_affected": rows, "time": 0.0001} for rows in written.rows_affected]
        version = None if written.change is None else written.change.version
        said = {"results": results, "time": 0.001, "version": version, "actor_id": self.database.actor.hex()}
        await exchange.say(200, said)

    async def _failed(self, exchange: Exchange, status: int, text: str) -> None:
        actor = self.database.actor.hex()
        await exchange.say(status, {"results": [{"error": text}], "time": 0.0, "version": None, "actor_id": actor})

    async def _queries(self, exchange: Exchange, _: str) -> None:
        timeout_s = number(exchange.query(), "timeout")
        with _read():
            statement = statement_of(await exchange.json())
        try:
            if not self.database.prepare(statement.query).is_readonly:
                raise RefusedSql("statement is not readonly", prepared=False)
            with self.database.within(QUERY_S if timeout_s is None else timeout_s):
                columns, rows = self.database.run(statement)
            lines = [columns_line(columns), row_lines(enumerate(rows, 1)), end_line(0.0)]
        except RefusedSql as error:
            if str(error) != "interrupted":
                return await exchange.say(500 if error.prepared else 400, {"error": str(error)})
            lines = [error_line("interrupted")]
        await exchange.stream(_given(lines), [])

    async def _subscribe(self, exchange: Exchange, _: str) -> None:
        query = exchange.query()
        after, skip_rows = number(query, "from"), flag(query, "skip_rows")
        with _read():
            statement = statement_of(await exchange.json())
        try:
            text = self.database.written_out(statement)
            found = self._subscriptions.open(text, self.database, existing=after is not None)
        except (RefusedSql, NoSubscription) as error:
            return await exchange.say(400, {"error": str(error)})
        await self._send(exchange, found, after, skip_rows=skip_rows)

    async def _join(self, exchange: Exchange, rest: str) -> None:
        query = exchange.query()
        after, skip_rows = number(query, "from"), flag(query, "skip_rows")
        await exchange.body()
        try:
            found = self._subscriptions.find(rest)
        except NoSubscription as error:
            return await exchange.say(404, {"error": str(error)})
        await self._send(exchange, found, after, skip_rows=skip_rows)

    async def _send(
        self, exchange: Exchange, subscription: PlayedSubscription, after: int | None, *, skip_rows: bool
    ) -> None:
        headers = [
            (b"corro-query-id", str(subscription.id).encode()),
            (b"corro-query-hash", subscription.hash.encode()),
        ]
        with subscription.listeners.one() as stream:
            try:
                before = subscription.before(after, skip_rows=skip_rows)
            except NoSubscription as error:
                return await exchange.stream(_given([error_line(str(error))]), headers)
            await exchange.stream(_told(stream, before), headers)

    async def _follow(self, exchange: Exchange, table: str) -> None:
        await exchange.body()
        try:
            name, listeners = self._subscriptions.updates(table, self.database)
        except RefusedSql as error:
            return await exchange.say(400, {"error": str(error)})
        with listeners.one() as stream:
            await exchange.stream(_told(stream, []), [(b"corro-query-id", str(name).encode())])

    async def _health(self, exchange: Exchange, _: str) -> None:
        members = sum(other.up for other in self.others)
        said = {"gaps": self.database.gaps, "members": members, "p99_lag": 0.1, "queue_size": 0}
        await exchange.say(200, {"response": said})

    # What it does by itself.

    def _broadcast(self, change: PlayedChange | None) -> None:
        """Each other one hears of it after another while, so that changes overtake each other."""
        if change is not None and self._tasks is not None:
            for other in self.others:
                self._turn += 1
                self._tasks.start_soon(self._tell, other, change, self._pace.broadcast_s * (1 + self._turn % 3) / 3)

    async def _tell(self, other: "PlayedAgent", change: PlayedChange, delay_s: float) -> None:
        await self._clock.sleep(delay_s)
        if other.up:
            other.database.apply(change)

    async def _flush(self) -> None:
        while True:
            await self._clock.sleep(self._pace.flush_s)
            if self._database is not None:
                self._subscriptions.flush(self._database)

    async def _sync(self) -> None:
        """What it missed while it was away."""
        while True:
            await self._clock.sleep(self._pace.sync_s)
            if self._database is not None:
                self._database.set_members(other.database.actor for other in self.others if other.up)
            for other in self.others:
                if other.up and self._database is not None:
                    for change in other.database.changes():
                        self._database.apply(change)


@contextmanager
def _read() -> Iterator[None]:
    """Plain texts, as axum says them."""
    try:
        yield
    except NoJson as error:
        raise Answered(400, f"Failed to parse the request body as JSON: {error}") from error
    except NoStatement as error:
        raise Answered(422, f"Failed to deserialize the JSON body into the target type: {error}") from error


async def _given(lines: Sequence[bytes]) -> AsyncGenerator[bytes, None]:
    for line in lines:
        yield line


async def _told(stream: MemoryObjectReceiveStream[bytes], before: Sequence[bytes]) -> AsyncGenerator[bytes, None]:
    for line in before:
        yield line
    async for line in stream:
        yield line


def acquaint(agents: Sequence[PlayedAgent]) -> None:
    """Let each gossip with all others."""
    for one in agents:
        one.others = [other for other in agents if other is not one]
