"""One call for all who ask the same: those who come while it is under way are answered by the next one, so that nobody
is told what was before he asked.
"""

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import anyio

from hawker.errors import HawkerError

T = TypeVar("T")


class _Gathering(Generic[T]):
    """Who waits for a call that has not begun. Without an answer in the end, each of them asks anew."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.answer: T | None = None
        self.error: HawkerError | None = None


class Singleflight(Generic[T]):
    """Keeps nothing but what is under way."""

    def __init__(self) -> None:
        self._running: dict[Hashable, anyio.Event] = {}
        self._gathering: dict[Hashable, _Gathering[T]] = {}

    async def ask(self, key: Hashable, call: Callable[[], Awaitable[T]]) -> T:
        """The answer that `call` of one of those who ask for `key` returns, or its error of the family. It runs in that
        one's task: when that is cancelled, the next takes its place."""
        while (gathering := self._gathering.get(key)) is not None:
            await gathering.over.wait()
            if gathering.error is not None:
                raise gathering.error
            if gathering.answer is not None:
                return gathering.answer
        return await self._lead(key, call)

    async def _lead(self, key: Hashable, call: Callable[[], Awaitable[T]]) -> T:
        mine = self._gathering[key] = _Gathering[T]()
        try:
            while (running := self._running.get(key)) is not None:
                await running.wait()
            del self._gathering[key]
            mine.answer = await self._run(key, call)
            return mine.answer
        except HawkerError as error:
            mine.error = error
            raise
        finally:
            if self._gathering.get(key) is mine:
                del self._gathering[key]
            mine.over.set()

    async def _run(self, key: Hashable, call: Callable[[], Awaitable[T]]) -> T:
        ended = self._running[key] = anyio.Event()
        try:
            return await call()
        finally:
            del self._running[key]
            ended.set()
