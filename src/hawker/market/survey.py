"""A survey of a region: which nodes an order may go to by what the directory says, what they bid within one short
deadline, and which of them is best.
"""

from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from typing import TypeAlias

import anyio
import msgspec
from anyio.abc import TaskGroup

from hawker.api.codec import encode_json
from hawker.api.contract.machine import CreateMachineRequest
from hawker.api.contract.market import QUOTE, Bid, BidAsk, BidShown, BidsRequest, LayerRef
from hawker.api.directory import Directory, Node, Peers
from hawker.clock import Clock
from hawker.config.placement import Placement, lacking
from hawker.errors import BadRequest, Fault, HawkerError, TooLarge, Unprocessable
from hawker.ids import NodeId
from hawker.market.preferences import Limits, Preferences
from hawker.market.ranking import Ranked, explained, offers_of, plan, rank
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
    """The reason why a node is not asked, in words for people, by node id."""
    fit: Sequence[Node]


class Fields:
    """The fields of many orders that come while the directory says the same: a directory that hands out the very same
    tuple again says that nothing has changed, and with the very same node that this node has not."""

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
    """The parts in which the nodes of a region are asked, which are given by promise: all at once where they are few,
    else the best by what is known of them with some others by chance, since what is known may be late. `seed` is in [0,
    1)."""
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


BROKER = "broker"
SILENT = "no answer in time"
_TOGETHER = 32
_TOGETHER_BYTES = 512 * 1024
_CALLS_AT_ONCE = 1  # to one node
_UNREAD = (BadRequest, TooLarge, Unprocessable)  # what a node answers to a whole body


class _Round:
    """One collecting: what is still to come, and where the calls that serve it run."""

    def __init__(self, ask: msgspec.Raw, nodes: Sequence[NodeId], tasks: TaskGroup, deadline_s: float) -> None:
        self.ask = ask
        self.size = len(bytes(ask))
        self.tasks = tasks
        self.deadline_s = deadline_s
        self.found: dict[str, Bid | str] = {}
        self.over = False
        self.done = anyio.Event()
        self._left = len(nodes)
        if not nodes:
            self.done.set()

    def settle(self, node: NodeId, bid: Bid | str) -> None:
        if node not in self.found:
            self.found[node] = bid
            self._left -= 1
            if not self._left:
                self.done.set()

    def wants(self, node: NodeId) -> bool:
        return not self.over and node not in self.found


class _Queue:
    """Who waits for a node, and how many calls are under way there."""

    def __init__(self) -> None:
        self.waiting: deque[_Round] = deque()
        self.calls = 0


