"""Who watches the store's writer at work, behind a protocol, so that the store knows nothing of metrics."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


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
