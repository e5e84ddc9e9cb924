from collections.abc import Mapping

from msgspec.structs import replace

from hawker.catalog.change import Position, Scope
from hawker.catalog.fan_out import RELAY_S, ReplicaPeer
from hawker.catalog.messages import (
    Bulk,
    DeltaPart,
    Digest,
    Head,
    Ihave,
    Message,
    PositionAnswer,
    PositionQuery,
    Pull,
    PullAnswer,
    Push,
    Txs,
    Vector,
    VectorEntry,
    rumor_of,
)
from hawker.catalog.replication import PUSH_BYTES, Replication
from hawker.clock import ManualClock
from hawker.ids import NodeId
from tests.catalog.kit import ME, A, B, C, delta, op, push, tx


class Table:
    """A core among peers, and what it has left to send."""

    def __init__(self, positions: Mapping[NodeId, Position] | None = None, *, proven: bool = True) -> None:
        self.clock = ManualClock()
        known = {ME: Position(5, 3)} if positions is None else positions
        self.core = Replication(ME, Scope.REGION, "mad", known, self.clock, proven=proven)
        for node in (A, B, C):
            self.core.peers.tell(ReplicaPeer(node, "mad", 0.01))

    def sent(self) -> list[tuple[tuple[NodeId, ...], Message]]:
        self.core.post()
        out = [*self.core.out]
        self.core.out.clear()
        return out

    def settle(self) -> None:
        for _ in range(12):
            self.core.tick()
            for to, message in self.sent():
                if isinstance(message, PositionQuery):
                    for node in to:
                        self.core.receive(
                            node, PositionAnswer(scope=Scope.REGION, entry=VectorEntry(origin=ME, epoch=5, applied=3))
                        )
            self.clock.advance(0.1)
        assert self.core.settled

    def after(self, seconds: float) -> list[tuple[tuple[NodeId, ...], Message]]:
        self.clock.advance(seconds)
        self.core.tick()
        return self.sent()


def of(kind: type[Message], sent: list[tuple[tuple[NodeId, ...], Message]]) -> list[tuple[tuple[NodeId, ...], Message]]:
    return [each for each in sent if isinstance(each[1], kind)]


def test_in_a_small_fleet_a_commit_goes_to_all_at_once() -> None:
    table = Table()
    table.core.committed(tx(4, op(origin=ME), origin=ME))
    assert table.sent() == [((A, B, C), push(tx(4, op(origin=ME), origin=ME)))]
    assert table.core.vector.get(ME) == Position(5, 4)


def test_news_is_passed_on_to_one_more_after_a_moment() -> None:
    table = Table()
    table.core.receive(A, push(tx(1), tx(2)))
    table.core.receive(B, push(tx(1), hop=1))
    assert table.sent() == []
    ((to, message),) = of(Push, table.after(RELAY_S))
    assert to in ((B,), (C,)) and message == push(tx(1), tx(2), hop=1)


def test_where_others_are_far_news_is_passed_on_at_once_and_not_to_who_has_it() -> None:
    table = Table()
    table.core.peers.tell(ReplicaPeer(C, "ams", 0.01))
    table.core.receive(B, push(tx(1)))
    assert table.sent() == [((C,), push(tx(1), hop=1))]
    table.core.receive(C, push(tx(1)))
    assert of(Push, table.after(1.0)) == []


def test_a_rumor_that_is_no_transaction_or_another_one_is_dropped() -> None:
    table = Table()
    for body in (b"", b"\xc1", rumor_of(tx(2)).body):
        table.core.receive(B, Push(scope=Scope.REGION, rumors=(replace(rumor_of(tx(1)), body=body),)))
    assert table.core.refused == 3 and not table.core.inbound.ready
    table.core.receive(B, push(tx(1)))
    assert len(table.core.inbound.ready) == 1


def test_a_rumor_ends() -> None:
    table = Table()
    table.core.receive(B, push(tx(1), hop=16))
    assert table.sent() == [] and len(table.core.inbound.ready) == 1


def test_long_transaction_is_announced_and_pulled() -> None:
    table = Table()
    table.core.committed(tx(4, op(state="x" * PUSH_BYTES, origin=ME), origin=ME))
    ((_, message),) = table.sent()
    assert message == Ihave(scope=Scope.REGION, heads=(Head(origin=ME, epoch=5, version=4),))
    reader = Table()
    reader.core.receive(A, Ihave(scope=Scope.REGION, heads=(Head(origin=A, epoch=5, version=4),)))
    assert reader.sent() == []
    ((to, pull),) = of(Pull, reader.after(0.05))
    assert to == (A,) and isinstance(pull, Pull) and pull.wants[0].origin == A


def test_a_hole_is_pulled_after_a_moment_unless_it_was_filled() -> None:
    table = Table({ME: Position(5, 3), A: Position(5, 1)})
    table.core.receive(B, push(tx(3)))
    table.sent()
    assert of(Pull, table.after(0.02)) == []
    assert [to for to, _ in of(Pull, table.after(0.02))] == [(B,)]
    table.core.receive(B, Txs(txs=(tx(2),)))
    assert table.sent() == [] and len(table.core.pulls) == 0


