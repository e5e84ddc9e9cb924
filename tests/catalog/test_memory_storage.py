import pytest

from hawker.catalog.change import Op, Scope
from hawker.catalog.contract import Statement
from hawker.catalog.memory_storage import DiskImage, MemoryStorage, MemoryTable, remove, touched, upsert
from hawker.clock import ManualClock
from hawker.errors import BadRequest
from tests.catalog.kit import ME, A, op, tx

SCHEMA = {"machines": MemoryTable(Scope.REGION, ("node", "id"), ("state",))}


def storage(image: DiskImage | None = None, log_txs: int = 1000) -> MemoryStorage:
    return MemoryStorage(
        ME, SCHEMA, ManualClock(), image=image, log_txs=log_txs, refuses=lambda op: "odd" in (op.row or ())
    )


def renewed(made: MemoryStorage) -> MemoryStorage:
    for scope in Scope:
        made.renew(scope, 5)
    return made


def test_a_fresh_one_proves_nothing_and_one_that_was_closed_does() -> None:
    made = storage()
    assert not made.proven()
    made.renew(Scope.REGION, 5)
    assert not made.proven()
    made.renew(Scope.GLOBAL, 5)
    assert made.proven()
    made.close()
    assert storage(made.image).proven()


def test_one_that_was_not_closed_proves_nothing() -> None:
    assert not storage(renewed(storage()).image.copy()).proven()


def test_a_bad_row_is_not_shown_and_is_told_to_others() -> None:
    made = renewed(storage())
    outcome = made.apply([tx(1, op("1", "odd"), op("2"))])
    assert outcome.unknown == 1
    assert made.rows(A) == {("machines", (A, "2")): ("started",)}
    assert {each.op.key[1] for each in made.delta(A, Scope.REGION, -1, 1000).ops} == {"1", "2"}


def test_the_log_keeps_so_many() -> None:
    made = renewed(storage(log_txs=1))
    made.apply([tx(1), tx(2)])
    assert made.replay(A, Scope.REGION, 0, 1000) == []
    assert made.replay(A, Scope.REGION, 1, 1000) == [tx(2)]


@pytest.mark.parametrize(
    "text", ["SELECT 1", "INSERT OR REPLACE INTO other (node) VALUES (?)", "DELETE FROM machines WHERE node = ?"]
)
def test_only_its_two_statements_are_understood(text: str) -> None:
    with pytest.raises(BadRequest):
        renewed(storage()).commit([Statement(query=text, params=("x",))], 1.0)


def test_statements_are_made_for_it() -> None:
    made = renewed(storage())
    made.commit([upsert("machines", {"node": ME, "id": "1", "state": "x"})], 1.0)
    assert made.query(Statement(query="SELECT * FROM machines")).rows == ((ME, "1", "x"),)
    made.commit([remove("machines", {"node": ME, "id": "1"})], 1.0)
    assert made.query(Statement(query="SELECT * FROM machines")).rows == ()


def test_touched_keys_are_told_by_table() -> None:
    found = touched({("machines", (A, "1")), ("machines", (A, "2")), ("nodes", (A,))})
    assert found.tables == {"machines": frozenset({(A, "1"), (A, "2")}), "nodes": frozenset({(A,)})}
    assert Op("machines", (A, "1")).row is None
