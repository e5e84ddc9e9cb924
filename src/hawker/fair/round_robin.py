"""Where requests come in, one of each address in each turn of the event loop: an address with a thousand requests at
once delays another one by a turn, and not by a thousand answers.

Only the coming in is ordered; once inside, requests wait for each other where they share something.
"""

import asyncio
from collections import deque


class RoundRobin:
    """For one event loop. `at_once` of one address come in in one turn."""

    def __init__(self, at_once: int = 1) -> None:
        self._at_once = at_once
        self._came: dict[str, int] = {}  # in this turn
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._scheduled = False

    async def come_in(self, key: str) -> None:
        """Returns when it is the turn of the oldest request of this key, which is this one."""
        if self._came.get(key, 0) >= self._at_once or key in self._waiting:
            await self._wait(key)
            return
        self._count(key)

    def next_turn(self, key: str) -> asyncio.Future[None]:
        """Done in one of the next turns, when it is the oldest one of this key. Cancel it to be passed over."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        self._schedule()
        return turn

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def _wait(self, key: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        await turn  # one whose task is cancelled is passed over

    def _count(self, key: str) -> None:
        self._schedule()
        self._came[key] = self._came.get(key, 0) + 1

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Let the next ones of each key in."""
        self._scheduled = False
        self._came.clear()
        for key, queue in list(self._waiting.items()):
            self._let_in(key, queue)
            if not queue:
                del self._waiting[key]

    def _let_in(self, key: str, queue: deque[asyncio.Future[None]]) -> None:
        while queue and self._came.get(key, 0) < self._at_once:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                self._count(key)
