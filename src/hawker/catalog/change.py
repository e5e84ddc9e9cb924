"""What replicates: operations on whole rows, the transactions that hold them, and where a reader is in a stream.

A stream is one owner's history in one scope. Versions are contiguous, from 1 in each epoch; a new epoch begins when the
owner cannot prove that it knows all that it said before.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from hawker.ids import NodeId

Value: TypeAlias = int | float | str | bytes | None
"""A value that SQLite stores."""

if TYPE_CHECKING:
    Cells: TypeAlias = tuple[Value, ...]
else:
    Cells = tuple[Any, ...]  # msgspec decodes no union of text and bytes; `Op` looks at each value itself

_KINDS = frozenset({int, float, str, bytes, bool, type(None)})


class Scope(StrEnum):
    """The nodes that replicate a table: those of the owner's region, or all."""

    REGION = "region"
    GLOBAL = "global"


class Op(msgspec.Struct, frozen=True, array_like=True):
    """One row as it is from now on; `row` is None once it is deleted. `key` has the values of the primary key in its
    order, its first one the owner. `row` has one value per name in `columns`, the key's own left out: a reader that
    lacks a column keeps the op aside, one that has more takes its own defaults."""

    table: str
    """The name of the table that the row is in."""
    key: Cells
    columns: tuple[str, ...] = ()
    row: Cells | None = None

    def __post_init__(self) -> None:
        """Also when it is decoded, which then fails."""
        if not _KINDS.issuperset(map(type, self.key)) or not _KINDS.issuperset(map(type, self.row or ())):
            raise ValueError("a value that SQLite cannot store")


class ReplicatedTx(msgspec.Struct, frozen=True, array_like=True):
    """One transaction of an owner, applied by readers as one transaction. `at` is the owner's clock, Unix seconds: for
    measuring lag only, nothing is ordered by it."""

    origin: NodeId
    scope: Scope
    epoch: int
    """The epoch of the owner's history: a greater one replaces everything of those before."""
    version: int
    """The version of the owner in this scope and epoch: 1, 2, 3, ... without a gap."""
    at: float
    ops: tuple[Op, ...]


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The place of a replica in a stream: all versions up to `applied` of `epoch`. Deletions up to `floor` are no
    longer known. `fence`: what this origin says in epochs up to it is ignored, since it was forgotten; -1 when it was
    not. `applied` is -1 in the middle of a reset: what is there is of no version, only a reset can end it."""

    epoch: int = 0
    applied: int = 0
    floor: int = 0
    fence: int = -1


class VersionedOp(msgspec.Struct, frozen=True, array_like=True):
    version: int
    """The version of the transaction that the op was in."""
    op: Op


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """A part of a stream that was compacted: for each row that changed in (`after`, `upto`], its last op. With `reset`
    it is part of the whole live state: what the reader has of this origin and is not in it, once `last` has come, goes.
    `upto` is the version that the part comes to: the rows are those whose last change is in (`after`, `upto`]. `head`
    is how far the sender is; the last part comes to it. Before, a reset's reader is at -1, others at `upto`."""

    origin: NodeId
    scope: Scope
    epoch: int
    """The epoch of the owner's history: a greater one replaces everything of those before."""
    reset: bool
    after: int
    upto: int
    floor: int
    """The version up to which the sender compacted: it has no whole transactions up to it."""
    ops: tuple[VersionedOp, ...]
    last: bool
    head: int = 0


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a region's stream, as a write's answer carries it: `origin:epoch:version`."""

    origin: NodeId
    epoch: int
    """The epoch of the owner's history."""
    version: int
    """The version of the transaction that wrote; readers have it once they have come to it."""

    def __str__(self) -> str:
        return f"{self.origin}:{self.epoch}:{self.version}"
