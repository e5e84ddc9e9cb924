"""Requests come in by turns of the event loop, one of each address."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

import anyio
import pytest
from anyio.lowlevel import checkpoint

from hawker.fair.round_robin import LARGE_PIECE, SMALL_PIECE, Pieces, RoundRobin

pytestmark = pytest.mark.anyio


async def test_an_address_with_many_delays_another_by_a_turn() -> None:
    entrance, came = RoundRobin(), list[str]()

    async def come(key: str) -> None:
        await entrance.come_in(key)
        came.append(key)

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(come, "many")
        tasks.start_soon(come, "one")
    assert came.index("one") <= 2
    assert came.count("many") == 100


async def test_an_address_that_is_alone_comes_in_with_more_and_is_one_of_many_again_when_it_is_not() -> None:
    entrance, came = RoundRobin(alone=4), list[str]()

    async def come(key: str) -> None:
        await entrance.come_in(key)
        came.append(key)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(come, "many")
        tasks.start_soon(come, "one")
        for _ in range(20):
            tasks.start_soon(come, "many")
    assert came.index("one") == 4
    assert came.count("many") == 40


async def test_a_first_comer_is_first_of_its_address() -> None:
    entrance, came = RoundRobin(), list[int]()

    async def come(number: int) -> None:
        await entrance.come_in("a")
        came.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(come, number)
    assert came == list(range(20))


async def test_one_that_went_away_is_passed_over() -> None:
    entrance, came = RoundRobin(), list[int]()

    async def come(number: int) -> None:
        await entrance.come_in("a")
        came.append(number)

    async with anyio.create_task_group() as gone:
        for number in range(50):
            gone.start_soon(come, number)
        await checkpoint()
        assert entrance.waiting > 0
        gone.cancel_scope.cancel()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(come, 7)
    assert came[-1] == 7
    assert len(came) < 50
    assert entrance.waiting == 0


async def test_a_request_alone_does_not_wait() -> None:
    entrance = RoundRobin()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await entrance.come_in("a")  # a cancelled task that had to wait would not come here
        await entrance.come_in("b")
        scope.shield = True
    assert not scope.cancelled_caught
    await checkpoint()


async def test_many_of_an_address_may_come_in_at_once() -> None:
    entrance = RoundRobin(at_once=3)
    with anyio.CancelScope() as scope:
        scope.cancel()
        for _ in range(3):
            await entrance.come_in("a")
        scope.shield = True
    assert not scope.cancelled_caught


async def test_a_turn_that_is_asked_for_comes_in_its_turn_and_never_when_it_is_cancelled() -> None:
    entrance, came = RoundRobin(), list[str]()

    def note(what: str, turn: object) -> None:
        came.append(what)

    for number in range(5):
        entrance.next_turn("many").add_done_callback(partial(note, f"many {number}"))
    gone = entrance.next_turn("one")
    entrance.next_turn("one").add_done_callback(partial(note, "one"))
    gone.cancel()
    while len(came) < 6:
        await checkpoint()
    assert came[:2] == ["many 0", "one"] and came[-1] == "many 4" and not entrance.waiting


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
