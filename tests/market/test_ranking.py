"""The ranking alone: tables of what wins, and what holds for all bids."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.api.contract.market import Bid, Decline, DeclineKind, Headroom, Verdict
from hawker.api.directory import Node
from hawker.config.placement import Spread
from hawker.ids import NodeId
from hawker.market.preferences import Preferences, preferences
from hawker.market.ranking import Offer, explained, judged, missing_bytes, offers_of, plan, rank, worst_bytes

MIB = 1 << 20
USUAL = preferences()


def offer(node: str, *, used: float = 0.0, fits: int = 100, **given: Any) -> Offer:
    """A node of 100 times what one machine takes, `used` of it."""
    left = int(99_000 * (1 - used))
    room = Headroom(total=100_000, takes=1000, left=left)
    bid = Bid(fits=fits, headroom={"cpu": room, "memory": room, "disk": room}, **given)
    return Offer(node=NodeId(node), region="mad", bid=bid)


def order(*offers: Offer, spread: Spread = Spread.SOFT, seed: int = 0, prefer: Preferences = USUAL) -> list[str]:
    return [each.offer.node for each in rank(offers, prefer, spread=spread, seed=seed)]


def test_the_emptier_node_wins() -> None:
    assert order(offer("a", used=0.8), offer("b", used=0.2), offer("c", used=0.5)) == ["b", "c", "a"]


def test_with_a_curve_that_rises_the_fuller_node_wins() -> None:
    packing = preferences(dict.fromkeys(("cpu", "memory", "disk"), ((0.0, 0.0), (1.0, 1.0))))
    assert order(offer("a", used=0.8), offer("b", used=0.2), prefer=packing) == ["a", "b"]


def test_a_declined_bid_is_not_ranked() -> None:
    assert order(offer("a", fits=0), offer("b")) == ["b"]


def test_the_machines_of_one_app_keep_apart() -> None:
    many, none = offer("a", used=0.1, same_app=3), offer("b", used=0.2)
    assert order(many, none) == ["b", "a"]
    assert order(many, none, spread=Spread.OFF) == ["a", "b"]
    assert order(many, none, spread=Spread.HARD) == ["b"]


@pytest.mark.parametrize("used", [0.0, 0.2, 0.5, 0.8])
def test_the_node_that_has_the_image_wins_unless_it_is_near_full(used: float) -> None:
    size = 512 * MIB
    holder = offer("holder", used=used, image_bytes=size, missing_bytes=0)
    others = [offer(name, image_bytes=size, missing_bytes=size) for name in ("x", "y")]
    assert order(holder, *others)[0] == "holder"
    full = offer("holder", used=0.9, image_bytes=size, missing_bytes=0)
    assert order(full, *others)[-1] == "holder"


def test_the_trade_of_image_against_room_turns_at_one_utilisation() -> None:
    """Once the holder is too full, more load never makes it win again; a larger image bears more load."""
    turns = {}
    for size_mib in (16, 64, 512, 4096):
        wins = []
        for percent in range(100):
            holder = offer("holder", used=percent / 100, image_bytes=size_mib * MIB, missing_bytes=0)
            wins.append(order(holder, offer("x", image_bytes=size_mib * MIB, missing_bytes=size_mib * MIB))[0])
        turns[size_mib] = wins.count("holder")
        assert wins == ["holder"] * turns[size_mib] + ["x"] * (100 - turns[size_mib])
    assert list(turns.values()) == sorted(turns.values())
    assert 0 < turns[16] < turns[512] < 90


def test_a_node_with_half_of_the_layers_is_between() -> None:
    size = 512 * MIB
    bids = [offer(str(part), image_bytes=size, missing_bytes=size * part // 4) for part in (4, 0, 2)]
    assert order(*bids) == ["0", "2", "4"]


def test_a_node_that_does_not_know_the_image_is_taken_to_lack_all_of_it() -> None:
    size = 512 * MIB
    assert order(offer("a"), offer("b", used=0.2, image_bytes=size, missing_bytes=0)) == ["b", "a"]
    assert order(offer("a"), offer("b", used=0.2)) == ["a", "b"]


def test_a_draw_depends_on_the_seed_and_on_nothing_else() -> None:
    bids = [offer(f"{number:08x}") for number in range(8)]
    first = order(*bids, seed=1)
    assert first == order(*reversed(bids), seed=1)
    assert {order(*bids, seed=seed)[0] for seed in range(64)} == {bid.node for bid in bids}


def test_the_parts_add_up_to_the_score() -> None:
    (only,) = rank([offer("a", used=0.3, same_app=2)], USUAL, spread=Spread.SOFT, seed=0)
    assert sum(part.points for part in only.parts) == pytest.approx(only.score)
    assert [part.name for part in only.parts] == ["cpu", "memory", "disk", "image", "spread"]


def test_several_are_put_where_the_ones_before_leave_room() -> None:
    bids = [offer("a"), offer("b"), offer("c", used=0.5)]
    chosen = plan(bids, USUAL, spread=Spread.SOFT, seed=0, count=6)
    assert {chosen.count(node) for node in (NodeId("a"), NodeId("b"))} <= {2, 3} and len(chosen) == 6


def test_a_plan_is_no_longer_than_there_is_room() -> None:
    assert len(plan([offer("a", fits=2), offer("b", fits=1)], USUAL, spread=Spread.OFF, seed=0, count=9)) == 3
    apart = plan([offer("a"), offer("b"), offer("c", same_app=1)], USUAL, spread=Spread.HARD, seed=0, count=9)
    assert sorted(apart) == ["a", "b"]


def test_a_node_without_anything_to_sell_is_full() -> None:
    room = Headroom(total=0, takes=0, left=0)
    bid = Bid(fits=1, headroom={"cpu": room, "memory": room, "disk": room})
    assert judged(Offer(node=NodeId("a"), region="", bid=bid), USUAL, Spread.OFF, 0).score < 0.5


falling = st.lists(st.floats(0, 1), min_size=2, max_size=6).map(
    lambda heights: tuple((index / (len(heights) - 1), height) for index, height in enumerate(sorted(heights)[::-1]))
)
shares = st.floats(0, 1)


@given(curve=falling, first=shares, second=shares)
def test_where_curves_fall_more_headroom_is_never_worse(
    curve: tuple[tuple[float, float], ...], first: float, second: float
) -> None:
    prefer = preferences(dict.fromkeys(("cpu", "memory", "disk"), curve))
    scores = {
        used: rank([offer("a", used=used)], prefer, spread=Spread.SOFT, seed=0)[0].score for used in (first, second)
    }
    assert scores[min(first, second)] >= scores[max(first, second)] - 1e-9


@given(used=st.lists(st.tuples(shares, st.integers(0, 3), st.integers(0, 5)), max_size=12), seed=st.integers(0, 9))
def test_every_able_bid_is_ranked_once_by_its_score(used: list[tuple[float, int, int]], seed: int) -> None:
    bids = [offer(f"{n:08x}", used=share, fits=fits, same_app=apps) for n, (share, fits, apps) in enumerate(used)]
    ranked = rank(bids, USUAL, spread=Spread.SOFT, seed=seed)
    assert sorted(each.offer.node for each in ranked) == [bid.node for bid in bids if bid.bid.fits]
    scores = [round(each.score, 9) for each in ranked]
    assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)


@given(hosts=st.integers(1, 200))
def test_work_grows_with_the_bids_and_not_with_the_fleet(hosts: int) -> None:
    """Each curve is read once for each bid."""
    reads = 0

    class Counting(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            nonlocal reads
            reads += 1
            return super().__getitem__(key)

    prefer = Preferences(curves=Counting(USUAL.curves), weights=USUAL.weights)
    rank([offer(f"{n:08x}") for n in range(hosts)], prefer, spread=Spread.SOFT, seed=0)
    assert reads == 5 * hosts


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
def test_the_reason_of_a_lost_bid_is_named(other: Bid, why: str) -> None:
    size = other.image_bytes
    best = bid(0.1, image_bytes=size, missing_bytes=None if size is None else 0)
    loser = next(each for each in shown(n0=best, n1=other) if each[1] is Verdict.FILLS)
    assert loser[2].endswith(why)


def test_one_that_has_the_app_already_declines_when_they_are_to_be_apart() -> None:
    found = shown(Spread.HARD, n0=bid(0.1, same_app=2))
    assert found[0] == ("0", Verdict.DECLINES, "machines of the app that the node has already: 2")


def test_an_image_of_a_neighbour_costs_less_than_one_of_a_registry() -> None:
    size = 512 * MIB
    near = offer("near", used=0.2, image_bytes=size, missing_bytes=size, nearby_bytes=size)
    far = offer("far", used=0.2, image_bytes=size, missing_bytes=size)
    assert order(far, near) == ["near", "far"]
    assert missing_bytes(near.bid, 0) == size / 4 and missing_bytes(far.bid, 0) == size
    unknown = offer("unknown", used=0.2)
    assert worst_bytes([far, unknown]) == size
    assert worst_bytes([offer("holder", image_bytes=size, missing_bytes=0), unknown]) == size / 4


@pytest.mark.parametrize("nearby", [-5, 10**12])
def test_a_bid_gains_nothing_by_a_neighbour_that_has_more_than_is_missing(nearby: int) -> None:
    bid = offer("a", image_bytes=MIB, missing_bytes=MIB, nearby_bytes=nearby).bid
    assert MIB / 4 <= missing_bytes(bid, 0) <= MIB
