"""What `contract.Storage` promises, held against the storage on disk and the one in memory."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from hawker.catalog.change import Delta, Op, Position, ReplicatedTx, Scope, VersionedOp
from hawker.catalog.contract import Committed, Statement, Storage
from hawker.catalog.memory_storage import MemoryStorage, MemoryTable, remove, upsert
from hawker.catalog.storage import SqliteStorage
from hawker.clock import ManualClock
from hawker.errors import BadRequest
from hawker.ids import NodeId

A, B = NodeId("aaaaaaaa"), NodeId("bbbbbbbb")
SCHEMA = {
    "machines": MemoryTable(Scope.REGION, ("node", "id"), ("state",)),
    "revoked_tokens": MemoryTable(Scope.GLOBAL, ("node", "token_id"), ("note",)),
}
MOST = 1 << 20
EPOCH = 5

Open = Callable[[NodeId], Storage]


@pytest.fixture(params=["memory", "sqlite"])
def open_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    opened: list[Storage] = []

    def open_one(node: NodeId) -> Storage:
        made: Storage = (
            MemoryStorage(node, SCHEMA, ManualClock())
            if request.param == "memory"
            else SqliteStorage(tmp_path / f"{node}.db", node, ManualClock())
        )
        opened.append(made)
        for scope in Scope:
            made.renew(scope, EPOCH)
        return made

    yield open_one
    for storage in opened:
        storage.close()


def put(key: str, state: str, node: NodeId = A) -> Statement:
    return upsert("machines", {"node": node, "id": key, "state": state})


def gone(key: str, node: NodeId = A) -> Statement:
    return remove("machines", {"node": node, "id": key})


def said(storage: Storage, *statements: Statement) -> ReplicatedTx:
    (tx,) = storage.commit(statements, 1.0).txs
    return tx


def at(storage: Storage, origin: NodeId = A) -> Position:
    return storage.positions(Scope.REGION).get(origin, Position())


def states(storage: Storage) -> dict[object, object]:
    table = storage.query(Statement(query="SELECT * FROM machines"))
    key, state = table.columns.index("id"), table.columns.index("state")
    return {row[key]: row[state] for row in table.rows}


def made_up(version: int, *ops: Op, epoch: int = EPOCH) -> ReplicatedTx:
    return ReplicatedTx(A, Scope.REGION, epoch, version, 1.0, ops)


def started(key: str = "1", state: str = "started") -> Op:
    return Op("machines", (A, key), ("state",), (state,))


def feed(storage: Storage, batch: Sequence[ReplicatedTx | Delta]) -> Position:
    return storage.apply(batch).positions.get((A, Scope.REGION), Position())


def test_a_transaction_has_the_next_version_and_its_rows(open_storage: Open) -> None:
    storage = open_storage(A)
    first, second = said(storage, put("1", "started")), said(storage, put("1", "stopped"), put("2", "started"))
    assert [(tx.epoch, tx.version) for tx in (first, second)] == [(EPOCH, 1), (EPOCH, 2)]
    assert {op.key for op in second.ops} == {(A, "1"), (A, "2")}
    assert at(storage) == Position(EPOCH, 2)
    assert states(storage) == {"1": "stopped", "2": "started"}


def test_transaction_that_changes_nothing_is_not_published(open_storage: Open) -> None:
    storage = open_storage(A)
    said(storage, put("1", "started"))
    nothing: Committed = storage.commit([put("1", "started"), gone("9")], 1.0)
    assert nothing.txs == () and nothing.token is None
    assert at(storage).applied == 1


def test_each_scope_has_its_own_stream(open_storage: Open) -> None:
    storage = open_storage(A)
    both = storage.commit(
        [put("1", "started"), upsert("revoked_tokens", {"node": A, "token_id": "t", "note": "n"})], 1.0
    )
    assert {tx.scope for tx in both.txs} == set(Scope)
    assert both.token is not None and both.token.version == 1


def test_another_nodes_row_cannot_be_written(open_storage: Open) -> None:
    storage = open_storage(A)
    with pytest.raises(BadRequest):
        storage.commit([put("1", "started", node=B)], 1.0)
    assert at(storage).applied == 0


def test_transactions_are_applied_in_their_order_only(open_storage: Open) -> None:
    owner, reader = open_storage(A), open_storage(B)
    txs = [said(owner, put("1", f"state {number}")) for number in range(4)]
    assert feed(reader, [txs[1]]) == Position()
    assert feed(reader, [txs[0], txs[2]]) == Position(EPOCH, 1)
    assert feed(reader, [txs[0], txs[1], txs[1], txs[2], txs[3]]) == Position(EPOCH, 4)
    assert states(reader) == {"1": "state 3"}


def test_the_log_gives_transactions_as_they_were(open_storage: Open) -> None:
    owner, reader = open_storage(A), open_storage(B)
    txs = [said(owner, put("1", f"state {number}")) for number in range(4)]
    feed(reader, txs)
    for storage in (owner, reader):
        assert list(storage.replay(A, Scope.REGION, 1, MOST)) == txs[1:]
        assert list(storage.replay(A, Scope.REGION, 1, 1)) == txs[1:2]
        assert list(storage.replay(A, Scope.REGION, 4, MOST)) == []


def test_a_delta_has_the_last_of_each_row_and_what_went(open_storage: Open) -> None:
    owner, reader = open_storage(A), open_storage(B)
    first = said(owner, put("1", "started"), put("2", "started"))
    feed(reader, [first])
    for statement in (put("1", "stopped"), gone("2"), put("1", "destroyed"), put("3", "created")):
        said(owner, statement)
    delta = owner.delta(A, Scope.REGION, 1, MOST)
    assert (delta.reset, delta.after, delta.upto, delta.head, delta.last) == (False, 1, 5, 5, True)
    assert [(each.version, each.op.key[1]) for each in delta.ops] == [(3, "2"), (4, "1"), (5, "3")]
    assert feed(reader, [delta]) == Position(EPOCH, 5)
    assert states(reader) == states(owner)


def test_a_delta_goes_over_what_the_reader_has_meanwhile(open_storage: Open) -> None:
    owner, reader = open_storage(A), open_storage(B)
    txs = [said(owner, put(str(number), "started")) for number in range(4)]
    delta = owner.delta(A, Scope.REGION, 0, MOST)
    whole = owner.delta(A, Scope.REGION, -1, MOST)
    assert feed(reader, [whole]) == Position(EPOCH, 4)
    late = said(owner, gone("0"))
    feed(reader, [late])
    assert feed(reader, [delta, whole, *txs]) == Position(EPOCH, 5)
    assert states(reader) == states(owner)


def test_a_long_delta_comes_in_parts_between_versions(open_storage: Open) -> None:
    owner, reader = open_storage(A), open_storage(B)
    for number in range(5):
        said(owner, put(f"{number}a", "started"), put(f"{number}b", "started"))
    feed(reader, list(owner.replay(A, Scope.REGION, 0, 1)))
    after = 1
    while after < 5:
        part = owner.delta(A, Scope.REGION, after, 1)
        assert part.after == after < part.upto and len(part.ops) == 2 * (part.upto - after)
        assert part.last == (part.upto == 5)
        after = feed(reader, [part]).applied
        assert after == part.upto
    assert states(reader) == states(owner)


def test_a_reset_sweeps_what_it_does_not_name(open_storage: Open) -> None:
    owner, reader = open_storage(A), open_storage(B)
    feed(reader, [made_up(1, started("old"), epoch=EPOCH - 1)])
    said(owner, put("1", "started"))
    outcome = reader.apply([owner.delta(A, Scope.REGION, -1, MOST)])
    assert outcome.positions[A, Scope.REGION] == Position(EPOCH, 1)
    assert states(reader) == {"1": "started"}
    assert outcome.touched.everything or (A, "old") in outcome.touched.tables["machines"]


def test_a_reset_in_parts_is_at_no_version_until_its_end(open_storage: Open) -> None:
    owner, reader = open_storage(A), open_storage(B)
    feed(reader, [made_up(1, started("old"), epoch=EPOCH - 1)])
    for number in range(4):
        said(owner, put(str(number), "started"))
    part = owner.delta(A, Scope.REGION, -1, 1)
    head = part.head
    assert head == 4 and not part.last
    while not part.last:
        assert feed(reader, [part]).applied == -1
        assert feed(reader, [made_up(5, started())]).applied == -1
        if part.upto == 2:
            said(owner, gone("0"))
        part = owner.delta(A, Scope.REGION, part.upto, 1, since=head)
        assert part.reset
    assert feed(reader, [part]) == at(owner)
    assert states(reader) == states(owner) == {"1": "started", "2": "started", "3": "started"}


def test_a_reset_begins_again_when_deletions_are_lost_meanwhile(open_storage: Open) -> None:
    owner = open_storage(A)
    for number in range(4):
        said(owner, put(str(number), "started"))
    part = owner.delta(A, Scope.REGION, -1, 1)
    said(owner, gone("0"))
    owner.collect(ManualClock().now() + 1)
    assert at(owner).floor == 5
    assert owner.delta(A, Scope.REGION, part.upto, MOST, since=part.head).after == -1


def test_reader_below_the_floor_gets_a_reset(open_storage: Open) -> None:
    owner = open_storage(A)
    said(owner, put("1", "started"))
    said(owner, gone("1"))
    said(owner, put("2", "started"))
    assert owner.collect(ManualClock().now() - 1) == 0
    assert owner.collect(ManualClock().now() + 1) == 1
    assert at(owner).floor == 2
    assert list(owner.replay(A, Scope.REGION, 0, MOST)) == []
    assert owner.delta(A, Scope.REGION, 1, MOST).reset
    assert not owner.delta(A, Scope.REGION, 2, MOST).reset


def test_the_past_is_passed_over(open_storage: Open) -> None:
    reader = open_storage(B)
    feed(reader, [made_up(1, started(), epoch=7), made_up(2, started("2"), epoch=7)])
    old = Delta(A, Scope.REGION, 6, True, -1, 9, 0, (VersionedOp(9, started("9")),), True, 9)
    back = Delta(A, Scope.REGION, 7, True, -1, 1, 0, (VersionedOp(1, started("9")),), True, 1)
    assert feed(reader, [made_up(3, started("9"), epoch=6), old, back]) == Position(7, 2)
    assert states(reader) == {"1": "started", "2": "started"}


def test_a_fence_takes_the_rows_and_bars_the_epochs(open_storage: Open) -> None:
    reader = open_storage(B)
    feed(reader, [made_up(1, started())])
    reader.fence(A, EPOCH)
    assert at(reader, A) == Position(0, 0, 0, EPOCH)
    assert states(reader) == {}
    assert feed(reader, [made_up(1, started()), made_up(2, started())]).applied == 0
    assert feed(reader, [made_up(1, started("new"), epoch=EPOCH + 1)]) == Position(EPOCH + 1, 1, 0, EPOCH)
    reader.fence(A, EPOCH - 1)
    assert at(reader, A).fence == EPOCH
    assert states(reader) == {"new": "started"}


def test_a_fence_leaves_this_nodes_own_rows(open_storage: Open) -> None:
    storage = open_storage(A)
    said(storage, put("1", "started"))
    storage.fence(A, EPOCH)
    assert states(storage) == {"1": "started"}
    assert at(storage) == Position(EPOCH, 1, 0, EPOCH)


def test_a_renewed_stream_says_all_that_is_there_again(open_storage: Open) -> None:
    owner, reader = open_storage(A), open_storage(B)
    for number in range(300):
        said(owner, put(str(number), "started"))
    said(owner, gone("7"))
    renewed = owner.renew(Scope.REGION, 9)
    assert renewed == Position(9, renewed.applied, renewed.applied)
    assert feed(reader, [owner.delta(A, Scope.REGION, -1, MOST)]) == renewed
    assert states(reader) == states(owner)
    assert len(states(owner)) == 299


def test_row_of_an_unknown_table_is_kept_for_other_readers(open_storage: Open) -> None:
    reader, further = open_storage(B), open_storage(NodeId("cccccccc"))
    stranger, wider = Op("strangers", (A, "1"), ("x",), (1,)), Op("machines", (A, "2"), ("hue",), ("red",))
    outcome = reader.apply([made_up(1, stranger, wider, started())])
    assert outcome.unknown == 2 and outcome.positions[A, Scope.REGION].applied == 1
    assert states(reader)["1"] == "started"
    delta = reader.delta(A, Scope.REGION, -1, MOST)
    assert {each.op for each in delta.ops} >= {stranger, wider}
    assert feed(further, [delta]).applied == 1


def test_a_row_of_another_owner_is_set_aside_and_holds_nothing_up(open_storage: Open) -> None:
    reader = open_storage(B)
    outcome = reader.apply([made_up(1, Op("machines", (B, "1"), ("state",), ("mine",))), made_up(2, started())])
    assert outcome.unknown + outcome.quarantined == 1
    assert outcome.positions[A, Scope.REGION].applied == 2
    assert states(reader) == {"1": "started"}


def test_only_reading_statements_are_queries(open_storage: Open) -> None:
    with pytest.raises(BadRequest):
        open_storage(A).query(Statement(query="DELETE FROM machines"))
