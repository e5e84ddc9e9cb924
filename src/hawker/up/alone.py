"""A fleet of one: what a node that knows no others answers. Its orders go through the market."""

from hawker.api.directory import Node
from hawker.api.handlers import Handlers
from hawker.api.routes import ROUTES
from hawker.config.placement import parse_labels
from hawker.gateway.alone import NoPeers, OneNode
from hawker.market.handlers import MarketHandlers
from hawker.market.preferences import Preferences
from hawker.record.node import NODE
from hawker.worker.assembly import AssembledWorker


def handlers_alone(parts: AssembledWorker, own: Handlers, preferences: Preferences) -> Handlers:
    """All of `ROUTES`: orders by the market, all else by the worker itself, whose answers are `own`."""
    deps, handlers = parts.deps, Handlers()
    directory, peers = OneNode(lambda: this_node(parts)), NoPeers(parts.node.id, own, deps.clock)
    MarketHandlers(directory, peers, preferences, deps.clock, limited=deps.settings.rate_limits).bind(handlers)
    for route in ROUTES:
        if handlers.missing((route,)):
            handlers.adopt(route, own)
    return handlers


def this_node(parts: AssembledWorker) -> Node:
    """As it is now."""
    deps = parts.deps
    record = deps.store.get(NODE, "self") or parts.node
    return Node(
        id=parts.node.id,
        region=parts.node.region,
        cordoned=record.cordoned,
        draining=record.draining,
        drivers=(deps.driver.name,),
        labels=parse_labels(",".join(deps.settings.labels)),
        capacity=parts.room(),
        used=deps.table.used(deps.store),
    )
