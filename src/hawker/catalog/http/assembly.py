"""Puts the HTTP API together: every route over the parts of one catalog."""

from pathlib import Path

from hawker.catalog.contract import Committed
from hawker.catalog.http.app import CatalogApp, CatalogEndpoint, plain
from hawker.catalog.http.exchange import Exchange, number
from hawker.catalog.http.health import HealthEndpoints
from hawker.catalog.http.queries import Queries
from hawker.catalog.http.service import CatalogAccess, CatalogWriter, Doctor, Migrations
from hawker.catalog.http.statement import statements_of, texts_of
from hawker.catalog.http.subscriptions import Subscriptions
from hawker.catalog.live.engine import Live
from hawker.catalog.read_connection import ReadPool
from hawker.clock import Clock
from hawker.errors import HawkerError, Unavailable
from hawker.ids import NodeId

NOTHING = "at least 1 statement is required"


class Transactions:
    """`node` is whose rows are written."""

    def __init__(self, writer: CatalogWriter, migrations: Migrations | None, node: NodeId, clock: Clock) -> None:
        self._writer, self._migrations, self._clock = writer, migrations, clock
        self._actor = actor_id(node)

    def endpoints(self) -> list[CatalogEndpoint]:
        served = [CatalogEndpoint("POST", "/v1/transactions", self.transact)]
        if self._migrations is not None:
            served.append(CatalogEndpoint("POST", "/v1/migrations", self.migrate, most=4))
        return served

    async def transact(self, exchange: Exchange, _: str) -> None:
        timeout_s = number(exchange.query(), "timeout")
        statements = statements_of(await exchange.json())
        if not statements:
            await exchange.say(400, self._failed(NOTHING))
            return
        began = self._clock.monotonic()
        try:
            committed = await self._writer.commit(statements, timeout_s=timeout_s)
        except HawkerError as error:
            await exchange.say(503 if isinstance(error, Unavailable) else 500, self._failed(plain(error)))
            return
        await exchange.say(200, self._done(committed, self._clock.monotonic() - began))

    async def migrate(self, exchange: Exchange, _: str) -> None:
        assert self._migrations is not None
        texts = texts_of(await exchange.json())
        if not texts:
            await exchange.say(400, self._failed(NOTHING))
            return
        began = self._clock.monotonic()
        try:
            await self._migrations.migrate(texts)
        except HawkerError as error:
            await exchange.say(500, self._failed(plain(error)))
            return
        took = self._clock.monotonic() - began
        await exchange.say(200, {"results": [], "time": took, "version": None, "actor_id": self._actor})

    def _done(self, committed: Committed, seconds: float) -> object:
        results = [{"rows_affected": effect.rows_affected, "time": effect.seconds} for effect in committed.effects]
        version = committed.token.version if committed.token else None
        return {"results": results, "time": seconds, "version": version, "actor_id": self._actor}

    def _failed(self, text: str) -> object:
        return {"results": [{"error": text}], "time": 0.0, "version": None, "actor_id": self._actor}


def actor_id(node: NodeId) -> str:
    """A node's id at the width that Corrosion's clients expect."""
    return node.rjust(32, "0")


def node_of(actor: str) -> NodeId:
    return NodeId(actor[-8:])


# Writes: `POST /v1/transactions`, and the older `POST /v1/migrations`.


def catalog_app(
    file: Path,
    node: NodeId,
    clock: Clock,
    *,
    writer: CatalogWriter,
    live: Live,
    pool: ReadPool,
    doctor: Doctor,
    migrations: Migrations | None = None,
    access: CatalogAccess | None = None,
) -> CatalogApp:
    """`file` is the catalog's, `pool` reads it. Without `migrations` that route is not served."""
    rooms = (
        Transactions(writer, migrations, node, clock),
        Queries(pool, clock),
        Subscriptions(live, clock),
        HealthEndpoints(doctor, file, pool, clock),
    )
    return CatalogApp([endpoint for room in rooms for endpoint in room.endpoints()], access or CatalogAccess())
