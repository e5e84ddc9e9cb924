"""What was read is understood in pieces, one of each address in a turn of the event loop."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from anyio.lowlevel import checkpoint

from hawker.fair.pieces import LARGE_PIECE, SMALL_PIECE, Pieces
from hawker.fair.round_robin import RoundRobin

pytestmark = pytest.mark.anyio


class Transport:
    """Remembers whether it is read."""

    reads = True
    closing = False

    def pause_reading(self) -> None:
        assert self.reads, "it is paused already"
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads, "it is read already"
        self.reads = True

    def is_closing(self) -> bool:
        return self.closing


class Reader:
    """`frames`: how many each piece was."""

    def __init__(self, turns: RoundRobin, address: str = "10.0.0.1", frames: Callable[[bytes], int] = len) -> None:
        self.transport, self.heard = Transport(), list[bytes]()
        self._frames = frames
        self.pieces = Pieces(cast(asyncio.Transport, self.transport), turns, address, self._understand)

    def _understand(self, piece: bytes) -> int:
        self.heard.append(piece)
        return self._frames(piece)

    async def settled(self) -> "Reader":
        while not self.transport.reads:
            await checkpoint()
        return self


async def test_pieces_of_many_frames_stay_small_and_nothing_is_read_meanwhile() -> None:
    reader, data = Reader(RoundRobin()), bytes(range(256)) * 40
    reader.pieces.take(data)
    assert not reader.transport.reads
    await reader.settled()
    assert b"".join(reader.heard) == data and {len(each) for each in reader.heard} == {SMALL_PIECE}


async def test_pieces_of_few_frames_grow_to_a_bound() -> None:
    reader = Reader(RoundRobin(), frames=lambda piece: 1)
    reader.pieces.take(b"x" * 100_000)
    await reader.settled()
    assert [len(each) for each in reader.heard[:4]] == [1024, 2048, 4096, LARGE_PIECE]
    assert max(map(len, reader.heard)) == LARGE_PIECE


async def test_another_address_waits_for_one_piece_however_many_connections_pour() -> None:
    turns = RoundRobin()
    loud = [Reader(turns) for _ in range(50)]
    quiet = Reader(turns, "10.0.0.2")
    for each in (*loud, quiet):
        each.pieces.take(b"x" * 20 * SMALL_PIECE)
    await quiet.settled()
    assert sum(len(each.heard) for each in loud) <= 2 * len(quiet.heard) + 2  # of 1,000 that it would be by itself


async def test_a_user_without_room_is_given_nothing_until_it_has_some() -> None:
    reader = Reader(RoundRobin())
    reader.pieces.take(b"x" * 3 * SMALL_PIECE)
    reader.pieces.want(False)
    for _ in range(20):
        await checkpoint()
    assert not reader.heard and not reader.transport.reads
    reader.pieces.want(True)
    assert len((await reader.settled()).heard) == 3


async def test_pieces_that_are_dropped_are_not_understood() -> None:
    reader = Reader(RoundRobin())
    reader.pieces.take(b"x")
    reader.pieces.drop()
    for _ in range(5):
        await checkpoint()
    assert not reader.heard
