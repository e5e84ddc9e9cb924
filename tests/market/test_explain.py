from typing import Any

import pytest

from hawker.api.contract.market import Bid, Decline, DeclineKind, Headroom, Verdict
from hawker.api.directory import Node
from hawker.config.placement import Spread
from hawker.ids import NodeId
from hawker.market.explain import explained, offers_of
from hawker.market.preferences import preferences
from hawker.market.ranking import rank

NODES = [Node(id=NodeId(f"0000000{number}"), region="mad", labels={}) for number in range(8)]


def bid(used: float, **given: Any) -> Bid:
    room = Headroom(total=1000, takes=10, left=int(1000 * (1 - used)))
    return Bid(fits=3, headroom={"cpu": room, "memory": room, "disk": room}, **given)


def shown(spread: Spread = Spread.SOFT, **bids: Bid | str) -> list[tuple[str, Verdict, str]]:
    by_node: dict[str, Bid | str] = {f"0000000{number[1:]}": each for number, each in bids.items()}
    ranked = rank(offers_of(NODES, by_node), preferences(), spread=spread, seed=1)
    found = explained(NODES, {"00000007": "the node is cordoned"}, by_node, ranked, spread)
    assert len(found) == len(NODES)
    return [(each.node[-1], each.verdict, each.why) for each in found]


def test_every_node_is_told_of_once_with_what_became_of_it() -> None:
    no_room = Bid(fits=0, decline=Decline(kind=DeclineKind.NO_ROOM, reason="short of 5 cpus"))
    found = shown(n0=bid(0.5), n1=bid(0.1), n2=no_room, n3="no answer in time", n4=Bid(fits=0, filled="3d8f"))
    assert found == [
        ("1", Verdict.BEST, "the best bid"),
        ("0", Verdict.FILLS, "0.046 behind the best: cpu 50% used against 10% used; memory 50% used against 10% used"),
        ("2", Verdict.DECLINES, "short of 5 cpus"),
        ("4", Verdict.DECLINES, "it filled the order already, with machine 3d8f"),
        ("3", Verdict.SILENT, "no answer in time"),
        ("5", Verdict.NOT_ASKED, "others were asked first, and filled the order"),
        ("6", Verdict.NOT_ASKED, "others were asked first, and filled the order"),
        ("7", Verdict.NOT_ASKED, "the node is cordoned"),
    ]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (bid(0.1), "as good as the best: a draw decided"),
        (bid(0.1, same_app=2), "spread 2 of the app there against 0 of the app there"),
        (bid(0.1, image_bytes=256 << 20, missing_bytes=256 << 20), "image 256 MiB missing against 0 MiB missing"),
    ],
)
def test_what_made_it_lose_is_named(other: Bid, why: str) -> None:
    size = other.image_bytes
    best = bid(0.1, image_bytes=size, missing_bytes=None if size is None else 0)
    loser = next(each for each in shown(n0=best, n1=other) if each[1] is Verdict.FILLS)
    assert loser[2].endswith(why)


def test_one_that_has_the_app_already_declines_when_they_are_to_be_apart() -> None:
    found = shown(Spread.HARD, n0=bid(0.1, same_app=2))
    assert found[0] == ("0", Verdict.DECLINES, "machines of the app that the node has already: 2")
