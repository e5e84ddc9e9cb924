"""What the parts of the catalog promise each other, and what the rest of Hawker may ask of it. Protocols only."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from hawker.catalog.change import Delta, Position, ReplicatedTx, Scope, Token, Value
from hawker.errors import HawkerError
from hawker.ids import NodeId


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One statement of SQL and its parameters, by position or by name without the prefix."""

    query: str
    """SQL; parameters stand as `?` or `:name`."""
    params: tuple[Value, ...] = ()
    named_params: Mapping[str, Value] = {}


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one statement; `seconds` is how long it took."""

    rows_affected: int
    """The number of rows that the statement changed, 0 or more."""
    seconds: float


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """A local transaction that is on disk. `txs` has one per scope that it changed, none when it changed nothing;
    `token` is that of the region's stream, or of the global one when only that changed."""

    effects: tuple[Effect, ...]
    txs: tuple[ReplicatedTx, ...]
    token: Token | None


class Touched(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that a batch or a local transaction changed: for each table the keys, in the primary key's order.
    `everything`: any row of any table may have changed as well (a sweep, a forgotten node, too many to name)."""

    tables: Mapping[str, frozenset[tuple[Value, ...]]]
    everything: bool = False


class ApplyOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The place of each stream after a batch, and what of the batch was set aside: unknown tables and columns wait for
    a schema, a row that does not fit its table is quarantined and reported. Neither holds up what comes after.
    `touched` names what readers of this replica now see differently."""

    positions: Mapping[tuple[NodeId, Scope], Position]
    unknown: int = 0
    """The number of ops that wait for a schema that has their table and columns."""
    quarantined: int = 0
    """The number of rows that did not fit their table."""
    touched: Touched = Touched(tables={})


class ResultTable(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of an answer. `columns` are the names of the values of each."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


class LocalTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A local transaction that waits; see `Storage.commit`."""

    statements: tuple[Statement, ...]
    at: float
    """The time at which the transaction was asked for, Unix seconds: readers measure lag by it."""
    timeout_s: float | None = None
    """The seconds that its statements may take, more than 0; None: as long as they need."""


class Storage(Protocol):
    """The database as replication needs it. All calls block and are made by one thread; each is one transaction.

    A stream that was never heard, or that a fence swept, is at `Position(0, 0)`: its next `ReplicatedTx` is version 1
    of any epoch above the fence. A stream in the middle of a reset is at version -1, also after a crash. Quarantined
    rows (unknown tables and columns, bad rows) are part of `delta` like any other row, for readers that know a
    place."""

    def proven(self) -> bool:
        """Whether the file has all that this node ever published, as far as it can prove that: it was closed in good
        order, and is no copy. Else this node's streams are renewed before anything is committed."""

    def positions(self, scope: Scope) -> Mapping[NodeId, Position]:
        """The positions of all origins that are known or fenced, this node included."""

    def apply(self, batch: Sequence[ReplicatedTx | Delta]) -> ApplyOutcome:
        """Apply a batch in the order given. A `ReplicatedTx` that is not the next of its stream is skipped; so is what
        a fence or a newer epoch forbids. A `Delta` that is no reset fits when its epoch is the stream's and `after` <=
        where the stream is < `upto`. The first part of a `reset` (`after` is -1) fits when its epoch is newer, when the
        stream is at -1, or when its `head` is beyond; it begins a mark-and-sweep of that stream. A later one fits when
        its `after` is what the part before it came to, its last one ends the sweep. A row whose key does not begin with
        the origin is a bad row."""

    def replay(self, origin: NodeId, scope: Scope, after: int, max_bytes: int) -> Sequence[ReplicatedTx]:
        """The transactions from `after` + 1 on, as far as the log still has them; empty when it does not. At least one
        if there is one, whatever its size."""

    def delta(self, origin: NodeId, scope: Scope, after: int, max_bytes: int, *, since: int = -1) -> Delta:
        """The stream beyond `after`, compacted; a `reset` when `after` is below the floor, or -1. Parts end between
        versions and have at least one. `since` goes with a reset that is under way: the `head` of its first part, and
        `after` is what the last part came to. Then it goes on from there, unless the floor is above `since`."""

    def fence(self, origin: NodeId, epoch: int) -> None:
        """Forget an origin in both scopes: where a stream's epoch is not above `epoch`, its rows go and it is at
        `Position(0, 0)`; in both, what comes in epochs up to `epoch` is passed over from now on. Fences only rise. Of
        this node's own streams only the fence is noted: they are renewed above it."""

    def commit(self, statements: Sequence[Statement], at: float, *, timeout_s: float | None = None) -> Committed:
        """A local transaction; on disk when this returns. `at` is Unix seconds. Raises `BadRequest` for what cannot be
        run, and for a row that another node owns; `DeadlineExceeded` when it took longer; `Unavailable` while the file
        is not `proven`."""

    def commit_all(self, group: Sequence[LocalTransaction]) -> Sequence[Committed | HawkerError]:
        """Commits each transaction of the group as `commit` does, in this order and each on its own: one that fails
        does not touch the others. All that succeed are on disk when this returns, for which a disk takes as long as for
        one. Raises `Unavailable` for all."""

    def renew(self, scope: Scope, epoch: int) -> Position:
        """Begin this node's stream again in `epoch`, which is above all that it ever used: all own rows are published
        anew, in versions from 1 on of a few rows each, and the floor is the last of them."""

    def collect(self, before: float) -> int:
        """Drop deletions and logged transactions that were written here before that moment, Unix seconds, and raise the
        floors accordingly. How many deletions went."""

    def query(self, statement: Statement) -> ResultTable:
        """The answer to a statement that reads. Raises `BadRequest` for what is no reading statement."""

    def close(self) -> None:
        """Closes the database in good order. Nothing may be called after it."""


OnTouched: TypeAlias = Callable[[Touched], None]
"""Called in the event loop once what changed can be read; must not block."""


class SnapshotFile(Protocol):
    """A compressed file on disk until it is closed; `digest` is its SHA-256 in hex. Any part may be read again."""

    size_bytes: int
    digest: str

    def read(self, offset: int, size: int) -> bytes: ...

    def close(self) -> None: ...


class SnapshotSource(Protocol):
    """All streams as one file, for a node that begins or is far behind. Both calls block for seconds, may be made in
    any thread, and hold up neither commits nor batches for longer than one stream takes."""

    def snapshot(self, target: Path, scopes: Collection[Scope] = ...) -> SnapshotFile:
        """Makes a snapshot of those scopes: a node of another region gets the global one only. Writes `target`."""

    def install(self, file: Path, digest: str) -> Touched:
        """Take from the file each stream that it knows further, as a reset would; ask for the positions afterwards. The
        file stays. Raises `BadRequest` for one that is no whole snapshot."""


class RowChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a subscription's answer: `kind` is insert, update or delete; `number` counts them."""

    kind: str
    row_id: int
    """The row's number in this subscription, the same in all its changes."""
    row: tuple[Value, ...]
    number: int


class Catalog(Protocol):
    """The catalog as workers and brokers ask it, whichever engine answers: the replica in this process, or an agent's
    URL."""

    async def transact(self, statements: Sequence[Statement]) -> Token | None:
        """Runs statements in one transaction, durably. They may change only rows that this node owns. None when nothing
        changed."""

    def listen(self, callback: OnTouched) -> Callable[[], None]:
        """Be told of each change, local or not, from now on. Returns how to stop it."""

    async def query(self, statement: Statement, *, timeout_s: float = 60.0) -> ResultTable:
        """The answer to a statement that reads. Raises `BadRequest` for what is no reading statement."""

    def subscribe(self, statement: Statement) -> AbstractAsyncContextManager[AsyncIterator[ResultTable | RowChange]]:
        """First the answer as it is, then each change of it."""

    async def reached(self, token: Token, *, timeout_s: float) -> bool:
        """Whether the replica has it, waiting for it if need be."""
