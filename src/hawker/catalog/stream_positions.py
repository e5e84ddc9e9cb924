"""Where the replica is in each stream: epochs, versions, floors, fences. The table is the truth; a copy is kept in
memory, and what a transaction changes joins it once it is committed.
"""

from collections.abc import Iterator, Mapping

import apsw
import msgspec

from hawker.catalog.change import Position, Scope
from hawker.ids import NodeId

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
    applied: int = 0
    floor: int = 0
    fence: int = -1
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
        """As the transaction under way sees it; one that was never heard begins at nothing."""
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
        """Before the transaction is committed."""
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
