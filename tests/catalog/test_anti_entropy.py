import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.catalog.anti_entropy import BUCKETS, EVERY_S, Rounds, VersionVector, bucket_of
from hawker.catalog.change import Position
from hawker.catalog.fan_out import ReplicaPeer, ReplicaPeers
from hawker.clock import ManualClock
from hawker.ids import NodeId
from tests.catalog.kit import A, B

nodes = st.integers(0, 20).map(lambda number: NodeId(f"{number:08x}"))
positions = st.builds(Position, epoch=st.integers(0, 3), applied=st.integers(-1, 3), fence=st.integers(-1, 2))


@given(st.lists(st.tuples(nodes, positions)))
def test_the_digest_kept_is_the_digest_made_anew(steps: list[tuple[NodeId, Position]]) -> None:
    kept = VersionVector({})
    for origin, position in steps:
        kept.set(origin, position)
    assert kept.digest() == VersionVector(dict(kept.items())).digest()
    assert kept.differing(VersionVector(dict(steps)).digest()) == ()


def test_digest_differs_in_the_bucket_of_the_stream_that_differs() -> None:
    one, other = VersionVector({A: Position(1, 4), B: Position(1, 1)}), VersionVector({A: Position(1, 5)})
    assert set(one.differing(other.digest())) == {bucket_of(A), bucket_of(B)}
    assert (A, Position(1, 4)) in list(one.within([bucket_of(A)]))


def test_steps_of_two_streams_do_not_cancel_out() -> None:
    pairs = [(NodeId(f"{n:08x}"), NodeId(f"{n + 1:08x}")) for n in range(0, 400, 2)]
    for one, other in pairs:
        left = VersionVector({one: Position(1, 2), other: Position(1, 1)})
        assert left.differing(VersionVector({one: Position(1, 1), other: Position(1, 2)}).digest())


def test_the_floor_is_each_replicas_own_affair() -> None:
    assert VersionVector({A: Position(1, 5, 3)}).digest() == VersionVector({A: Position(1, 5, 0)}).digest()


def test_stream_never_heard_of_does_not_change_the_digest() -> None:
    assert VersionVector({A: Position()}).digest() == VersionVector({}).digest()
    assert VersionVector({}).get(A) == Position()


def test_a_digest_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=str(BUCKETS * 4)):
        VersionVector({}).differing(b"short")


def test_every_fourth_round_goes_to_another_region() -> None:
    peers, clock = ReplicaPeers("mad"), ManualClock()
    peers.tell(ReplicaPeer(A, "mad", 0.0))
    peers.tell(ReplicaPeer(B, "ams", 0.0))
    rounds = Rounds(0.0, clock.random)
    assert [rounds.next(0.0, peers) for _ in range(8)] == [A, A, A, B, A, A, A, B]


def test_node_alone_in_its_region_compares_with_other_regions() -> None:
    peers = ReplicaPeers("mad")
    rounds = Rounds(0.0, ManualClock().random)
    assert rounds.next(0.0, peers) is None
    peers.tell(ReplicaPeer(B, "ams", 0.0))
    assert rounds.next(0.0, peers) == B


def test_rounds_are_two_seconds_apart_give_or_take_a_fifth() -> None:
    rounds = Rounds(0.0, ManualClock().random)
    for _ in range(100):
        rounds.next(50.0, ReplicaPeers("mad"))
        assert 0.8 * EVERY_S <= rounds.due - 50.0 <= 1.2 * EVERY_S
