"""Who is answered at the addresses of a node in a cluster: clients, by the broker beside the worker; peers, by the
worker.
"""

from collections.abc import Iterable
from contextlib import AsyncExitStack

from hawker.api.audit import Auditor
from hawker.api.contract.token import MAX_NOTE
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.api.route import AnyRoute
from hawker.api.routes import PEER_ROUTES, ROUTES
from hawker.api.server import MAX_BODY_BYTES, Server
from hawker.auth.tokens import Revocations, Tokens, load_or_create_token
from hawker.catalog.reads import PointReader
from hawker.fleet.handover import FleetFiles, FleetNeighbours
from hawker.fleet.other_nodes import FleetOtherNodes
from hawker.fleet.publish import Source
from hawker.fleet.rows import Row, revoked_row
from hawker.gateway.catalog_directory import CatalogDirectory, Looks
from hawker.gateway.gateway import Beside, Gateway
from hawker.gateway.peers import BesidePeers
from hawker.gateway.tokens import FleetRevocations, TokenHandlers
from hawker.http.mutual_tls import MutualTls
from hawker.ids import NodeId
from hawker.market.handlers import MarketHandlers
from hawker.market.preferences import Preferences
from hawker.place import Place
from hawker.record.node import REVOKED
from hawker.store.contract import Reader, keys_of
from hawker.up.fleet import InFleet
from hawker.up.servers import OWN_CALLS, Front, server_for_clients

_PEER_BODIES = 4
"""An order between nodes holds what a client sent and what its app brings along; bids for several go together."""


def front_of_fleet(
    stack: AsyncExitStack, place: Place, fleet: InFleet, preferences: Preferences, auditor: Auditor
) -> Front:
    """The front of a node in a cluster: the broker answers clients, out of the catalog and by way of all workers."""
    parts, clock, me = fleet.parts, fleet.parts.deps.clock, fleet.parts.node.id
    mirror = fleet.kept.mirror
    reached = None if mirror is None else mirror.reached
    looks = _looks(stack, place, fleet)
    directory = CatalogDirectory(looks, clock, me, parts.node.region, reached)
    revocations = FleetRevocations(directory, Revocations(parts.deps.store, clock))
    tokens = Tokens(load_or_create_token(place.token, clock), clock, revocations, directory.org_of)
    about_tokens = TokenHandlers(tokens, revocations, clock, lambda app: directory.org_of(app) is not None)
    own = fleet.handlers
    about_tokens.bind(own)
    fleet.peers.ask_also(directory.address_of)
    neighbours = FleetNeighbours(me, parts.node.region, looks, directory.node, fleet.peers.to)
    parts.deps.images.meet(neighbours)
    peers = BesidePeers(me, own, clock, fleet.peers, fleet.publisher.written)
    others = FleetOtherNodes(
        me,
        directory,
        peers.to,
        fleet.bundler,
        fleet.vaults,
        directory.generation_of_machine,
        fleet.fleet.lost_since,
        directory.forgotten,
    )
    parts.deps.others.meet(others)
    if parts.deps.files is not None:
        parts.deps.files.meet(FleetFiles(me, directory.nodes_of_app, directory.node, directory.nodes, fleet.peers.to))
    limited, registries = parts.deps.settings.rate_limits is not False, parts.deps.settings.listed_registries
    market = MarketHandlers(directory, peers, preferences, clock, limited=limited, registries=registries)
    beside = Beside(node=me, handlers=own)
    broker = Gateway(directory, peers, beside, clock, market=market, tokens=about_tokens, registries=registries)
    parts.deps.certificates.meet(broker.hostnames)
    answers = broker.handlers()
    parts.deps.fleet.meet(InProcessCaller(answers, clock, OWN_CALLS))
    public = server_for_clients(parts, answers, tokens, auditor)
    return Front(public=public, peers=_for_peers(fleet, own, auditor), tls=MutualTls(fleet.papers))


def _looks(stack: AsyncExitStack, place: Place, fleet: InFleet) -> Looks:
    if fleet.kept.mirror is not None:
        return fleet.kept.mirror
    glance = PointReader(place.catalog)
    stack.callback(glance.close)
    return glance


def _for_peers(fleet: InFleet, handlers: Handlers, auditor: Auditor) -> Server:
    return Server(
        handlers,
        fleet.tokens,
        fleet.parts.deps.clock,
        routes=answered_by(handlers),
        observer=fleet.parts.metrics.api,
        written=fleet.publisher.written,
        between_nodes=True,
        auditor=auditor,
        max_body_bytes=_PEER_BODIES * MAX_BODY_BYTES,
    )


def answered_by(handlers: Handlers) -> list[AnyRoute]:
    """The routes of all calls that a worker answers."""
    return [route for route in (*ROUTES, *PEER_ROUTES) if not handlers.missing((route,))]


def revocations_of(node: NodeId, store: Reader) -> Source:
    """The source of the tokens that were revoked here, for the whole fleet."""

    def rows(token_id: str) -> Iterable[Row]:
        found = store.get(REVOKED, token_id)
        if found is None:
            return ()
        by, note = found.by[:MAX_NOTE], found.note[:MAX_NOTE]  # an older build took them at any length
        return (revoked_row(node, token_id, at=found.at, by=by, note=note),)

    return Source(name=REVOKED.name, every=lambda: keys_of(store, REVOKED), rows=rows)