def test_two_that_differ_tell_each_other_what_they_have() -> None:
    one, other = Table({ME: Position(5, 3), A: Position(5, 9)}), Table({ME: Position(5, 3), A: Position(5, 4)})
    one.core.receive(B, Digest(scope=Scope.REGION, digest=other.core.vector.digest()))
    ((_, vector),) = one.sent()
    assert isinstance(vector, Vector) and vector.back
    other.core.receive(C, vector)
    ((_, back),) = other.sent()
    assert isinstance(back, Vector) and not back.back
    assert A in other.core.pulls
    one.core.receive(B, back)
    assert A not in one.core.pulls and one.sent() == []


def test_two_that_agree_say_nothing() -> None:
    table = Table()
    table.core.receive(B, Digest(scope=Scope.REGION, digest=table.core.vector.digest()))
    assert table.sent() == []


def test_a_node_that_proves_nothing_begins_again_at_once() -> None:
    table = Table(proven=False)
    assert not table.core.settled and table.core.renew_above == 5
    table.core.moved(ME, Position(9, 1, 1))
    assert table.core.settled
    assert of(Ihave, table.sent())


def test_a_node_goes_on_once_all_peers_know_no_more() -> None:
    table = Table()
    assert not table.core.settled
    table.settle()
    assert table.core.renew_above is None


def test_a_peer_that_knows_more_makes_it_begin_again() -> None:
    for entry in (
        VectorEntry(origin=ME, epoch=5, applied=4),
        VectorEntry(origin=ME, epoch=6, applied=0),
        VectorEntry(origin=ME, epoch=0, applied=0, fence=7),
    ):
        table = Table()
        table.core.receive(B, PositionAnswer(scope=Scope.REGION, entry=entry))
        if entry.fence > 0:
            table.core.moved(ME, Position(5, 3, 0, 7))
        assert table.core.renew_above == max(entry.epoch, entry.fence, 5)


def test_without_answers_it_begins_again_to_be_sure() -> None:
    table = Table()
    for _ in range(60):
        table.after(0.1)
    assert table.core.renew_above == 5


def test_an_echo_from_the_future_makes_it_begin_again() -> None:
    table = Table()
    table.settle()
    table.core.receive(B, push(tx(9, origin=ME)))
    assert table.core.renew_above == 5 and not table.core.settled


def test_stream_too_long_for_a_message_is_pulled_over_a_connection() -> None:
    table = Table()
    table.core.receive(B, Bulk(scope=Scope.REGION, heads=(Head(origin=A, epoch=5, version=9),)))
    table.after(0.0)
    ((whom, pull),) = table.core.questions
    assert whom == B and pull.wants[0].origin == A
    table.core.answered(B, PullAnswer(txs=(), deltas=(delta(-1, 9, reset=True),), more=False))
    assert len(table.core.inbound.ready) == 1 and A not in table.core.pulls


def test_a_question_that_nobody_answered_goes_to_another() -> None:
    table = Table()
    table.core.receive(B, Bulk(scope=Scope.REGION, heads=(Head(origin=A, epoch=5, version=9),)))
    table.after(0.0)
    table.core.questions.clear()
    table.core.answered(B, None)
    table.after(0.1)
    assert len(table.core.questions) == 1


def test_a_fresh_node_asks_for_all_in_one_question() -> None:
    table = Table({})
    entries = tuple(VectorEntry(origin=NodeId(f"{number:08x}"), epoch=5, applied=2) for number in range(1, 40))
    table.core.receive(B, Vector(scope=Scope.REGION, buckets=(), entries=entries, back=False))
    assert of(Pull, table.after(0.1)) == []
    ((_, pull),) = table.core.questions
    assert len(pull.wants) == 39


def test_new_position_is_announced_four_times() -> None:
    table = Table()
    table.core.receive(B, DeltaPart(delta=delta(-1, 3, reset=True)))
    table.core.inbound.applied([A])
    table.core.moved(A, Position(5, 3))
    told = [to for _ in range(10) for to, _ in of(Ihave, table.after(0.2))]
    assert len(told) == 4


def test_another_scopes_changes_are_not_taken() -> None:
    table = Table()
    other = tx(1)
    table.core.scope = Scope.GLOBAL
    table.core.receive(B, push(other))
    table.core.receive(B, DeltaPart(delta=delta(-1, 3, reset=True)))
    assert not table.core.inbound.ready


def test_transaction_held_for_a_hole_that_nobody_can_fill_is_dropped() -> None:
    table = Table({ME: Position(5, 3), A: Position(5, 1)})
    table.core.receive(B, push(tx(3)))
    for _ in range(40):
        table.after(1.0)
    assert len(table.core.inbound.reorder_buffer) == 0 and len(table.core.pulls) == 0
