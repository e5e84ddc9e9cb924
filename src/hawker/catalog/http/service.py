"""What the HTTP API needs of the node that serves it. Protocols and values only."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from hawker.catalog.contract import Committed, Statement
from hawker.value_object import ValueObject


class CatalogWriter(Protocol):
    async def commit(self, statements: Sequence[Statement], *, timeout_s: float | None = None) -> Committed:
        """A local transaction, on disk. Raises `BadRequest` for what cannot be run, `DeadlineExceeded`, and
        `Unavailable` when the same could work later."""


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """The state of replication: versions that are known to be missing, members alive, the 99th percentile of how old
    what comes is (None before anything came), what waits to be applied."""

    gaps: int
    """Versions, 0 or more; 0 at rest."""
    members: int
    """The number of members alive with this node, 1 or more."""
    p99_lag: float | None
    """The 99th percentile of lag in seconds, 0 or more; None before anything came."""
    queue_size: int
    """Transactions, 0 or more."""


class Doctor(Protocol):
    def vitals(self) -> Vitals: ...


class Migrations(Protocol):
    async def migrate(self, texts: Sequence[str]) -> None:
        """Take these definitions of tables and indexes for those of the same name. Raises `BadRequest`."""


class CatalogAccess(ValueObject, frozen=True, kw_only=True):
    """The access to the catalog: the token that a caller must show, and the name under which it must call. None lets
    everybody call, and under any name."""

    token: str | None = None
    """The bearer token that a call must show."""
    endpoint: str | None = None
    """The name that a call must ask for, where it asks for one by a header."""
