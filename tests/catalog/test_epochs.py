from hawker.catalog.change import Position, Scope
from hawker.catalog.fan_out import ReplicaPeer, ReplicaPeers
from hawker.catalog.streams import LISTEN_S, PATIENCE_S, Inquiry, in_scope, next_epoch, outdated
from hawker.clock import ManualClock
from tests.catalog.kit import A, B


def test_an_epoch_is_above_all_that_was_heard_even_with_a_wrong_clock() -> None:
    late = next_epoch(ManualClock(), 0)
    assert next_epoch(ManualClock(start=5.0), late) > late
    assert next_epoch(ManualClock(start=5.0), 0) < late


def test_two_lives_of_one_past_choose_different_epochs() -> None:
    clock = ManualClock()
    assert len({next_epoch(clock, 7) for _ in range(50)}) == 50


def test_the_epochs_of_a_node_go_together_and_tell_their_scope() -> None:
    epoch = next_epoch(ManualClock(), 0)
    assert in_scope(epoch, Scope.REGION) + 1 == in_scope(epoch, Scope.GLOBAL) == in_scope(epoch + 1, Scope.GLOBAL)


def test_node_known_further_than_it_is_or_forgotten_is_outdated() -> None:
    own = Position(5, 10)
    assert outdated(own, 5, 11) and outdated(own, 6, 0)
    assert not outdated(own, 5, 10) and not outdated(own, 4, 99)
    assert outdated(own, -1, -1, 5) and not outdated(own, -1, -1, 4)


def test_an_inquiry_waits_for_all_who_are_alive() -> None:
    clock, peers = ManualClock(), ReplicaPeers("mad")
    peers.tell(ReplicaPeer(A, "mad", 0.0))
    inquiry = Inquiry(clock)
    assert inquiry.whom(clock.now(), peers) == [A]
    inquiry.heard(A)
    assert not inquiry.passed(clock.now(), peers)
    clock.advance(LISTEN_S)
    assert inquiry.passed(clock.now(), peers)
    peers.tell(ReplicaPeer(B, "mad", 0.0))
    assert not inquiry.passed(clock.now(), peers)
    assert inquiry.whom(clock.now(), peers) == [B]


def test_patience_ends() -> None:
    clock = ManualClock()
    inquiry = Inquiry(clock)
    clock.advance(PATIENCE_S)
    assert inquiry.failed(clock.monotonic())
