"""The market: which bid is best. Pure functions of the bids, the operator's preferences and a number that breaks ties.

Each resource adds its desirability, read from its curve at the utilisation that the node would have afterwards, times
its weight; so do the bytes of the image that are missing and the machines of the app that are there. Work grows with
the number of bids and of resources, and with nothing else.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from hawker.api.contract.market import Bid
from hawker.config.placement import Spread
from hawker.ids import NodeId
from hawker.market.preferences import Preferences

_MIB = 1 << 20
_DIGITS = 9  # of a score that count; what is equal up to them is a tie


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A bid, and whose it is. `filled` more machines of the same order are to go there by a plan."""

    node: NodeId
    region: str
    bid: Bid
    filled: int = 0

    @property
    def fits(self) -> int:
        return self.bid.fits - self.filled


class RankPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one resource adds to a score: `points`, of 1 in all."""

    name: str
    value: float
    utility: float
    weight: float
    points: float


_Term: TypeAlias = tuple[str, float, float, float, float]  # a part, as it is counted


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """Every order makes one for each bid, and few are ever shown: their parts are told on demand."""

    offer: Offer
    score: float
    terms: tuple[_Term, ...]

    @property
    def parts(self) -> tuple[RankPart, ...]:
        return tuple(
            RankPart(name=name, value=value, utility=utility, weight=weight, points=points)
            for name, value, utility, weight, points in self.terms
        )


def rank(offers: Sequence[Offer], preferences: Preferences, *, spread: Spread, seed: int) -> list[Ranked]:
    """Those that would fill the order, the best first. Equal scores are put in an order that depends on `seed` and the
    nodes' names alone, so that brokers with different seeds do not all run to the same node."""
    able = [offer for offer in offers if is_able(offer, spread)]
    unknown = worst_bytes(able)
    ranked = [judged(offer, preferences, spread, unknown) for offer in able]
    return sorted(ranked, key=lambda each: (-round(each.score, _DIGITS), _lot(seed, each.offer.node)))


def plan(offers: Sequence[Offer], preferences: Preferences, *, spread: Spread, seed: int, count: int) -> list[NodeId]:
    """Where to put so many equal machines: each to the best as the ones before leave it. Shorter than `count` when
    there is no more room."""
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


def worst_bytes(offers: Sequence[Offer]) -> int:
    """What a node that does not know the image is taken to lack: all of it, as far as anybody knows."""
    return max((offer.bid.image_bytes or 0 for offer in offers), default=0)


def judged(offer: Offer, preferences: Preferences, spread: Spread, unknown_bytes: int) -> Ranked:
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


def _values(offer: Offer, spread: Spread, unknown_bytes: int) -> list[tuple[str, float]]:
    bid, filled = offer.bid, offer.filled
    values = [
        (name, _utilised(room.total, room.left - filled * room.takes))
        for name, room in bid.headroom.items()
        if name in _UTILISED
    ]
    missing = bid.missing_bytes if bid.missing_bytes is not None else unknown_bytes
    values.append(("image", 0.0 if filled else missing / _MIB))
    if spread is Spread.SOFT:
        values.append(("spread", float(machines_of_app(offer))))
    return values


_UTILISED = frozenset({"cpu", "memory", "disk", "gpu"})


def _utilised(total: int, left: int) -> float:
    return 1.0 if total <= 0 else min(1.0, max(0.0, 1 - left / total))


def _lot(seed: int, node: NodeId) -> bytes:
    return blake2b(f"{seed}/{node}".encode(), digest_size=8).digest()
