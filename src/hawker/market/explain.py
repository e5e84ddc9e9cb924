"""Every bid in words: its parts, and why it lost. Pure."""

from collections.abc import Mapping, Sequence

from hawker.api.contract.market import Bid, BidPart, BidShown, Verdict
from hawker.api.directory import Node
from hawker.config.placement import Spread
from hawker.market.ranking import Offer, Ranked, RankPart

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
    """Where the winner is better, the greatest difference first."""
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
