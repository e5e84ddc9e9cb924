"""What a local transaction changed, as whole rows: SQLite's session extension notes the keys, net of what comes to
nothing (an update to the same values, an insert and a delete).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import apsw
import msgspec

from hawker.catalog.change import Op, Scope, Value
from hawker.catalog.rows import TableRows
from hawker.catalog.statements import StatementFailed
from hawker.ids import NodeId

ROW_BYTES = 1024 * 1024
OPS_LIMIT = 200_000
TX_BYTES = 32 * 1024 * 1024  # one answer over a stream has to hold it
_encode = msgspec.msgpack.Encoder().encode


class Capture:
    """Of one transaction. `ops` is there once the block has ended."""

    def __init__(self, connection: apsw.Connection, node: NodeId, rows: Mapping[str, TableRows]) -> None:
        self._connection, self._node, self._rows = connection, node, rows
        self.ops: dict[Scope, list[Op]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        session = apsw.Session(self._connection, "main")
        try:
            session.table_filter(self._rows.__contains__)
            session.attach()
            yield
            if not session.is_empty:
                self._take(session.changeset())
        finally:
            session.close()

    def _take(self, changeset: bytes) -> None:
        size = 0
        for count, change in enumerate(apsw.Changeset.iter(changeset), 1):
            if count > OPS_LIMIT:
                raise StatementFailed(f"the transaction changes more than {OPS_LIMIT} rows: make it several")
            rows = self._rows[change.name]
            op = self._op(rows, change)
            size += op_size(op)
            if size > TX_BYTES:
                raise StatementFailed(f"the rows of a transaction may have {TX_BYTES} bytes: make it several")
            self.ops.setdefault(rows.table.scope, []).append(op)

    def _op(self, rows: TableRows, change: apsw.TableChange) -> Op:
        table = rows.table
        values: Any = change.new if change.old is None else change.old
        key = tuple(values[place] for place in table.places)
        if key[0] != self._node:
            raise StatementFailed(
                f"{table.name}: a row of {key[0]!r}, which only its owner may change; this is {self._node}"
            )
        if change.op == "DELETE":
            return Op(table.name, key)
        whole = values if change.op == "INSERT" else rows.read(key)
        row = tuple([whole[place] for place in rows.others])
        if is_too_large(key, row):
            raise StatementFailed(f"{table.name}: a row may have {ROW_BYTES} bytes")
        return Op(table.name, key, table.columns, row)


def size_of(values: tuple[Value, ...]) -> int:
    """Bytes, about."""
    return 8 * len(values) + sum([_length(value) for value in values if isinstance(value, str | bytes)])


def is_too_large(key: tuple[Value, ...], row: tuple[Value, ...]) -> bool:
    """A row of which size is more than `ROW_BYTES`. Encoded, a value has an eighth of its size at least."""
    return len(_encode((key, row))) * 8 > ROW_BYTES and size_of(key) + size_of(row) > ROW_BYTES


def op_size(op: Op) -> int:
    """Bytes of a message that it takes."""
    return len(_encode(op))


def _length(value: str | bytes) -> int:
    return len(value) if isinstance(value, bytes) or value.isascii() else len(value.encode(errors="replace"))
