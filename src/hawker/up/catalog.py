"""The catalog of a node in a cluster: its own replica with all that reads it, or an agent's URL (engine corrosion)."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import anyio

from hawker.auth.tokens import load_or_create_token
from hawker.catalog.agent import AgentCatalog, WrongAgent
from hawker.catalog.agent_check import AgentCheck
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
from hawker.errors import CannotStart, HawkerError
from hawker.fair.sessions import kept_session
from hawker.fleet.gossip_bridge import AgentMembers, GossipBridge, MembersToReplica, Replicates
from hawker.fleet.membership import Forgets
from hawker.gossip.contract import Fate
from hawker.ids import NodeId
from hawker.log import bind
from hawker.place import Place
from hawker.record.node import NodeRecord
from hawker.settings import Settings
from hawker.up.seat import token_of_agent
from hawker.value_object import ValueObject

_log = bind("hawker.up")


class NodeCatalog(ValueObject, frozen=True, kw_only=True):
    """`running` is the time in which it may be asked. `mirror` and `check` are there where an agent keeps the catalog,
    `app`, which answers over HTTP, where this node does; `fences` are the nodes that were forgotten, `schema` a
    fingerprint."""

    catalog: Catalog
    told: Replicates
    running: Callable[[], AbstractAsyncContextManager[None]]
    forgets: Forgets
    schema: str = ""
    fences: Mapping[NodeId, int]
    mirror: Mirror | None = None
    check: AgentCheck | None = None
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


async def agent_catalog(
    stack: AsyncExitStack,
    settings: Settings,
    clock: Clock,
    node: NodeId,
    meeting: GossipBridge[SqliteStorage],
    forgotten: Mapping[NodeId, int],
    save: Callable[[Mapping[NodeId, int]], None],
) -> NodeCatalog:
    """`forgotten` are those that `save` was given last. Raises `CannotStart` for an agent that cannot be this node's.
    One that is away may come back: its node starts without it, because its machines need nobody's catalog."""
    assert settings.catalog_url is not None
    session = await stack.enter_async_context(kept_session(auto_decompress=False))  # nothing unpacks to more
    catalog = AgentCatalog(session, settings.catalog_url, clock, node, token_of_agent(settings.catalog_token_file))
    check = AgentCheck(catalog, settings.catalog_url, lambda: _living_others(meeting, node))
    await _fit(check)
    mirror = Mirror(catalog, clock)
    members = meeting.members = AgentMembers(node, mirror, clock, forgotten, save)

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mirror.serve)
            yield
            tasks.cancel_scope.cancel()

    return NodeCatalog(
        catalog=mirror, told=members, running=running, forgets=members, fences=forgotten, mirror=mirror, check=check
    )


async def _fit(check: AgentCheck) -> None:
    try:
        lacks = await check.lacks()
    except WrongAgent as error:
        raise CannotStart(f"the catalog's agent at {check.url} cannot be used: {error}") from error
    except HawkerError as error:
        _log.warning("the catalog's agent is away", extra={"url": check.url, "error": str(error)})
        return
    if lacks is not None:
        raise CannotStart(lacks)


def _living_others(meeting: GossipBridge[SqliteStorage], me: NodeId) -> int:
    assert meeting.gossip is not None
    return sum(each.fate is Fate.ALIVE and each.node != me for each in meeting.gossip.members())
