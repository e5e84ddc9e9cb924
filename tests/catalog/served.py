"""A catalog of one node behind its HTTP API, on a loopback port: real storage, real server, no replication."""

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from hawker.catalog.change import ReplicatedTx, Scope
from hawker.catalog.contract import Committed, Statement, Touched
from hawker.catalog.http.app import CatalogApp
from hawker.catalog.http.assembly import catalog_app
from hawker.catalog.http.server import bind, serving
from hawker.catalog.http.service import CatalogAccess, Migrations, Vitals
from hawker.catalog.live.engine import Live
from hawker.catalog.read_connection import ReadConnection, ReadPool
from hawker.catalog.storage import SqliteStorage
from hawker.clock import Clock, SystemClock
from hawker.ids import NodeId

NODE = NodeId("0badcafe")
WELL = Vitals(gaps=0, members=1, p99_lag=0.01, queue_size=0)


def touched_by(txs: Sequence[ReplicatedTx]) -> Touched:
    tables: dict[str, set[tuple[int | float | str | bytes | None, ...]]] = {}
    for tx in txs:
        for op in tx.ops:
            tables.setdefault(op.table, set()).add(op.key)
    return Touched(tables={name: frozenset(keys) for name, keys in tables.items()})


class OneNode:
    """Writes to the storage, and tells its live queries. `vitals` can be set."""

    def __init__(self, storage: SqliteStorage, live: Live, clock: Clock) -> None:
        self._storage, self._live, self._clock = storage, live, clock
        self._turn = anyio.Lock()
        self.now = WELL

    async def commit(self, statements: Sequence[Statement], *, timeout_s: float | None = None) -> Committed:
        async with self._turn:
            committed = await anyio.to_thread.run_sync(self._commit, statements, timeout_s)
        self._live.touched(touched_by(committed.txs))
        return committed

    async def migrate(self, texts: Sequence[str]) -> None:
        await anyio.to_thread.run_sync(self._storage.declare, texts)

    def vitals(self) -> Vitals:
        return self.now

    def _commit(self, statements: Sequence[Statement], timeout_s: float | None) -> Committed:
        return self._storage.commit(statements, self._clock.now(), timeout_s=timeout_s)


@dataclass(frozen=True, slots=True)
class Served:
    url: str
    node: OneNode
    live: Live
    storage: SqliteStorage
    app: CatalogApp


@asynccontextmanager
async def served(
    folder: Path,
    *,
    access: CatalogAccess | None = None,
    schemas: Sequence[str] = (),
    with_migrations: bool = True,
    ring_events: int = 10_240,
    listener: socket.socket | None = None,
) -> AsyncIterator[Served]:
    clock = SystemClock()
    file = folder / "catalog.db"
    storage = SqliteStorage(file, NODE, clock, schemas)
    live, pool = (
        Live(file, folder / "subscriptions", clock, ring_events=ring_events),
        ReadPool(lambda: ReadConnection(file, clock)),
    )
    node = OneNode(storage, live, clock)
    migrations: Migrations | None = node if with_migrations else None
    try:
        if not storage.proven():
            for scope in Scope:
                storage.renew(scope, 1)
        async with live.running():
            app = catalog_app(
                file,
                NODE,
                clock,
                writer=node,
                live=live,
                pool=pool,
                doctor=node,
                migrations=migrations,
                access=access,
            )
            async with serving(app, listener or bind("127.0.0.1:0")) as url:
                yield Served(url, node, live, storage, app)
    finally:
        pool.close()
        storage.close()
