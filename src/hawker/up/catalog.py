"""The catalog of a node in a cluster: its own replica with all that reads it, or an agent's URL (engine corrosion)."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import anyio

from hawker.auth.tokens import load_or_create_token
from hawker.catalog.agent import AgentCatalog
from hawker.catalog.change import Scope
from hawker.catalog.contract import Catalog
from hawker.catalog.http.app import CatalogApp
from hawker.catalog.http.assembly import catalog_app
from hawker.catalog.http.service import CatalogAccess, Vitals
from hawker.catalog.live.engine import Live
from hawker.catalog.mirror import Mirror
from hawker.catalog.read_connection import ReadConnection, ReadPool
from hawker.catalog.reads import Reads
from hawker.catalog.replica import Replica
from hawker.catalog.snapshots import SnapshotExchange
from hawker.catalog.storage import SqliteStorage
from hawker.clock import Clock
from hawker.errors import CannotStart
from hawker.fleet.gossip_bridge import GossipBridge, MembersToMirror, MembersToReplica
from hawker.fleet.members import Replicates
from hawker.fleet.membership import Forgets
from hawker.ids import NodeId
from hawker.log import Secret
from hawker.place import Place
from hawker.record.node import NodeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCatalog:
    """`running` is the time in which it may be asked. `mirror` is there where an agent keeps the catalog, `app`, which
    answers over HTTP, where this node does; `fences` are the nodes that were forgotten, `schema` a fingerprint."""

    catalog: Catalog
    told: Replicates
    running: Callable[[], AbstractAsyncContextManager[None]]
    forgets: Forgets | None = None
    schema: str = ""
    fences: Mapping[NodeId, int]
    mirror: Mirror | None = None
    app: CatalogApp | None = None
    vitals: Callable[[], Vitals | None] = lambda: None


def own_catalog(
    storage: SqliteStorage, node: NodeRecord, place: Place, clock: Clock, meeting: GossipBridge[SqliteStorage]
) -> NodeCatalog:
    """Over HTTP, whoever has the node's root token may write its rows."""
    access = CatalogAccess(token=load_or_create_token(place.token, clock).reveal())
    pool = ReadPool(lambda: ReadConnection(place.catalog, clock))
    live = Live(place.catalog, place.root / "subscriptions", clock)
    reads = Reads(pool, live, clock)
    replica: Replica[SqliteStorage] = Replica(
        node.id,
        node.region,
        storage,
        clock,
        send=meeting.send,
        ask=meeting.ask,
        reads=reads.query,
        subscribes=reads.subscribe,
        snapshots=SnapshotExchange(storage, place.root / "catalog-snapshots", clock, meeting.ask),
    )
    meeting.replica = replica
    replica.listen(live.touched)

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with replica.running(), live.running():
            yield
        pool.close()

    positions = storage.positions(Scope.GLOBAL)
    return NodeCatalog(
        catalog=replica,
        told=MembersToReplica(replica),
        running=running,
        forgets=replica,
        schema=storage.schema_fingerprint,
        fences={origin: position.fence for origin, position in positions.items() if position.fence >= 0},
        app=catalog_app(
            place.catalog, node.id, clock, writer=replica, live=live, pool=pool, doctor=replica, access=access
        ),
        vitals=replica.vitals,
    )


def token_of_agent(file: Path | None) -> Secret | None:
    """Raises `CannotStart`."""
    if file is None:
        return None
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotStart(f"cannot read the agent's token of --catalog-token-file {file}: {error}") from error
    if not text or not text.isascii() or not text.isprintable():
        raise CannotStart(f"--catalog-token-file {file} has no token: one line of printable letters is wanted")
    return Secret(text)


async def agent_catalog(stack: AsyncExitStack, url: str, clock: Clock, token: Secret | None = None) -> NodeCatalog:
    session = await stack.enter_async_context(aiohttp.ClientSession())
    catalog = AgentCatalog(session, url, clock, token)
    mirror = Mirror(catalog, clock)

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mirror.serve)
            yield
            tasks.cancel_scope.cancel()

    return NodeCatalog(
        catalog=catalog, told=MembersToMirror(mirror.set_members), running=running, fences={}, mirror=mirror
    )
