"""Which nodes an order may go to, before anybody is asked: what the directory says of them. No I/O."""

from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from hawker.api.directory import Node
from hawker.config.placement import Placement, lacking
from hawker.ids import NodeId
from hawker.market.preferences import Limits, Preferences
from hawker.node import Capacity, Resources
from hawker.value_object import ValueObject

_FIELDS_KNOWN = 16
_Key: TypeAlias = tuple[float, NodeId]  # the most promising first


class Wanted(ValueObject, frozen=True, kw_only=True):
    """`pinned` is where the order's volume is; `avoid` are nodes that it must not go to."""

    placement: Placement
    pinned: NodeId | None = None
    avoid: frozenset[NodeId] = frozenset()


def unfit(node: Node, wanted: Wanted) -> str | None:
    """Why a node is not asked; None for one that may be."""
    placement = wanted.placement
    if wanted.pinned is not None and node.id != wanted.pinned:
        return f"the order's volume is on node {wanted.pinned}"
    if node.id in wanted.avoid:
        return "the order is not to go there"
    if not node.alive:
        return "the node cannot be reached"
    if node.draining:
        return "the node is draining"
    if node.cordoned:
        return "the node is cordoned"
    if placement.driver is not None and placement.driver not in node.drivers:
        return f"the node does not offer the driver {placement.driver}"
    missing = lacking(placement.labels, node.labels)
    return None if missing is None else f"the node does not have the label {missing}"


class Field(ValueObject, frozen=True, kw_only=True):
    """A region's nodes for one kind of order: who is passed over and why, and the others, the most promising first."""

    nodes: Sequence[Node]
    passed_over: dict[str, str]
    fit: Sequence[Node]


class Fields:
    """Of many orders that come while the directory says the same: a directory that hands out the very same tuple again
    says that nothing has changed, and with the very same node that this node has not."""

    def __init__(self, preferences: Preferences) -> None:
        self._preferences = preferences
        self._nodes: Sequence[Node] = ()
        self._known: list[tuple[str, Wanted, Field]] = []
        self._keys: dict[NodeId, tuple[Node, _Key]] = {}

    def of(self, nodes: Sequence[Node], region: str, wanted: Wanted) -> Field:
        if nodes is not self._nodes or not isinstance(nodes, tuple):
            self._nodes, self._known = nodes, []
            self._keys = {node.id: self._key(node) for node in nodes}
        for where, what, field in self._known:
            if where == region and what == wanted:
                return field
        found = self._field([node for node in nodes if node.region == region], wanted)
        self._known = [*self._known[-(_FIELDS_KNOWN - 1) :], (region, wanted, found)]
        return found

    def _key(self, node: Node) -> "tuple[Node, _Key]":
        known = self._keys.get(node.id)
        return known if known is not None and known[0] is node else (node, _key(node, self._preferences))

    def _field(self, nodes: Sequence[Node], wanted: Wanted) -> Field:
        passed_over: dict[str, str] = {node.id: reason for node in nodes if (reason := unfit(node, wanted)) is not None}
        fit = [node for node in nodes if node.id not in passed_over]
        fit.sort(key=lambda node: self._keys[node.id][1])
        return Field(nodes=nodes, passed_over=passed_over, fit=fit)


def by_promise(nodes: Collection[Node], preferences: Preferences) -> list[Node]:
    return sorted(nodes, key=lambda node: _key(node, preferences))


def _key(node: Node, preferences: Preferences) -> _Key:
    return -_promise(node, preferences), node.id


def rounds(nodes: Sequence[Node], limits: Limits, seed: float) -> Iterator[tuple[Node, ...]]:
    """In which parts the nodes of a region are asked, which are given by promise: all at once where they are few, else
    the best by what is known of them with some others by chance, since what is known may be late. `seed` is in [0, 1).
    """
    if len(nodes) <= limits.ask_all_up_to:
        if nodes:
            yield tuple(nodes)
        return
    left = nodes
    for _ in range(limits.ask_rounds):
        if not left:
            return
        best, others = left[: limits.ask_best], left[limits.ask_best :]
        lots = _drawn(others, limits, seed)
        yield (*best, *lots)
        drawn = {node.id for node in lots}
        left = [node for node in others if node.id not in drawn]


def _drawn(others: Sequence[Node], limits: Limits, seed: float) -> list[Node]:
    """Evenly from the whole list, beginning at a place that chance decides."""
    count = min(limits.ask_random, len(others))
    if not count:
        return []
    step = len(others) / count
    return [others[int((seed + index) * step) % len(others)] for index in range(count)]


def _promise(node: Node, preferences: Preferences) -> float:
    """How good a bid would be by what the node published."""
    if node.capacity is None or node.used is None:
        return 0.0
    curves, weights = preferences.curves, preferences.weights
    shares = {name: curves[name].at(used) for name, used in _used(node.capacity, node.used)}
    return sum(weights[name] * share for name, share in shares.items()) / sum(weights[name] for name in shares)


def _used(capacity: Capacity, used: Resources) -> tuple[tuple[str, float], ...]:
    cpus = used.performance_cpus + used.shared_cpus / capacity.shared_ratio
    return (
        ("cpu", _share(cpus, capacity.cpus)),
        ("memory", _share(used.memory_mib, capacity.memory_mib)),
        ("disk", _share(used.disk_mib, capacity.disk_mib)),
    )


def _share(used: float, total: float) -> float:
    return 1.0 if total <= 0 else min(1.0, used / total)
