"""One at a time per key: who comes second waits, and finds the work done."""

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import anyio

K = TypeVar("K", bound=Hashable)


class KeyedLocks(Generic[K]):
    """A lock lives as long as somebody holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[K, anyio.Lock] = {}
        self._users: dict[K, int] = {}

    @asynccontextmanager
    async def hold(self, key: K) -> AsyncIterator[None]:
        lock = self._locks.setdefault(key, anyio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]

    def busy(self) -> frozenset[K]:
        """Keys that somebody holds or waits for."""
        return frozenset(self._users)
