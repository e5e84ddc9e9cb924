from hawker.catalog.change import Position
from hawker.catalog.fan_out import ReplicaPeer, ReplicaPeers
from hawker.catalog.inbound import ATTEMPTS, MAX_ORIGINS, Inbound, Pulls, ReorderBuffer
from hawker.catalog.messages import Want
from hawker.clock import ManualClock
from hawker.ids import NodeId
from tests.catalog.kit import ME, A, B, C, delta, tx


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


def inbound(position: Position | None = None) -> Inbound:
    return Inbound(ME, {A: position} if position is not None else {})


def ready(made: Inbound) -> list[int]:
    return [item.version if hasattr(item, "version") else item.upto for item in made.ready]


def take(made: Inbound, *versions: int, epoch: int = 5) -> list[bool]:
    return [made.take_tx(tx(version, epoch=epoch), B, 1.0) for version in versions]


def test_changes_are_handed_over_in_their_order() -> None:
    made = inbound(Position(5, 2))
    assert take(made, 5, 4, 4, 2, 3, 3, 5) == [True, True, False, False, True, False, False]
    assert ready(made) == [3, 4, 5]
    assert made.where(A) == (5, 5) and made.vector.get(A) == Position(5, 2)


def test_a_hole_is_wanted_until_it_is_filled() -> None:
    made = inbound(Position(5, 2))
    take(made, 6)
    assert made.gaps() == 3 and made.pulls.next_due() == 1.0
    take(made, 3, 4)
    assert A in made.pulls
    take(made, 5)
    assert A not in made.pulls and ready(made) == [3, 4, 5, 6]


def test_a_stream_never_heard_of_begins_with_version_1_of_any_epoch() -> None:
    made = inbound()
    assert take(made, 2, 1) == [True, True]
    assert ready(made) == [1, 2]


def test_a_newer_epoch_waits_for_its_reset() -> None:
    made = inbound(Position(5, 2))
    take(made, 1, epoch=6)
    assert ready(made) == []
    (missing,) = made.pulls.all()
    assert made.want(missing) == Want(origin=A, epoch=5, after=2)
    made.take_delta(delta(-1, 0, epoch=6, reset=True), 0.0)
    assert ready(made) == [0, 1]
    assert take(made, 3, epoch=5) == [False]


def test_a_reset_in_parts_goes_on_where_it_came_to() -> None:
    made = inbound(Position(5, 2))
    made.take_tx(tx(9, epoch=6), B, 0.0)
    made.take_delta(delta(-1, 3, epoch=6, reset=True, last=False, head=8), 0.0)
    assert made.where(A) == (6, -1)
    (missing,) = made.pulls.all()
    assert made.want(missing) == Want(origin=A, epoch=6, after=3, since=8)
    made.take_delta(delta(4, 6, epoch=6, reset=True, last=False), 0.0)
    made.take_delta(delta(3, 8, epoch=6, reset=True), 0.0)
    assert ready(made) == [3, 8, 9]


def test_an_answer_that_is_too_late_or_too_early_is_passed_over() -> None:
    made = inbound(Position(5, 5))
    made.take_delta(delta(3, 5), 0.0)
    made.take_delta(delta(6, 9), 0.0)
    made.take_delta(delta(-1, 4, reset=True), 0.0)
    made.take_delta(delta(5, 9, epoch=4), 0.0)
    assert ready(made) == []
    made.take_delta(delta(3, 7), 0.0)
    assert ready(made) == [7]


def test_change_that_the_storage_skipped_is_found_missing_again() -> None:
    made = inbound(Position(5, 2))
    take(made, 3, 4)
    made.ready.clear()
    made.applied([A, A])
    assert not made.moved(A, Position(5, 2))
    assert made.where(A) == (5, 2)
    assert made.lacks(A, 5, 4)


def test_change_of_a_forgotten_origin_is_not_taken_in() -> None:
    made = inbound(Position(0, 0, 0, 5))
    assert take(made, 1) == [False]
    assert not made.lacks(A, 5, 9)
    assert take(made, 1, epoch=6) == [True]


def test_a_fence_that_is_not_up_yet_counts_already() -> None:
    made = inbound(Position(5, 2))
    made.fences[A] = 5
    assert take(made, 3) == [False]
    made.fenced(A, 4)
    assert made.fences == {A: 5}
    made.fenced(A, 5)
    assert made.fences == {}


def test_origins_cannot_be_made_up_without_end() -> None:
    made = Inbound(ME, {NodeId(f"{number:08x}"): Position(1, 1) for number in range(MAX_ORIGINS)})
    assert take(made, 1) == [False]
    assert made.take_tx(tx(2, epoch=1, origin=NodeId("00000001")), B, 0.0)


def versions(pending: ReorderBuffer, version: int, epoch: int = 5) -> list[int]:
    return [found.version for found, _ in pending.follow(A, epoch, version)]


def test_reorder_buffer_releases_a_contiguous_run_in_order() -> None:
    pending = ReorderBuffer()
    for version in (5, 3, 4, 7):
        assert pending.hold(tx(version), 10)
    assert versions(pending, 1) == []
    assert versions(pending, 2) == [3, 4, 5]
    assert len(pending) == 1 and pending.bytes == 10


def test_reorder_buffer_drops_transactions_that_are_behind() -> None:
    pending = ReorderBuffer()
    pending.hold(tx(3), 10)
    assert versions(pending, 3) == []
    assert len(pending) == 0


def test_the_same_is_held_once() -> None:
    pending = ReorderBuffer()
    assert pending.hold(tx(3), 10)
    assert not pending.hold(tx(3), 10)
    assert pending.has(A, 5, 3) and not pending.has(A, 6, 3) and not pending.has(B, 5, 3)


def test_the_furthest_goes_when_there_is_too_much() -> None:
    pending = ReorderBuffer(txs=2)
    pending.hold(tx(9), 10)
    pending.hold(tx(3), 10)
    assert pending.hold(tx(5), 10)
    assert not pending.has(A, 5, 9) and pending.dropped == 1
    assert not pending.hold(tx(7), 10)


def test_bytes_are_bounded_for_each_origin_and_in_all() -> None:
    pending = ReorderBuffer(size=25, total=40)
    assert pending.hold(tx(3), 20)
    assert not pending.hold(tx(4), 20)
    assert pending.hold(tx(3, origin=B), 20)
    assert not pending.hold(tx(9, origin=B), 20)
    assert pending.bytes == 40


def test_a_newer_epoch_takes_the_place_of_an_older_one() -> None:
    pending = ReorderBuffer()
    pending.hold(tx(3), 10)
    assert pending.hold(tx(2, epoch=6), 10)
    assert not pending.hold(tx(4, epoch=5), 10)
    assert pending.epoch(A) == 6 and len(pending) == 1
    assert versions(pending, 1, epoch=5) == []
    assert versions(pending, 1, epoch=6) == [2]
    assert pending.epoch(A) == -1
