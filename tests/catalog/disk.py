"""Catalogs on disk for tests: a node's storage, ready to be written, and statements on one small table."""

from pathlib import Path

from hawker.catalog.change import Delta, Op, ReplicatedTx, Scope, Value
from hawker.catalog.contract import Statement
from hawker.catalog.storage import SqliteStorage
from hawker.clock import Clock, ManualClock
from hawker.ids import NodeId

A, B, C = NodeId("aaaaaaaa"), NodeId("bbbbbbbb"), NodeId("cccccccc")
EPOCH = 3
THINGS = (
    "CREATE TABLE things (node TEXT NOT NULL, id INTEGER NOT NULL, size INTEGER, PRIMARY KEY (node, id)) WITHOUT ROWID;"
)


def opened(
    folder: Path, node: NodeId = A, *schemas: str, clock: Clock | None = None, boot: str = "boot"
) -> SqliteStorage:
    """The file of that node in the folder, its streams renewed where it is not proven."""
    made = SqliteStorage(folder / f"{node}.db", node, clock or ManualClock(), schemas or (THINGS,), boot=lambda: boot)
    if not made.proven():
        for scope in Scope:
            made.renew(scope, EPOCH)
    return made


def put(number: int, size: Value, node: NodeId = A) -> Statement:
    text = "INSERT INTO things (node, id, size) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET size = excluded.size"
    return Statement(query=text, params=(node, number, size))


def gone(number: int, node: NodeId = A) -> Statement:
    return Statement(query="DELETE FROM things WHERE node = ? AND id = ?", params=(node, number))


def said(storage: SqliteStorage, *statements: Statement) -> ReplicatedTx:
    """What the node publishes of one transaction that changes one scope."""
    (tx,) = storage.commit(statements, 1.0).txs
    return tx


def thing(number: int, size: Value, node: NodeId = A) -> Op:
    return Op("things", (node, number), ("size",), (size,))


def tx(version: int, *ops: Op, node: NodeId = A, epoch: int = EPOCH, scope: Scope = Scope.REGION) -> ReplicatedTx:
    return ReplicatedTx(node, scope, epoch, version, 1.0, ops)


def rows(storage: SqliteStorage, text: str = "SELECT * FROM things ORDER BY 1, 2") -> list[tuple[Value, ...]]:
    return [*storage.query(Statement(query=text)).rows]


def whole(storage: SqliteStorage, node: NodeId = A, after: int = -1) -> Delta:
    return storage.delta(node, Scope.REGION, after, 1 << 30)
