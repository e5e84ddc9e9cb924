"""The market of a node that knows no others: its broker explains and counts, its worker bids and fills."""

from hawker.api.directory import Node
from hawker.api.handlers import Handlers
from hawker.config.placement import parse_labels
from hawker.gateway.alone import NoPeers, OneNode
from hawker.market.handlers import MarketHandlers
from hawker.market.preferences import Preferences
from hawker.record.node import NODE
from hawker.worker.assembly import AssembledWorker


def place_alone(parts: AssembledWorker, handlers: Handlers, preferences: Preferences) -> None:
    """Beside the worker's own answers, which stay as they are."""
    deps = parts.deps
    directory, peers = OneNode(lambda: this_node(parts)), NoPeers(parts.node.id, handlers, deps.clock)
    limited = deps.settings.rate_limits
    MarketHandlers(directory, peers, preferences, deps.clock, limited=limited).bind_place(handlers)


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
