from collections.abc import Mapping

import pytest

from hawker.catalog.change import Position, Scope, Token
from hawker.catalog.engine import GRACE_S, SERVED, WAITING, ReplicationEngine, ReplicationLag
from hawker.catalog.fan_out import ReplicaPeer
from hawker.catalog.jobs import Apply, Collect, JobResult, RaiseFence, Renew, Serve
from hawker.catalog.messages import (
    Bulk,
    DeltaPart,
    ForgetOrigin,
    Head,
    Ihave,
    Pull,
    PullAnswer,
    Txs,
    Vector,
    VectorEntry,
    Want,
)
from hawker.catalog.replication import MESSAGE_BYTES
from hawker.catalog.streams import in_scope
from hawker.clock import ManualClock
from hawker.ids import NodeId
from tests.catalog.kit import ME, A, B, delta, op, push, tx


def engine(
    positions: Mapping[NodeId, Position] | None = None, *, clock: ManualClock | None = None
) -> ReplicationEngine:
    known = {ME: Position(4, 3)} | dict(positions or {})
    made = ReplicationEngine(ME, "mad", dict.fromkeys(Scope, known), clock or ManualClock(), proven=True)
    made.tell(ReplicaPeer(A, "mad", 0.01))
    made.tell(ReplicaPeer(B, "ams", 0.05))
    return made


def pull(after: int, epoch: int = 5) -> Pull:
    want = Want(origin=A, epoch=epoch, after=after)
    return Pull(scope=Scope.REGION, wants=(want,), max_bytes=1 << 30)


def test_regional_streams_stay_in_the_region() -> None:
    made = engine()
    assert made.scopes[Scope.REGION].peers.alive == [A]
    assert set(made.scopes[Scope.GLOBAL].peers.alive) == {A, B} and made.peers == 2
    made.take(B, push(tx(1)))
    assert made.next_job() is None
    made.take(A, push(tx(1)))
    assert isinstance(made.next_job(), Apply)
    made.tell(ReplicaPeer(A, "ams", 0.0))
    made.lose(B)
    assert made.scopes[Scope.REGION].peers.alive == [] and made.peers == 1


def test_applied_changes_count_once_the_storage_says_so() -> None:
    made = engine()
    made.take(A, push(tx(1)))
    job = made.next_job()
    assert job == Apply((tx(1),)) and made.queued == 0
    assert made.position(Scope.REGION, A) == Position()
    made.finish(job, JobResult(positions={(A, Scope.REGION): Position(5, 1)}))
    assert made.position(Scope.REGION, A) == Position(5, 1)


def test_both_streams_begin_again_together() -> None:
    made = engine()
    made.take(A, Ihave(scope=Scope.REGION, heads=(Head(origin=ME, epoch=4, version=9),)))
    first = made.next_job()
    assert isinstance(first, Renew) and first.scope is Scope.REGION
    made.finish(first, JobResult(positions={(ME, Scope.REGION): Position(first.epoch, 1, 1)}))
    assert not made.settled
    second = made.next_job()
    assert second == Renew(ME, Scope.GLOBAL, in_scope(first.epoch, Scope.GLOBAL))
    made.finish(second, JobResult(positions={(ME, Scope.GLOBAL): Position(second.epoch, 0)}))
    assert made.settled and made.next_job() is None


def test_a_storage_that_knew_of_a_later_epoch_is_asked_again() -> None:
    made = engine()
    made.take(A, Ihave(scope=Scope.REGION, heads=(Head(origin=ME, epoch=4, version=9),)))
    first = made.next_job()
    assert isinstance(first, Renew)
    later = first.epoch + (5 << 20)
    made.finish(first, JobResult(positions={(ME, Scope.REGION): Position(later, 1, 1)}))
    again = made.next_job()
    assert isinstance(again, Renew) and again.scope is Scope.REGION and again.epoch > later


def test_forgetting_goes_to_all_and_comes_first() -> None:
    made = engine({A: Position(6, 9)})
    assert made.forget(A) == 7
    assert made.out[-1][1] == ForgetOrigin(origin=A, epoch=7, hop=0)
    job = made.next_job()
    assert job == RaiseFence(A, 7)
    made.finish(job, JobResult(positions={(A, scope): Position(0, 0, 0, 7) for scope in Scope}))
    assert made.next_job() is None
    made.out.clear()
    made.take(B, ForgetOrigin(origin=A, epoch=7, hop=0))
    assert made.out == [] and made.next_job() is None


def test_a_fence_that_another_has_is_put_up_here() -> None:
    made = engine({A: Position(6, 9)})
    entry = VectorEntry(origin=A, epoch=0, applied=0, fence=7)
    made.take(B, Vector(scope=Scope.GLOBAL, buckets=(), entries=(entry,), back=False))
    assert made.next_job() == RaiseFence(A, 7)


