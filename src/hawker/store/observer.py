"""Who watches a store: its writer at work, behind a protocol, so that the store knows nothing of metrics; and what it
wrote, change by change.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeAlias

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
        """Around one commit of a group; a durable one is an fsync."""

    def failed(self) -> None:
        """A group could not be committed."""


class SilentStoreObserver:
    """Keeps `StoreObserver`, and nothing else."""

    def commit(self, transactions: int, *, durable: bool) -> AbstractContextManager[None]:
        return _NOTHING

    def failed(self) -> None:
        pass


_NOTHING = nullcontext()
