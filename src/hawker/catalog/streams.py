"""Where the replica is in each stream: epochs, versions, floors, fences; and the last transactions of each. The table
is the truth; a copy is kept in memory, and what a transaction changes joins it once it is committed.

A node goes on in its epoch only if its file proves that it is whole, and then only after all peers that are alive said
that they know no more of it than it does itself. In doubt it begins a new one: that costs a reset, and is always right.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apsw
import msgspec

from hawker.catalog.change import Position, ReplicatedTx, Scope
from hawker.catalog.fan_out import ReplicaPeers
from hawker.clock import Clock
from hawker.ids import NodeId

_RANDOM_BITS = 20
LISTEN_S = 1.0
PATIENCE_S = 5.0
EVERY_S = 0.25


def next_epoch(clock: Clock, above: int) -> int:
    """Unix seconds and chance, so that a node whose memory was taken away does not choose the same one twice; and above
    all that was heard, should the clock be wrong. Even: `in_scope` makes it that of a scope."""
    seconds = max(int(clock.now()), (above >> _RANDOM_BITS) + 1)
    return (seconds << _RANDOM_BITS) + (int(clock.random() * (1 << _RANDOM_BITS)) & ~1)


def in_scope(epoch: int, scope: Scope) -> int:
    """Both streams of a node begin again together, the global one in the odd epoch: so a token tells its scope, and
    whoever knows one of the two can forget both."""
    return epoch | 1 if scope is Scope.GLOBAL else epoch & ~1


def outdated(own: Position, epoch: int, version: int, fence: int = -1) -> bool:
    """Whether what another says of this node shows that this node lost something, or was forgotten."""
    return (epoch, version) > (own.epoch, own.applied) or fence >= own.epoch


class Inquiry:
    """The inquiry at the start about what the peers know. It is over once all that are alive answered, or patience
    ended."""

    def __init__(self, clock: Clock) -> None:
        self._began = clock.monotonic()
        self._answered: set[NodeId] = set()
        self.due = self._began

    def whom(self, now: float, peers: ReplicaPeers) -> list[NodeId]:
        self.due = now + EVERY_S
        return [node for node in peers.alive if node not in self._answered]

    def heard(self, node: NodeId) -> None:
        self._answered.add(node)

    def passed(self, now: float, peers: ReplicaPeers) -> bool:
        return now - self._began >= LISTEN_S and self._answered.issuperset(peers.alive)

    def failed(self, now: float) -> bool:
        return now - self._began >= PATIENCE_S


RESETTING = -1

_READ = "SELECT number, origin, scope, epoch, applied, gc_floor, forgotten, run, came FROM __c_origin"
_WRITE = """INSERT INTO __c_origin (number, origin, scope, epoch, applied, gc_floor, forgotten, run, came)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (number) DO UPDATE SET epoch = excluded.epoch,
    applied = excluded.applied, gc_floor = excluded.gc_floor, forgotten = excluded.forgotten, run = excluded.run,
    came = excluded.came"""


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """`number` stands for it in the other side tables. Each reset is a `run`: rows that it does not confirm go when it
    ends. `came` is how far the parts of a reset have come, while `applied` is `RESETTING`."""

    number: int
    origin: NodeId
    scope: Scope
    epoch: int = 0
    """The epoch of the owner's history that is read here now; 0 before any."""
    applied: int = 0
    floor: int = 0
    """The version up to which whole transactions are not kept any more, only last ops of rows."""
    fence: int = -1
    """The epoch up to which what the owner published is ignored; -1 is no fence."""
    run: int = 0
    came: int = -1

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.applied, self.floor, self.fence)

    @property
    def begun(self) -> bool:
        """Whether anything was heard of it since it was made or fenced."""
        return (self.epoch, self.applied) != (0, 0)


class StreamPositions:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._known: dict[tuple[NodeId, Scope], StreamState] = {}
        self._changed: dict[tuple[NodeId, Scope], StreamState] = {}
        self.load()

    def load(self) -> None:
        """Read the table again."""
        self._changed.clear()
        rows = self._connection.execute(_READ)
        self._known = {(row[1], Scope(row[2])): _stream(row) for row in rows}

    def get(self, origin: NodeId, scope: Scope) -> StreamState:
        """The state of a stream as the transaction under way sees it; a stream that was never heard begins at
        nothing."""
        place = (origin, scope)
        known = self._changed.get(place) or self._known.get(place)
        if known is None:
            known = StreamState(number=self._next_number(), origin=origin, scope=scope)
            self._changed[place] = known
        return known

    def find(self, origin: NodeId, scope: Scope) -> StreamState | None:
        return self._changed.get((origin, scope)) or self._known.get((origin, scope))

    def put(self, stream: StreamState) -> StreamState:
        self._changed[stream.origin, stream.scope] = stream
        return stream

    def all(self) -> Iterator[StreamState]:
        return iter([*({**self._known, **self._changed}.values())])

    def positions(self, scope: Scope) -> Mapping[NodeId, Position]:
        return {origin: stream.position for (origin, own), stream in self._known.items() if own is scope}

    def write(self) -> None:
        """Writes the changed states, before the transaction is committed."""
        for stream in self._changed.values():
            self._connection.execute(_WRITE, msgspec.structs.astuple(stream))

    def after_commit(self) -> None:
        """Adopt the positions written by the transaction that just committed."""
        self._known.update(self._changed)
        self._changed.clear()

    def after_rollback(self) -> None:
        """Drop the positions of the transaction that was rolled back."""
        self._changed.clear()

    def _next_number(self) -> int:
        return 1 + max((stream.number for stream in self.all()), default=0)


def _stream(row: tuple[int, NodeId, str, int, int, int, int, int, int]) -> StreamState:
    number, origin, scope, epoch, applied, floor, fence, run, came = row
    return StreamState(
        number=number,
        origin=origin,
        scope=Scope(scope),
        epoch=epoch,
        applied=applied,
        floor=floor,
        fence=fence,
        run=run,
        came=came,
    )


# The last transactions of each stream as they were said, so that a reader who is a little behind gets the same
# ones. A ring: what is beyond its size or its age goes, and such a reader gets a delta instead.

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
        """Deletes all of one stream: it begins again, or is forgotten."""
        self._connection.execute("DELETE FROM __c_log WHERE stream = ?", (stream,))
        self.load()

    def trim(self, before: float) -> None:
        """Deletes what was written before that moment, and what is too much."""
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
