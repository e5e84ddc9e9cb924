from collections import deque

from hawker.catalog.change import Delta, Op, Position, ReplicatedTx, Scope
from hawker.catalog.jobs import (
    FEWEST,
    SLICE_S,
    Apply,
    ApplySlices,
    Collect,
    JobResult,
    RaiseFence,
    Renew,
    Serve,
    cut,
    perform,
)
from hawker.catalog.memory_storage import MemoryStorage, MemoryTable, remove, upsert
from hawker.catalog.messages import Want
from hawker.clock import ManualClock
from tests.catalog.kit import ME, A, B, delta, op, tx

SCHEMA = {"machines": MemoryTable(Scope.REGION, ("node", "id"), ("state",))}


def storage() -> MemoryStorage:
    made = MemoryStorage(ME, SCHEMA, ManualClock())
    for scope in Scope:
        perform(made, Renew(ME, scope, 5))
    return made


def serve(made: MemoryStorage, *wants: Want, most: int = 1 << 20) -> JobResult:
    return perform(made, Serve(B, Scope.REGION, wants, most))


def want(after: int, since: int = -1) -> Want:
    return Want(origin=A, epoch=5, after=after, since=since)


def test_a_batch_is_applied() -> None:
    made = storage()
    done = perform(made, Apply([tx(1), tx(2)]))
    assert done.positions == {(A, Scope.REGION): Position(5, 2)} and done.outcome is not None


def test_the_log_answers_while_it_can_and_a_delta_else() -> None:
    made = storage()
    perform(made, Apply([tx(1), tx(2)]))
    parts = serve(made, want(1)).parts
    assert parts is not None and (parts.txs, parts.deltas, parts.more) == ((tx(2),), (), False)
    parts = serve(made, want(-1)).parts
    assert parts is not None and parts.txs == () and parts.deltas[0].reset


def test_a_reset_that_is_under_way_is_never_answered_from_the_log() -> None:
    made = storage()
    perform(made, Apply([tx(1), tx(2)]))
    parts = serve(made, want(1, since=2)).parts
    assert parts is not None and parts.txs == () and parts.deltas[0].after == 1


def test_an_answer_that_is_too_long_says_that_there_is_more() -> None:
    made = storage()
    perform(made, Apply([delta(-1, 9, reset=True)]))
    parts = serve(made, want(-1), want(-1), most=20).parts
    assert parts is not None and parts.more and len(parts.deltas) == 1
    assert isinstance(parts.deltas[0], Delta) and not parts.deltas[0].last


def test_fences_and_collections_reach_the_storage() -> None:
    made = storage()
    perform(made, Apply([tx(1)]))
    done = perform(made, RaiseFence(A, 5))
    assert done.positions[A, Scope.REGION] == Position(0, 0, 0, 5)
    made.commit([upsert("machines", {"node": ME, "id": "1", "state": "x"})], 1.0)
    made.commit([remove("machines", {"node": ME, "id": "1"})], 1.0)
    perform(made, Collect(ManualClock().now() + 1))
    assert made.positions(Scope.REGION)[ME].floor == 2


def test_a_slice_has_so_many_ops_and_never_part_of_a_transaction() -> None:
    slices, long = ApplySlices(ops=3), tx(2, *[op(str(number)) for number in range(9)])
    ready: deque[ReplicatedTx | Delta] = deque([tx(1), long, tx(1, origin=B)])
    assert slices.take(ready) == ([tx(1), long], [A, A])
    assert slices.take(ready) == ([tx(1, origin=B)], [B])


def test_a_long_delta_is_cut_between_versions() -> None:
    slices = ApplySlices(ops=2)
    whole = delta(0, 5)
    ready: deque[ReplicatedTx | Delta] = deque([whole, tx(6)])
    (first,), ended = slices.take(ready)
    assert isinstance(first, Delta) and (first.after, first.upto, first.last, ended) == (0, 2, False, [])
    (second,), _ = slices.take(ready)
    assert isinstance(second, Delta) and (second.after, second.upto, second.head) == (2, 4, 5)
    batch, ended = slices.take(ready)
    assert isinstance(batch[0], Delta) and batch[0].last and ended == [A, A]
    assert first.ops + second.ops + batch[0].ops == whole.ops


def test_a_version_is_never_cut() -> None:
    ops: tuple[Op, ...] = tuple(op(str(number)) for number in range(4))
    one = delta(0, 1)
    wide = type(one)(A, one.scope, 5, False, 0, 1, 0, tuple(type(one.ops[0])(1, each) for each in ops), True, 1)
    assert cut(wide, 2) == (wide, None)


def test_slices_learn_from_what_they_took() -> None:
    slices = ApplySlices()
    for _ in range(20):
        slices.took(slices.ops, 2 * SLICE_S)
    assert slices.ops == FEWEST
    slices.took(slices.ops, SLICE_S / 10)
    assert slices.ops == 2 * FEWEST
    slices.took(1, SLICE_S / 10)
    assert slices.ops == 2 * FEWEST