def test_a_question_is_served_from_where_this_replica_is() -> None:
    made = engine({A: Position(5, 9)})
    made.take(B, pull(9))
    made.take(B, pull(3, epoch=6))
    assert made.next_job() is None
    made.take(B, pull(3))
    made.take(B, pull(3, epoch=4))
    jobs = [made.next_job(), made.next_job()]
    assert [job.wants[0].after for job in jobs if isinstance(job, Serve)] == [3, -1]
    assert all(job.max_bytes == MESSAGE_BYTES for job in jobs if isinstance(job, Serve))


def test_replica_in_a_reset_has_nothing_to_offer() -> None:
    made = engine({A: Position(5, -1)})
    made.take(B, pull(-1, epoch=4))
    assert made.next_job() is None


def test_an_answer_that_is_too_long_becomes_a_hint() -> None:
    made = engine({A: Position(5, 9)})
    made.take(B, pull(3))
    job = made.next_job()
    assert isinstance(job, Serve)
    long = tx(5, op(state="x" * MESSAGE_BYTES))
    cut = delta(-1, 4, reset=True, last=False, head=9)
    made.finish(job, JobResult(parts=PullAnswer(txs=(tx(4), long), deltas=(cut, delta(3, 9)), more=True)))
    heads = (Head(origin=A, epoch=5, version=5), Head(origin=A, epoch=5, version=9))
    assert [message for _, message in made.out] == [
        Txs(txs=(tx(4),)),
        DeltaPart(delta=delta(3, 9)),
        Bulk(scope=Scope.REGION, heads=heads),
    ]


def test_no_more_than_three_are_served_over_streams() -> None:
    made = engine({A: Position(5, 9)})
    numbers = [made.ask(B, pull(-1)) for _ in range(SERVED + 1)]
    assert made.answers == [(numbers[-1], None)]
    for _ in range(2 * WAITING):
        made.take(B, pull(-1))
    assert sum(isinstance(made.next_job(), Serve) for _ in range(3 * WAITING)) == WAITING


def test_a_question_with_no_answer_is_answered() -> None:
    made = engine()
    number = made.ask(B, pull(-1))
    assert made.answers == [(number, PullAnswer(txs=(), deltas=(), more=False))]


def test_only_a_pull_is_a_question() -> None:
    with pytest.raises(ValueError, match="pull"):
        engine().ask(B, Txs(txs=()))


def test_unreadable_message_is_counted() -> None:
    made = engine()
    made.receive(B, b"\xff\xff")
    made.take(B, PullAnswer(txs=(), deltas=(), more=False))
    assert made.refused == 2


def test_deletions_are_collected_in_time() -> None:
    clock = ManualClock()
    made = engine(clock=clock)
    assert made.next_job() is None
    clock.advance(60)
    assert made.next_job() == Collect(clock.now() - GRACE_S)
    assert made.next_job() is None


def test_a_token_is_reached_in_its_own_scope_or_when_the_owner_began_anew() -> None:
    made = engine()
    region, world = made.scopes[Scope.REGION], made.scopes[Scope.GLOBAL]
    region.moved(A, Position(6, 4))
    assert made.reached(Token(origin=A, epoch=6, version=4))
    assert not made.reached(Token(origin=A, epoch=6, version=5))
    assert not made.reached(Token(origin=A, epoch=5, version=1))
    world.moved(A, Position(7, 0))
    assert made.reached(Token(origin=A, epoch=5, version=1))
    assert not made.reached(Token(origin=A, epoch=8, version=1))


def test_missing_versions_are_counted() -> None:
    made = engine({A: Position(5, 2)})
    made.take(A, push(tx(6)))
    assert (made.gaps, made.queued) == (3, 1)


def test_lag_is_from_the_owners_commit_to_here() -> None:
    lag = ReplicationLag()
    assert lag.percentile(0.99) is None
    lag.note([delta(0, 1)], 50.0)
    assert lag.percentile(0.99) is None
    lag.note([tx(number, at=100.0 - number) for number in range(100)], 100.0)
    assert (lag.percentile(0.5), lag.percentile(0.99)) == (50.0, 99.0)


def test_an_owner_whose_clock_is_ahead_is_not_early() -> None:
    lag = ReplicationLag()
    lag.note([tx(1, at=500.0)], 100.0)
    assert lag.percentile(0.99) == 0.0


def test_stalled_engine_takes_nothing_in_and_only_answers() -> None:
    clock = ManualClock()
    made = engine({A: Position(5, 4)}, clock=clock)
    made.stalled = True
    made.take(A, push(tx(5)))
    made.take(A, Ihave(scope=Scope.REGION, heads=(Head(origin=A, epoch=5, version=9),)))
    clock.advance(GRACE_S)
    made.take(A, pull(2))
    assert (made.queued, made.gaps) == (0, 0)
    assert isinstance(made.next_job(), Serve) and made.next_job() is None
    assert made.tick() > clock.monotonic()
    made.stalled = False
    made.take(A, push(tx(5)))
    assert made.queued == 1
