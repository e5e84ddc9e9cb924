"""Quarantine: rows that this replica cannot place. Those of unknown tables and columns wait for a schema that knows
them; bad ones are kept so that an operator can see them. Both are served to other replicas unchanged.
"""

from collections.abc import Iterator
from typing import Any

import apsw
import msgspec

from hawker.catalog.change import Op, Value

REASON_LENGTH = 200


class QuarantinedOp(msgspec.Struct, frozen=True, kw_only=True):
    """A row that was not placed. `stream` is the number of its stream in this file, `version` the stream's version that
    wrote it, `run` the reset that confirmed it last, `payload_bytes` the size of the stored op."""

    stream: int
    version: int
    run: int
    op: Op
    payload_bytes: int


class QuarantineTable:
    """One of the two tables, `__c_unknown` or `__c_quarantine`; only the second one has a reason for each row. Methods
    run inside the caller's transaction."""

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
        """Store an op that cannot be placed; a deletion is kept with its time, for `collect`. Returns the stored
        key."""
        key = key_of(op.key)
        died = max(1, int(now)) if op.row is None else 0
        self._connection.execute(self._put, (stream, op.table, key, version, run, died, self._encoder.encode(op)))
        self.load()
        return key

    def explain(self, stream: int, table: str, key: bytes, reason: str, now: float) -> None:
        text = f"UPDATE {self._table} SET reason = ?, at = ? WHERE stream = ? AND tbl = ? AND key = ?"
        self._connection.execute(text, (reason[:REASON_LENGTH], now, stream, table, key))

    def clear(self, stream: int, op: Op) -> None:
        """Remove the quarantined version of a row of which a later version was placed."""
        if self.count:
            text = f"DELETE FROM {self._table} WHERE stream = ? AND tbl = ? AND key = ?"
            self._connection.execute(text, (stream, op.table, key_of(op.key)))
            self.count -= self._connection.changes()

    def of(self, stream: int, after: int = -1) -> Iterator[QuarantinedOp]:
        """Quarantined ops of one stream beyond version `after`, by version."""
        if self.count:
            for version, run, payload in self._connection.execute(self._get, (stream, after)):
                op = self._decoder.decode(payload)
                yield QuarantinedOp(stream=stream, version=version, run=run, op=op, payload_bytes=len(payload))

    def drop(self, stream: int, *, but_run: int = -1) -> None:
        """Remove all of one stream, or only what the reset `but_run` did not confirm."""
        if self.count:
            self._connection.execute(f"DELETE FROM {self._table} WHERE stream = ? AND run != ?", (stream, but_run))
            self.load()

    def collect(self, before: float) -> dict[int, int]:
        """Remove deletions from before that moment (Unix seconds). Returns the last removed version by stream."""
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
