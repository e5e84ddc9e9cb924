"""The embedded key-value store as the rest of Hawker sees it: buckets of typed values, transactions, two durabilities.

No SQL and no file names here. `sqlite.py` keeps these promises on disk, `memory.py` keeps them in memory and can
crash or fail on request; one contract suite tests both.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Durability(Enum):
    """`DURABLE` is on disk (fsync) before `write` returns. `ORDERED` is visible at once, applied in order, and on disk
    no later than the next durable commit; a crash may lose a suffix of ordered commits, never one in the middle."""

    DURABLE = "durable"
    ORDERED = "ordered"


@dataclass(frozen=True, slots=True)
class Bucket(Generic[T]):
    """A named, ordered map from string keys to values of one msgspec type. Unknown fields in stored values are
    tolerated, so that an older program can read what a newer one added."""

    name: str
    type: type[T]


class Reader(Protocol):
    """A consistent view of the store."""

    def get(self, bucket: Bucket[T], key: str) -> T | None: ...

    def scan(
        self,
        bucket: Bucket[T],
        prefix: str = "",
        *,
        after: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[str, T]]:
        """Pairs whose key starts with `prefix`, in key order (by code point) or in reverse; `after` is exclusive and
        means "further on in the direction of the scan"."""

    def count(self, bucket: Bucket[T], prefix: str = "") -> int: ...


class Tx(Reader, Protocol):
    """A transaction under way. It reads its own writes. Raising out of the function rolls it back alone."""

    def put(self, bucket: Bucket[T], key: str, value: T) -> None: ...

    def delete(self, bucket: Bucket[T], key: str) -> None:
        """No error when the key is not there."""

    def on_commit(self, call: Callable[[], None]) -> None:
        """Run `call` in the event loop's thread once the transaction is committed; never on rollback."""


class Store(Reader, Protocol):
    """Reads on the store itself see the newest commit and never wait for a writer."""

    async def write(self, apply: Callable[[Tx], R], durability: Durability = Durability.DURABLE) -> R:
        """Run `apply` in a transaction of its own, in the writer's order. It must be quick, must not await and must
        touch only the transaction and its own values (it may run in another thread). Cancelling the caller does not
        undo a commit under way."""

    def snapshot(self) -> AbstractContextManager[Reader]:
        """One unchanging view for several reads."""

    async def backup(self, target: Path, mark: Callable[[Tx], None] | None = None) -> None:
        """Write a consistent copy to `target` while the store is in use; `mark` changes the copy alone."""

    async def close(self) -> None:
        """Make every commit durable and release the file."""
