"""Where requests come in, and what one connection reads: one of each address in each turn of the event loop. An address
with a thousand requests at once delays another one by a turn, and not by a thousand answers; and one read that brings
forty thousand small frames is understood in pieces.

Only the coming in is ordered; once inside, requests wait for each other where they share something.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from hawker.fair.connections import key_of


class RoundRobin:
    """The order in which requests come in, for one event loop. In one turn `at_once` requests of one address come in,
    and `alone` while no other address has requests: the address of a balancer is that of all its clients, and a turn
    has its price."""

    def __init__(self, at_once: int = 1, *, alone: int = 1) -> None:
        self._at_once = at_once
        self._alone = max(alone, at_once)
        self._came: dict[str, int] = {}  # in this turn
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._scheduled = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def come_in(self, key: str) -> None:
        """Returns when it is this request's turn: requests of one key come in in the order in which they came."""
        if not self.comes_in(key):
            await self.wait(key)

    def comes_in(self, key: str) -> bool:
        """Whether a request of this key comes in at once; it is counted in this turn then."""
        at_once = key not in self._waiting and self._has_room(key)
        if at_once:
            self._count(key)
        return at_once

    def next_turn(self, key: str) -> asyncio.Future[None]:
        """A future that is done in one of the next turns, when it is the oldest future of this key. A cancelled future
        is passed over."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        self._schedule()
        return turn

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def wait(self, key: str) -> asyncio.Future[None]:
        """A future as of `next_turn`, for a request that `comes_in` has refused: a next turn is due then, and none is
        asked for here."""
        if self._loop is None:  # asking for it costs a call of the kernel each time
            self._loop = asyncio.get_running_loop()
        turn, queue = self._loop.create_future(), self._waiting.get(key)
        if queue is None:
            queue = self._waiting[key] = deque()
        queue.append(turn)
        return turn

    def _has_room(self, key: str) -> bool:
        came = self._came.get(key, 0)
        return came < self._at_once or (came < self._alone and len(self._came) == 1 and len(self._waiting) <= 1)

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
        while queue and self._has_room(key):
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                self._count(key)


SMALL_PIECE, LARGE_PIECE = 1024, 8 * 1024
_FEW = 4


class Pieces:
    """The bytes of one connection of `address`, which are understood piece by piece. `understand` is given each piece,
    and returns how many frames it was: after few, the next piece is larger. While bytes are left, the connection is not
    read."""

    def __init__(
        self, transport: asyncio.Transport, turns: RoundRobin, address: str, understand: Callable[[bytes], int]
    ) -> None:
        self._transport = transport
        self._turns = turns
        self._key = key_of(address)
        self._understand = understand
        self._left = b""
        self._size = SMALL_PIECE
        self._turn: asyncio.Future[None] | None = None
        self._reads = self._wanted = True

    def take(self, data: bytes) -> None:
        """Take bytes that were read from the connection."""
        self._left += data
        self._go_on()

    def want(self, more: bool) -> None:
        """Say whether the reader of the pieces has room for `more`; without room nothing is read or understood."""
        self._wanted = more
        if not more:
            self._read(more=False)
        self._go_on()

    def drop(self) -> None:
        """Drop the bytes that are left: none of them is understood any more."""
        self._left = b""
        if self._turn is not None:
            self._turn.cancel()

    def _go_on(self) -> None:
        if not self._wanted or self._turn is not None or self._transport.is_closing():
            return
        self._read(more=not self._left)
        if self._left:
            self._turn = self._turns.next_turn(self._key)
            self._turn.add_done_callback(self._on_turn)

    def _on_turn(self, turn: "asyncio.Future[None]") -> None:
        self._turn = None
        if turn.cancelled() or not self._wanted:
            return
        piece, self._left = self._left[: self._size], self._left[self._size :]
        few = self._understand(piece) <= _FEW
        self._size = min(2 * self._size, LARGE_PIECE) if few else SMALL_PIECE
        self._go_on()

    def _read(self, *, more: bool) -> None:
        if more != self._reads and not self._transport.is_closing():
            self._reads = more
            (self._transport.resume_reading if more else self._transport.pause_reading)()
