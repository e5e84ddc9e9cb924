"""Asking a region: who may be asked, what they bid, who is best, and how many of a counted order go where.

What the brokers learn of images on the way, the layers of those that some node has, goes along with the next asks: then
a node that has some of them can say how little it lacks.
"""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence

import msgspec

from hawker.api.contract.machine import CreateMachineRequest
from hawker.api.contract.market import Bid, BidAsk, BidShown, LayerRef
from hawker.api.directory import Directory, Node
from hawker.clock import Clock
from hawker.ids import NodeId
from hawker.market.bids import Bidding
from hawker.market.candidates import Fields, Wanted, rounds
from hawker.market.preferences import Preferences
from hawker.market.ranking import Ranked, explained, offers_of, plan, rank
from hawker.value_object import ValueObject

_IMAGES_KNOWN = 256
_SEED_BYTES = 8


class Surveyed(ValueObject, frozen=True, kw_only=True):
    """Of one region, or a part of it. `ranked` has the best first; `planned` is where each of a counted order goes."""

    nodes: Sequence[Node]
    passed_over: dict[str, str]
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
