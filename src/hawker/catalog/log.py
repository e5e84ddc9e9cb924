"""The last transactions of each stream as they were said, so that a reader who is a little behind gets the same ones.
A ring: what is beyond its size or its age goes, and such a reader gets a delta instead.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import apsw
import msgspec

from hawker.catalog.change import ReplicatedTx

LOG_BYTES = 64 * 1024 * 1024
LOG_AGE_S = 600.0
LARGE_BYTES, HELD_BYTES = 64 * 1024, 16 * 1024 * 1024
_TRIMMED_AT_ONCE = 256

_ADD = "INSERT INTO __c_log (stream, ver, at, payload) VALUES (?, ?, ?, ?)"
_AFTER = "SELECT ver, payload FROM __c_log WHERE stream = ? AND ver > ? ORDER BY ver"
_OLDEST = "SELECT id, at, length(payload) FROM __c_log ORDER BY id LIMIT ?"


class ReplayLog:
    def __init__(self, connection: apsw.Connection, limit_bytes: int = LOG_BYTES) -> None:
        self._connection = connection
        self._limit_bytes = limit_bytes
        self._encoder, self._decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(ReplicatedTx)
        self.size_bytes = 0
        self._large: tuple[bytes, ReplicatedTx] | None = None
        self.load()

    def load(self) -> None:
        self.size_bytes = self._connection.execute("SELECT coalesce(sum(length(payload)), 0) FROM __c_log").get

    def add(self, stream: int, tx: ReplicatedTx, now: float) -> None:
        """Inside a transaction, which also trims the ring to its size. The last large one is at hand until the next
        trimming, all others ask for it now, and reading it takes as long as making it."""
        payload = self._encoder.encode(tx)
        self._connection.execute(_ADD, (stream, tx.version, now, payload))
        self.size_bytes += len(payload)
        if LARGE_BYTES < len(payload) <= HELD_BYTES:
            self._large = payload, tx
        if self.size_bytes > self._limit_bytes:
            self._trim(float("-inf"))

    def replay(self, stream: int, after: int, max_bytes: int) -> Sequence[ReplicatedTx]:
        return [*self._contiguous(stream, after, max_bytes)]

    def _contiguous(self, stream: int, after: int, max_bytes: int) -> Iterator[ReplicatedTx]:
        size = 0
        for version, payload in self._connection.execute(_AFTER, (stream, after)):
            size += len(payload)
            if version != after + 1 or (size > max_bytes and size > len(payload)):
                return
            after = version
            yield self._decoded(payload)

    def _decoded(self, payload: bytes) -> ReplicatedTx:
        if self._large is not None and self._large[0] == payload:
            return self._large[1]
        return self._decoder.decode(payload)

    def drop(self, stream: int) -> None:
        """All of one stream: it begins again, or is forgotten."""
        self._connection.execute("DELETE FROM __c_log WHERE stream = ?", (stream,))
        self.load()

    def trim(self, before: float) -> None:
        """What was written before that moment, and what is too much."""
        self._large = None
        self._trim(before)

    def _trim(self, before: float) -> None:
        while rows := self._oldest():
            last = None
            for number, at, size in rows:
                if at >= before and self.size_bytes <= self._limit_bytes:
                    break
                last, self.size_bytes = number, self.size_bytes - size
            if last is not None:
                self._connection.execute("DELETE FROM __c_log WHERE id <= ?", (last,))
            if last != rows[-1][0]:
                return

    def _oldest(self) -> list[Any]:
        return self._connection.execute(_OLDEST, (_TRIMMED_AT_ONCE,)).fetchall()
