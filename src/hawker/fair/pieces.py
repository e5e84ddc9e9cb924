"""What a connection reads, understood in pieces by turns of addresses.

One read may bring forty thousand frames of a few bytes: who understands them at once keeps the event loop for as long.
"""

import asyncio
from collections.abc import Callable

from hawker.fair.connections import key_of
from hawker.fair.round_robin import RoundRobin

SMALL_PIECE, LARGE_PIECE = 1024, 8 * 1024
_FEW = 4


class Pieces:
    """Of one connection of `address`. `understand` is given each piece, and returns how many frames it was: after few,
    the next piece is larger. While something is left, nothing is read."""

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
        """What was read."""
        self._left += data
        self._go_on()

    def want(self, more: bool) -> None:
        """Whether whoever understands it has room for more."""
        self._wanted = more
        if not more:
            self._read(more=False)
        self._go_on()

    def drop(self) -> None:
        """Nothing of it is understood any more."""
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
