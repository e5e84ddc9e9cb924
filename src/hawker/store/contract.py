"""The embedded key-value store as the rest of Hawker sees it: buckets of typed values, transactions, two durabilities.

No SQL and no file names here. `sqlite.py` keeps these promises on disk, `memory_store.py` keeps them in memory and can
crash or fail on request; one contract suite tests both. An observer watches the writer at work, so that the store knows
nothing of metrics; listeners are told what it wrote, change by change.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

import msgspec

from hawker.errors import Fault
from hawker.value_object import ValueObject

T = TypeVar("T")
R = TypeVar("R")

_KEYS_AT_ONCE = 500


class Durability(Enum):
    """`DURABLE` is on disk (fsync) before `write` returns. `ORDERED` is visible at once, applied in order, and on disk
    no later than the next durable commit; a crash may lose a suffix of ordered commits, never one in the middle."""

    DURABLE = "durable"
    ORDERED = "ordered"


class Bucket(ValueObject, Generic[T], frozen=True):
    """A named, ordered map from string keys to values of one msgspec type. Unknown fields in stored values are
    tolerated, so that an older program can read what a newer one added."""

    name: str
    """Unique in the store, and never changed: what is stored is found by it."""
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

    def sizes(
        self, bucket: Bucket[Any], prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> list[tuple[str, int]]:
        """The keys that `scan` has, in its order, each with the number of bytes of its value. No value is read."""


def keys_of(reader: Reader, bucket: Bucket[Any], prefix: str = "", *, after: str = "") -> Iterator[str]:
    """The keys with the prefix that come after `after`, in order, without it; read as they are asked for."""
    last = prefix + after
    while page := reader.sizes(bucket, prefix, after=last, limit=_KEYS_AT_ONCE):
        yield from (key.removeprefix(prefix) for key, _ in page)
        last, _ = page[-1]


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


ChangeListener: TypeAlias = Callable[[str, str], None]
"""Called in the event loop with the bucket's name and the key of each change, once it is committed; it must not block.
A transaction tells each key once, in the order of the first change."""


class Observable(Protocol):
    """A store that says what was written to it."""

    def listen(self, listener: ChangeListener) -> None: ...


class ChangeListeners:
    """The listeners of one store."""

    def __init__(self) -> None:
        self._listeners: list[ChangeListener] = []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: ChangeListener) -> None:
        self._listeners.append(listener)

    def tell(self, changed: Iterable[tuple[str, str]]) -> None:
        for bucket, key in changed:
            for listener in self._listeners:
                listener(bucket, key)


class StoreObserver(Protocol):
    """Told in the writer's thread, so that what it does delays every commit. Must not raise."""

    def commit(self, transactions: int, *, durable: bool) -> AbstractContextManager[None]:
        """A context around one commit of a group; a durable one is an fsync."""

    def failed(self) -> None:
        """A group could not be committed."""


class SilentStoreObserver:
    """Keeps `StoreObserver`, and nothing else."""

    def commit(self, transactions: int, *, durable: bool) -> AbstractContextManager[None]:
        return _NOTHING

    def failed(self) -> None:
        pass


_NOTHING = nullcontext()


encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode


@cache
def _decoder(type_: Hashable) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(cast(Any, type_))


def decode(bucket: Bucket[T], key: str, data: bytes) -> T:
    """The value that `encode` made. Raises `Fault` naming the record when the bytes are not of that type."""
    try:
        value: T = _decoder(cast(Hashable, bucket.type)).decode(data)
    except msgspec.DecodeError as error:
        name = f"{key.replace(chr(0), ' ').strip()!r} in bucket {bucket.name}"
        raise Fault(f"record {name} of the store cannot be read ({error}): restore a backup of the store") from error
    return value
