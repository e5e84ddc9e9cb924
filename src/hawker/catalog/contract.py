"""What the parts of the catalog promise each other, and what the rest of Hawker may ask of it. Protocols only."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from hawker.catalog.change import Delta, Position, Scope, Token, Tx, Value
from hawker.ids import NodeId


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One statement of SQL and its parameters, by position or by name without the prefix."""

    query: str
    params: tuple[Value, ...] = ()
    named_params: Mapping[str, Value] = {}


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What one statement did; `seconds` is how long it took."""

    rows_affected: int
    seconds: float


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """A local transaction that is on disk. `txs` has one per scope that it changed, none when it changed nothing;
    `token` is that of the region's stream, or of the global one when only that changed."""

    effects: tuple[Effect, ...]
    txs: tuple[Tx, ...]
    token: Token | None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Where each stream is after a batch, and what of it was set aside: unknown tables and columns wait for a schema,
    a row that does not fit its table is quarantined and reported. Neither holds up what comes after."""

    positions: Mapping[tuple[NodeId, Scope], Position]
    unknown: int = 0
    quarantined: int = 0


class Storage(Protocol):
    """What replication needs of the database. All calls block and are made by one thread; each is one transaction."""

    def positions(self, scope: Scope) -> Mapping[NodeId, Position]: ...

    def apply(self, batch: Sequence[Tx | Delta]) -> Outcome:
        """In the order given. A `Tx` that is not the next of its stream is passed over; so is what a fence or a newer
        epoch forbids. The first part of a `reset` begins a mark-and-sweep of that stream, its last part ends it."""

    def replay(self, origin: NodeId, scope: Scope, after: int, max_bytes: int) -> Sequence[Tx]:
        """The transactions from `after` + 1 on, as far as the log still has them; empty when it does not."""

    def delta(self, origin: NodeId, scope: Scope, after: int, max_bytes: int) -> Delta:
        """The stream beyond `after`, compacted; a `reset` when `after` is below the floor, or -1."""

    def fence(self, origin: NodeId, epoch: int) -> None:
        """Forget an origin: its rows go, and what it says in epochs up to `epoch` is ignored from now on."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of an answer. `columns` are the names of the values of each."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a subscription's answer: `kind` is insert, update or delete; `number` counts them."""

    kind: str
    row_id: int
    row: tuple[Value, ...]
    number: int


class Catalog(Protocol):
    """What workers and brokers ask, whichever engine answers: the replica in this process, or an agent's URL."""

    async def transact(self, statements: Sequence[Statement]) -> Token | None:
        """In one transaction, durably. Only rows that this node owns. None when nothing changed."""

    async def query(self, statement: Statement, *, timeout_s: float = 60.0) -> Table:
        """Raises `BadRequest` for what is no reading statement."""

    def subscribe(self, statement: Statement) -> AbstractAsyncContextManager[AsyncIterator[Table | Change]]:
        """First the answer as it is, then each change of it."""

    async def reached(self, token: Token, *, timeout_s: float) -> bool:
        """Whether the replica has it, waiting for it if need be."""
