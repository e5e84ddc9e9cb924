"""Rows that this replica cannot place: of tables and columns that it does not know, kept until a schema knows them, and
bad ones, kept so that they can be looked at. Both go on to other readers as they came.
"""

from collections.abc import Iterator
from typing import Any

import apsw
import msgspec

from hawker.catalog.change import Op, Value

REASON_LENGTH = 200


class QuarantinedOp(msgspec.Struct, frozen=True, kw_only=True):
    stream: int
    version: int
    run: int
    op: Op
    payload_bytes: int


class QuarantineTable:
    """One of the two tables, `__c_unknown` or `__c_quarantine`; they differ by the reason that the second one has."""

    def __init__(self, connection: apsw.Connection, table: str) -> None:
        self._connection, self._table = connection, table
        self._encoder, self._decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Op)
        columns = "stream, tbl, key, ver, run, del, payload"
        self._put = f"INSERT OR REPLACE INTO {table} ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)"
        self._get = f"SELECT ver, run, payload FROM {table} WHERE stream = ? AND ver > ? ORDER BY ver"
        self.count = 0  # at least as many as there are
        self.load()

    def load(self) -> None:
        self.count = self._connection.execute(f"SELECT count(*) FROM {self._table}").get

    def put(self, stream: int, version: int, run: int, op: Op, now: float) -> bytes:
        """Returns the key as it is stored."""
        key = key_of(op.key)
        died = max(1, int(now)) if op.row is None else 0
        self._connection.execute(self._put, (stream, op.table, key, version, run, died, self._encoder.encode(op)))
        self.load()
        return key

    def explain(self, stream: int, table: str, key: bytes, reason: str, now: float) -> None:
        text = f"UPDATE {self._table} SET reason = ?, at = ? WHERE stream = ? AND tbl = ? AND key = ?"
        self._connection.execute(text, (reason[:REASON_LENGTH], now, stream, table, key))

    def clear(self, stream: int, op: Op) -> None:
        """A row that was set aside has a later version, which is in its place."""
        if self.count:
            text = f"DELETE FROM {self._table} WHERE stream = ? AND tbl = ? AND key = ?"
            self._connection.execute(text, (stream, op.table, key_of(op.key)))
            self.count -= self._connection.changes()

    def of(self, stream: int, after: int = -1) -> Iterator[QuarantinedOp]:
        """In the order of versions."""
        if self.count:
            for version, run, payload in self._connection.execute(self._get, (stream, after)):
                op = self._decoder.decode(payload)
                yield QuarantinedOp(stream=stream, version=version, run=run, op=op, payload_bytes=len(payload))

    def drop(self, stream: int, *, but_run: int = -1) -> None:
        """All of one stream, or what its last run did not confirm."""
        if self.count:
            self._connection.execute(f"DELETE FROM {self._table} WHERE stream = ? AND run != ?", (stream, but_run))
            self.load()

    def collect(self, before: float) -> dict[int, int]:
        """Deletions that are older go. The last version that went, by stream."""
        where = "WHERE del > 0 AND del < ?"
        floors: list[Any] = self._connection.execute(
            f"SELECT stream, max(ver) FROM {self._table} {where} GROUP BY stream", (before,)
        ).fetchall()
        if floors:
            self._connection.execute(f"DELETE FROM {self._table} {where}", (before,))
            self.load()
        return dict(floors)


def key_of(key: tuple[Value, ...]) -> bytes:
    return msgspec.msgpack.encode(key)
