from hawker.catalog.fan_out import ReplicaPeer, ReplicaPeers
from hawker.catalog.pulls import ATTEMPTS, Pulls
from hawker.clock import ManualClock
from hawker.ids import NodeId
from tests.catalog.kit import A, B, C


def among(*nodes: NodeId) -> ReplicaPeers:
    peers = ReplicaPeers("mad")
    for node in nodes:
        peers.tell(ReplicaPeer(node, "mad", 0.01))
    return peers


def whom(pulls: Pulls, peers: ReplicaPeers, now: float) -> list[NodeId]:
    return [node for node, _ in pulls.take(now, peers, ManualClock().random)]


def test_the_teller_is_asked_first_then_the_owner() -> None:
    pulls, peers = Pulls(), among(A, B, C)
    pulls.want(A, 1, 5, B, 10.0)
    assert whom(pulls, peers, 9.9) == []
    assert whom(pulls, peers, 10.0) == [B]
    assert pulls.next_due() > 10.0
    assert whom(pulls, peers, 100.0) == [A]


def test_the_first_hole_sets_the_time_and_the_furthest_the_target() -> None:
    pulls = Pulls()
    pulls.want(A, 1, 5, B, 10.0)
    pulls.want(A, 1, 7, C, 11.0)
    pulls.want(A, 1, 6, C, 9.0)
    assert pulls.next_due() == 10.0
    pulls.met(A, 1, 6)
    assert A in pulls
    pulls.met(A, 1, 7)
    assert A not in pulls and pulls.next_due() == float("inf")


def test_a_newer_epoch_counts_for_more_than_any_version() -> None:
    pulls = Pulls()
    pulls.want(A, 1, 50, B, 0.0)
    pulls.want(A, 2, 0, B, 0.0)
    pulls.met(A, 1, 50)
    assert len(pulls) == 1
    pulls.met(A, 2, 0)
    assert len(pulls) == 0


def test_pull_that_nobody_answers_is_given_up() -> None:
    pulls, peers = Pulls(), among(B)
    pulls.want(A, 1, 5, B, 0.0)
    asked = sum(len(whom(pulls, peers, 100.0 * turn)) for turn in range(2 * ATTEMPTS))
    assert asked == ATTEMPTS and A not in pulls
    assert (pulls.given_up(), pulls.given_up()) == ([A], [])


def test_with_nobody_there_nothing_is_wanted() -> None:
    pulls = Pulls()
    pulls.want(A, 1, 5, B, 0.0)
    assert whom(pulls, among(), 1.0) == [] and len(pulls) == 0


def test_pull_answered_in_parts_goes_on_at_the_same_peer() -> None:
    pulls, peers = Pulls(), among(A, B, C)
    pulls.want(A, 1, 5, C, 0.0)
    assert whom(pulls, peers, 0.0) == [C]
    pulls.hurry(A, 0.01)
    assert whom(pulls, peers, 0.01) == [C]
    pulls.bulky(A, B, 0.02)
    assert next(iter(pulls.all())).bulky
    assert whom(pulls, peers, 0.02) == [B]


def test_asking_can_be_put_off() -> None:
    pulls = Pulls()
    pulls.want(A, 1, 5, C, 0.0)
    pulls.later(3.0)
    assert pulls.next_due() == 3.0