class Bidding:
    """Keeps nothing but what is under way."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._queues: dict[NodeId, _Queue] = {}

    @property
    def under_way(self) -> int:
        """The nodes that someone waits for."""
        return len(self._queues)

    async def collect(self, nodes: Sequence[NodeId], ask: BidAsk, deadline_s: float) -> dict[str, Bid | str]:
        """The bid of each node, or why nothing was heard of it."""
        written = msgspec.Raw(encode_json(ask))
        async with anyio.create_task_group() as tasks:
            asked = _Round(written, nodes, tasks, deadline_s)
            try:
                with anyio.move_on_after(deadline_s):
                    for node in nodes:
                        self._enter(node, asked)
                    await asked.done.wait()
            finally:
                asked.over = True
                tasks.cancel_scope.cancel()
        return {node: asked.found.get(node, SILENT) for node in nodes}

    def _enter(self, node: NodeId, asked: _Round) -> None:
        queue = self._queues.setdefault(node, _Queue())
        queue.waiting.append(asked)
        if queue.calls < _CALLS_AT_ONCE:
            queue.calls += 1
            asked.tasks.start_soon(self._call, node, queue, asked)

    async def _call(self, node: NodeId, queue: _Queue, owner: _Round) -> None:
        """Runs in the task group of one whom it serves. If that one gives up, the others are asked for anew."""
        together = _taken(node, queue.waiting) if owner in queue.waiting else []
        try:
            if together:
                await self._settle(node, together, owner.deadline_s)
        finally:
            queue.waiting.extendleft(each for each in reversed(together) if each.wants(node))
            self._hand_on(node, queue)

    async def _settle(self, node: NodeId, together: list[_Round], deadline_s: float) -> None:
        try:
            caller = self._peers.caller(node, behalf=BROKER)
            asks = BidsRequest(asks=tuple(each.ask for each in together))
            answer = await caller.call(QUOTE, body=asks, timeout_s=deadline_s)
            if len(answer.bids) != len(together):
                raise Fault(f"{len(answer.bids)} bids came for {len(together)}")
        except HawkerError as error:
            if len(together) > 1 and isinstance(error, _UNREAD):
                await self._settle_halves(node, together, deadline_s)
                return
            for each in together:
                each.settle(node, str(error))
            return
        for each, bid in zip(together, answer.bids, strict=True):
            each.settle(node, bid)

    async def _settle_halves(self, node: NodeId, together: list[_Round], deadline_s: float) -> None:
        """One of them made the node refuse all: it is found, and the others are asked for without it. The first, in
        whose task group this runs, comes last: once it has its bid, that group ends."""
        middle = len(together) // 2
        for half in (together[middle:], together[:middle]):
            wanted = [each for each in half if each.wants(node)]
            if wanted:
                await self._settle(node, wanted, deadline_s)

    def _hand_on(self, node: NodeId, queue: _Queue) -> None:
        """The next call runs in the task group of whoever has waited longest."""
        while queue.waiting and not queue.waiting[0].wants(node):
            queue.waiting.popleft()
        if queue.waiting:
            owner = queue.waiting[0]
            owner.tasks.start_soon(self._call, node, queue, owner)
            return
        queue.calls -= 1
        if not queue.calls and self._queues.get(node) is queue:
            del self._queues[node]


def _taken(node: NodeId, waiting: deque[_Round]) -> list[_Round]:
    """As many as go together, at least one."""
    together: list[_Round] = []
    size = 0
    while waiting and len(together) < _TOGETHER:
        size += waiting[0].size
        if together and size > _TOGETHER_BYTES:
            break
        each = waiting.popleft()
        if each.wants(node):
            together.append(each)
    return together


_IMAGES_KNOWN = 256
_SEED_BYTES = 8


class Surveyed(ValueObject, frozen=True, kw_only=True):
    """The survey of one region, or of a part of it. `ranked` has the best first; `planned` is where each of a counted
    order goes."""

    nodes: Sequence[Node]
    passed_over: dict[str, str]
    """The reason why a node was not asked, in words for people, by node id."""
    bids: dict[str, Bid | str]
    ranked: Sequence[Ranked]
    planned: Sequence[NodeId] = ()
    shown: tuple[BidShown, ...] = msgspec.field(default=())

    @property
    def ranking(self) -> list[NodeId]:
        return [each.offer.node for each in self.ranked]

    @property
    def heard(self) -> list[Bid]:
        return [bid for bid in self.bids.values() if isinstance(bid, Bid)]


class Surveyor:
    def __init__(self, directory: Directory, bidding: Bidding, preferences: Preferences, clock: Clock) -> None:
        self._directory = directory
        self._bidding = bidding
        self._preferences = preferences
        self._clock = clock
        self._layers: OrderedDict[str, tuple[LayerRef, ...]] = OrderedDict()
        self._fields = Fields(preferences)

    async def region(
        self, region: str, wanted: Wanted, ask: BidAsk, left_s: float, *, shows: bool = False
    ) -> AsyncGenerator[Surveyed, None]:
        """A large region in parts, for as long as the caller wants more."""
        field = self._fields.of(self._directory.nodes(), region, wanted)
        nodes, passed_over = field.nodes, field.passed_over
        if not field.fit:
            yield self._surveyed(nodes, passed_over, {}, wanted, ask, shows)
        deadline_s = min(self._preferences.limits.bid_deadline_s, left_s)
        asked: dict[str, Bid | str] = {}
        for part in rounds(field.fit, self._preferences.limits, self._clock.random()):
            ids = [node.id for node in part]
            bids = await self._bidding.collect(ids, self._with_layers(ask), deadline_s)
            self._learn(bids)
            asked |= bids
            whole = nodes if shows else part
            yield self._surveyed(whole, passed_over, asked if shows else bids, wanted, ask, shows)

    def _surveyed(
        self,
        nodes: Sequence[Node],
        passed_over: dict[str, str],
        bids: dict[str, Bid | str],
        wanted: Wanted,
        ask: BidAsk,
        shows: bool,
    ) -> Surveyed:
        seed = int.from_bytes(self._clock.token_bytes(_SEED_BYTES), "big")
        spread, offers = wanted.placement.spread, offers_of(nodes, bids)
        ranked = rank(offers, self._preferences, spread=spread, seed=seed)
        planned = self._planned(ranked, wanted, seed, ask.count)
        shown = explained(nodes, passed_over, bids, ranked, spread) if shows else ()
        return Surveyed(nodes=nodes, passed_over=passed_over, bids=bids, ranked=ranked, planned=planned, shown=shown)

    def _planned(self, ranked: Sequence[Ranked], wanted: Wanted, seed: int, count: int) -> list[NodeId]:
        if count == 1:
            return [each.offer.node for each in ranked[:1]]
        offers = [each.offer for each in ranked]
        return plan(offers, self._preferences, spread=wanted.placement.spread, seed=seed, count=count)

    def _with_layers(self, ask: BidAsk) -> BidAsk:
        names = _images_of(ask.machine)
        known = {name: self._layers[name] for name in names if name in self._layers}
        if not known:
            return ask
        return BidAsk(app=ask.app, machine=ask.machine, count=ask.count, order_id=ask.order_id, layers=known)

    def _learn(self, bids: dict[str, Bid | str]) -> None:
        for bid in bids.values():
            if isinstance(bid, Bid):
                for name, layers in bid.layers.items():
                    self._layers[name] = layers
                    self._layers.move_to_end(name)
        while len(self._layers) > _IMAGES_KNOWN:
            self._layers.popitem(last=False)


def _images_of(machine: CreateMachineRequest) -> list[str]:
    config = machine.config
    return [name for name in (config.image, *(each.image for each in config.containers or ())) if name]
