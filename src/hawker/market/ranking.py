"""Which bid is best, and every bid in words: its parts, and why it lost. Pure functions of the bids, the operator's
preferences and a number that breaks ties.

Each resource adds its desirability, read from its curve at the utilisation that the node would have afterwards, times
its weight; so do the bytes of the image that are missing and the machines of the app that are there. Work grows with
the number of bids and of resources, and with nothing else.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from hawker.api.contract.market import Bid, BidPart, BidShown, Verdict
from hawker.api.directory import Node
from hawker.config.placement import Spread
from hawker.ids import NodeId
from hawker.market.preferences import Preferences

_MIB = 1 << 20
_NEARBY = 0.25  # what a byte costs that comes from another node of the region, beside one from a registry
_DIGITS = 9  # of a score that count; what is equal up to them is a tie


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A bid, and whose it is. `filled` more machines of the same order are to go there by a plan."""

    node: NodeId
    region: str
    """The region of the node."""
    bid: Bid
    filled: int = 0

    @property
    def fits(self) -> int:
        return self.bid.fits - self.filled


class RankPart(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a score that one resource adds: `points`, of 1 in all."""

    name: str
    """The name of the resource, as the curves name it."""
    value: float
    """The value as the curve takes it: a share of what is used then, bytes or a number of machines."""
    utility: float
    """The utility that the curve makes of the value, 0 to 1."""
    weight: float
    """The weight of the resource beside others, 0 or more."""
    points: float


_Term: TypeAlias = tuple[str, float, float, float, float]  # a part, as it is counted


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """Every order makes one for each bid, and few are ever shown: their parts are told on demand."""

    offer: Offer
    score: float
    """The sum of the parts' points; the highest wins."""
    terms: tuple[_Term, ...]

    @property
    def parts(self) -> tuple[RankPart, ...]:
        return tuple(
            RankPart(name=name, value=value, utility=utility, weight=weight, points=points)
            for name, value, utility, weight, points in self.terms
        )


def rank(offers: Sequence[Offer], preferences: Preferences, *, spread: Spread, seed: int) -> list[Ranked]:
    """The offers that would fill the order, the best first. Equal scores are put in an order that depends on `seed` and
    the nodes' names alone, so that brokers with different seeds do not all run to the same node."""
    able = [offer for offer in offers if is_able(offer, spread)]
    unknown = worst_bytes(able)
    ranked = [judged(offer, preferences, spread, unknown) for offer in able]
    return sorted(ranked, key=lambda each: (-round(each.score, _DIGITS), _lot(seed, each.offer.node)))


def plan(offers: Sequence[Offer], preferences: Preferences, *, spread: Spread, seed: int, count: int) -> list[NodeId]:
    """The nodes for `count` equal machines: each goes to the best node as the machines before it leave it. Shorter than
    `count` when there is no more room."""
    unknown = worst_bytes([offer for offer in offers if is_able(offer, spread)])
    left = {offer.node: judged(offer, preferences, spread, unknown) for offer in offers if is_able(offer, spread)}
    chosen: list[NodeId] = []
    while left and len(chosen) < count:
        best = min(left.values(), key=lambda each: (-round(each.score, _DIGITS), _lot(seed, each.offer.node)))
        node, offer = best.offer.node, replace(best.offer, filled=best.offer.filled + 1)
        chosen.append(node)
        if is_able(offer, spread):
            left[node] = judged(offer, preferences, spread, unknown)
        else:
            del left[node]
    return chosen


def is_able(offer: Offer, spread: Spread) -> bool:
    return offer.fits > 0 and not (spread is Spread.HARD and machines_of_app(offer))


def machines_of_app(offer: Offer) -> int:
    return offer.bid.same_app + offer.filled


def worst_bytes(offers: Sequence[Offer]) -> float:
    """The bytes that a node that does not know the image is taken to lack: all of it, as far as anybody knows. Where
    another node has it, it is handed over."""
    whole = max((offer.bid.image_bytes or 0 for offer in offers), default=0)
    held = any(offer.bid.missing_bytes == 0 and offer.bid.image_bytes for offer in offers)
    return whole * _NEARBY if held else whole


def missing_bytes(bid: Bid, unknown_bytes: float) -> float:
    """The bytes that count as missing: bytes that a neighbour hands over cost less than those of a registry."""
    if bid.missing_bytes is None:
        return unknown_bytes
    nearby = min(max(0, bid.nearby_bytes), bid.missing_bytes)
    return bid.missing_bytes - nearby * (1 - _NEARBY)


def judged(offer: Offer, preferences: Preferences, spread: Spread, unknown_bytes: float) -> Ranked:
    values = _values(offer, spread, unknown_bytes)
    curves, weights = preferences.curves, preferences.weights
    whole = 0.0
    for name, _ in values:
        whole += weights[name]
    whole = whole or 1.0
    score, terms = 0.0, list[_Term]()
    for name, value in values:
        utility, weight = curves[name].at(value), weights[name]
        points = utility * weight / whole
        score += points
        terms.append((name, value, utility, weight, points))
    return Ranked(offer=offer, score=score, terms=tuple(terms))


def _values(offer: Offer, spread: Spread, unknown_bytes: float) -> list[tuple[str, float]]:
    bid, filled = offer.bid, offer.filled
    values = [
        (name, _utilised(room.total, room.left - filled * room.takes))
        for name, room in bid.headroom.items()
        if name in _UTILISED
    ]
    values.append(("image", 0.0 if filled else missing_bytes(bid, unknown_bytes) / _MIB))
    if spread is Spread.SOFT:
        values.append(("spread", float(machines_of_app(offer))))
    return values


_UTILISED = frozenset({"cpu", "memory", "disk", "gpu"})


def _utilised(total: int, left: int) -> float:
    return 1.0 if total <= 0 else min(1.0, max(0.0, 1 - left / total))


def _lot(seed: int, node: NodeId) -> bytes:
    return blake2b(f"{seed}/{node}".encode(), digest_size=8).digest()


_MOST_REASONS = 2


def explained(
    nodes: Sequence[Node],
    passed_over: Mapping[str, str],
    bids: Mapping[str, Bid | str],
    ranked: Sequence[Ranked],
    spread: Spread,
) -> tuple[BidShown, ...]:
    """The best first, then those that decline, are silent, or were not asked. `passed_over` says why a node was not
    asked; a bid that is a text is what was heard instead."""
    shown = [_ranked(each, ranked[0]) for each in ranked]
    known = {each.offer.node for each in ranked}
    rest = [_other(node, passed_over, bids.get(node.id), spread) for node in nodes if node.id not in known]
    return (*shown, *sorted(rest, key=lambda each: (_ORDER.index(each.verdict), each.region, each.node)))


_ORDER = [Verdict.BEST, Verdict.FILLS, Verdict.DECLINES, Verdict.SILENT, Verdict.NOT_ASKED]


def _ranked(each: Ranked, best: Ranked) -> BidShown:
    offer = each.offer
    parts = tuple(
        BidPart(
            name=part.name,
            value=round(part.value, 4),
            utility=round(part.utility, 4),
            weight=part.weight,
            points=round(part.points, 4),
        )
        for part in each.parts
    )
    return BidShown(
        node=offer.node,
        region=offer.region,
        verdict=Verdict.BEST if each is best else Verdict.FILLS,
        why="the best bid" if each is best else lost_to(each, best),
        score=round(each.score, 4),
        fits=offer.bid.fits,
        parts=parts,
    )


def lost_to(each: Ranked, best: Ranked) -> str:
    """The sentence that says where the winner is better, the greatest difference first."""
    behind = best.score - each.score
    if behind < 1e-9:
        return "as good as the best: a draw decided"
    others = {part.name: part for part in best.parts}
    lacks = sorted(
        ((others[part.name].points - part.points, part, others[part.name]) for part in each.parts),
        key=lambda lack: -lack[0],
    )
    reasons = [_reason(part, other) for gap, part, other in lacks[:_MOST_REASONS] if gap > 1e-4]
    return f"{behind:.3f} behind the best: {'; '.join(reasons)}"


def _reason(part: RankPart, other: RankPart) -> str:
    mine, others = _told(part), _told(other)
    return f"{part.name} {mine} against {others}"


def _told(part: RankPart) -> str:
    match part.name:
        case "image":
            return f"{part.value:.0f} MiB missing"
        case "spread":
            return f"{part.value:.0f} of the app there"
        case _:
            return f"{part.value:.0%} used"


def _other(node: Node, passed_over: Mapping[str, str], bid: Bid | str | None, spread: Spread) -> BidShown:
    if node.id in passed_over:
        return BidShown(node=node.id, region=node.region, verdict=Verdict.NOT_ASKED, why=passed_over[node.id])
    if bid is None:
        why = "others were asked first, and filled the order"
        return BidShown(node=node.id, region=node.region, verdict=Verdict.NOT_ASKED, why=why)
    if isinstance(bid, str):
        return BidShown(node=node.id, region=node.region, verdict=Verdict.SILENT, why=bid)
    return BidShown(
        node=node.id, region=node.region, verdict=Verdict.DECLINES, why=_declines(bid, spread), fits=bid.fits
    )


def _declines(bid: Bid, spread: Spread) -> str:
    if bid.decline is not None:
        return bid.decline.reason
    if bid.filled is not None:
        return f"it filled the order already, with machine {bid.filled}"
    if spread is Spread.HARD and bid.same_app:
        return f"machines of the app that the node has already: {bid.same_app}"
    return "it gave no reason"


def offers_of(nodes: Sequence[Node], bids: Mapping[str, Bid | str]) -> list[Offer]:
    found = ((node, bids.get(node.id)) for node in nodes)
    return [Offer(node=node.id, region=node.region, bid=bid) for node, bid in found if isinstance(bid, Bid)]
