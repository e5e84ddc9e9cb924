"""Which moves a trial plays, and which of the places that they come by are theirs."""

from hawker.chaos.moves.blow import Blow, MoveKind, MoveTrialPlan, OrderedMove
from hawker.record.move import MoveState

MET = (
    "move.accept.before",
    "scheduled_move.begin.after",
    "receive.fetch.undo",
    "receive.fetch.copied",
    "receive.fetch.copied",
    "bring_snapshots.bring.arrived",
)


def test_move_dies_at_the_places_of_its_own_flows_once_each() -> None:
    assert OrderedMove("warm").about(MET, ()) == ["move.accept.before", "receive.fetch.copied"]
    assert OrderedMove("warm").about(MET, ("receive.",)) == ["receive.fetch.copied"]
    assert OrderedMove("warm", MoveState.WARMING).about(MET, ()) == ["receive.fetch.undo"]
    assert OrderedMove("warm", kind=MoveKind.SCHEDULED).about(MET, ()) == ["scheduled_move.begin.after"]
    assert OrderedMove("cold", kind=MoveKind.FOLLOWED).about(MET, ()) == ["bring_snapshots.bring.arrived"]


def test_plan_leaves_out_moves_that_come_by_none_of_its_places() -> None:
    kinds = (MoveKind.SCHEDULED, MoveKind.FOLLOWED, MoveKind.BACK, MoveKind.RECLAIMED)
    everything = [move.name for move in MoveTrialPlan(kinds=kinds).moves()]
    plain = ["warm", "cold", "warm, cancelled", "cold, cancelled"]
    assert everything == [*plain, "warm, scheduled", "warm, followed", "warm, back", "warm, reclaimed"]
    narrowed = MoveTrialPlan(places=("bring_snapshots.bring",), kinds=kinds).moves()
    assert [move.name for move in narrowed] == ["warm, followed"]
    assert [move.name for move in MoveTrialPlan(modes=("cold",), places=("receive",), cancels=False).moves()] == [
        "cold"
    ]


def test_blow_says_who_dies_and_how_long_a_link_is_cut() -> None:
    blow = Blow(OrderedMove("warm"), "receive.fetch.copied", cut_s=3)
    assert str(blow) == "receive.fetch.copied, cut 3 s" and blow.at_destination
    assert str(Blow(OrderedMove("warm"), cut_s=2, cut_at=MoveState.WARMING)) == "cut 2 s at warming"
    assert not Blow(OrderedMove("warm"), "move.grant.after").at_destination
    assert Blow(OrderedMove("warm"), "bring_snapshots.bring.before").at_destination
    assert str(Blow(OrderedMove("warm"), "move.grant.after", both=True)) == "move.grant.after, both"
    assert str(Blow(OrderedMove("warm"))) == "none"


def test_move_back_has_its_ends_the_other_way_round() -> None:
    back = OrderedMove("warm", kind=MoveKind.BACK)
    assert Blow(back, "move.grant.after").at_destination and not Blow(back, "receive.fetch.copied").at_destination


def test_reclaim_dies_at_the_source_and_surrender_at_the_destination() -> None:
    reclaimed = OrderedMove("warm", kind=MoveKind.RECLAIMED)
    places = ("reclaim.order.after", "surrender.drop.before")
    assert reclaimed.about((*MET, *places), ()) == list(places)
    assert [Blow(reclaimed, place).at_destination for place in places] == [False, True]
