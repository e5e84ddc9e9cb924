from hawker.catalog.change import Delta, Position, Scope
from hawker.catalog.jobs import Apply, Collect, Done, Fence, Renew, Serve, perform
from hawker.catalog.memory_storage import Layout, MemoryStorage, remove, upsert
from hawker.catalog.messages import Want
from hawker.clock import ManualClock
from tests.catalog.kit import ME, A, B, delta, tx

SCHEMA = {"machines": Layout(Scope.REGION, ("node", "id"), ("state",))}


def storage() -> MemoryStorage:
    made = MemoryStorage(ME, SCHEMA, ManualClock())
    for scope in Scope:
        perform(made, Renew(ME, scope, 5))
    return made


def serve(made: MemoryStorage, *wants: Want, most: int = 1 << 20) -> Done:
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
    done = perform(made, Fence(A, 5))
    assert done.positions[A, Scope.REGION] == Position(0, 0, 0, 5)
    made.commit([upsert("machines", {"node": ME, "id": "1", "state": "x"})], 1.0)
    made.commit([remove("machines", {"node": ME, "id": "1"})], 1.0)
    perform(made, Collect(ManualClock().now() + 1))
    assert made.positions(Scope.REGION)[ME].floor == 2
