"""Clients that leave their answers lying: what counts as progress, and who is excused."""

import asyncio
import struct
from unittest.mock import Mock

import pytest

from hawker.http.untaken import CROWD_BYTES, CROWDED_S, ROOM_BYTES, UNTAKEN_S, Untaken, UntakenStreams, is_deaf

NOTHING_MOVES = [(0.0, 100, 50), (30.0, 100, 50), (50.0, 100, 50), (60.0, 100, 50)]


def transport(buffered: int, told: bytes | None) -> Mock:
    made = Mock(spec=asyncio.Transport)
    made.get_write_buffer_size.return_value = buffered
    made.get_extra_info.return_value = (
        None if told is None else Mock(getsockopt=lambda level, option, size: told[:size])
    )
    return made


def heard(data_ms: int, acknowledged_ms: int, acknowledged: int, under_way: int = 1) -> bytes:
    return struct.pack("=24xI24xII60xQ16xI", under_way, data_ms, acknowledged_ms, acknowledged, 0)


def told(acknowledged: int, under_way: int = 3) -> bytes:
    """As the kernel writes its `tcp_info`."""
    return struct.pack("=24xI92xQ16xI", under_way, acknowledged, 0)


@pytest.mark.parametrize(
    ("looks", "late"),
    [
        (NOTHING_MOVES, True),
        ([*NOTHING_MOVES[:-1], (60.0, 101, 50)], False),
        ([*NOTHING_MOVES[:-1], (60.0, 100, 49)], False),
        ([*NOTHING_MOVES[:-1], (60.0, 100, 51)], True),
        ([*NOTHING_MOVES[:2], (50.0, 101, 50), (109.0, 101, 50)], False),
        ([*NOTHING_MOVES[:2], (50.0, 101, 50), (110.0, 101, 50)], True),
    ],
)
def test_progress_is_what_the_client_acknowledges_or_the_kernel_takes(
    looks: list[tuple[float, int, int]], late: bool
) -> None:
    untaken = Untaken()
    found = [untaken.too_long(transport(buffered, told(taken)), now) for now, taken, buffered in looks]
    assert found == [False] * (len(looks) - 1) + [late]


@pytest.mark.parametrize("said", [None, b"old"])
def test_progress_without_a_kernel_that_tells_is_what_leaves_the_buffer(said: bytes | None) -> None:
    untaken = Untaken()
    assert [untaken.too_long(transport(*of), now) for now, of in ((0.0, (9, said)), (61.0, (8, said)))] == [False] * 2
    assert untaken.too_long(transport(8, said), 61.0 + UNTAKEN_S)


def test_client_to_which_nothing_is_on_its_way_is_waited_for() -> None:
    untaken = Untaken()
    assert not untaken.too_long(transport(0, told(5)), 0.0) and untaken.on_its_way
    assert not untaken.too_long(transport(0, told(5, under_way=0)), 90.0) and not untaken.on_its_way
    assert not untaken.too_long(transport(0, told(5)), 100.0)


def test_client_that_is_gone_is_found_while_nothing_waits_for_it() -> None:
    streams = UntakenStreams(Mock(waiting=0), {})
    alive, silent = (transport(0, heard(ms, ms, 7)) for ms in (59_999, 60_000))
    looks = ((0.0, alive), (29.0, silent), (30.0, silent))
    assert [streams.too_long(of, now, blocked=False) for now, of in looks] == [False, False, True]


@pytest.mark.parametrize(("acknowledged", "under_way"), [(7, 0), (6, 1)], ids=["nothing was under way", "it took some"])
def test_client_that_may_have_had_no_time_is_not_gone(acknowledged: int, under_way: int) -> None:
    first, then = heard(60_000, 60_000, acknowledged, under_way), heard(60_000, 60_000, 7)
    untaken = Untaken()
    assert [untaken.is_gone(transport(0, of), now) for now, of in ((0.0, first), (30.0, then))] == [False, False]


def test_streams_are_told_when_they_hold_too_much_and_when_that_is_over() -> None:
    session, stream = Mock(waiting=CROWD_BYTES, waiting_on=Mock(return_value=1)), Mock()
    streams = UntakenStreams(session, {1: stream})
    told_so = []
    for waiting in (CROWD_BYTES, CROWD_BYTES + 1, ROOM_BYTES + 1, ROOM_BYTES):
        session.waiting = waiting
        streams.count()
        told_so.append((streams.crowded, stream.tell_room.call_count))
    assert told_so == [(False, 0), (True, 1), (True, 1), (False, 2)]


class PlayedSession:
    """Of streams whose machines have more than anybody takes; `wants` says of which."""

    def __init__(self, wants: dict[int, int]) -> None:
        self.wants, self.size = wants, dict.fromkeys(wants, 0)
        self.untaken_streams = UntakenStreams(self, {each: PlayedStream(self, each) for each in wants})

    @property
    def waiting(self) -> int:
        return sum(self.size.values())

    def waiting_on(self, stream: int) -> int:
        return self.size[stream]

    def untaken(self, now: float, for_s: float, *, excused: bool) -> list[int]:
        return []

    def send(self) -> None:
        """16 KiB of each stream by turns, as the library does."""
        for stream, size in self.size.items():
            self.size[stream] = max(0, size - (16 << 10))
        self.untaken_streams.count()


class PlayedStream:
    def __init__(self, session: PlayedSession, number: int) -> None:
        self.session, self.number = session, number

    def tell_room(self) -> None:
        """Its machine writes at once, in pieces, while it may."""
        session, number = self.session, self.number
        while not session.untaken_streams.crowded and session.size[number] < 256 << 10 and session.wants[number]:
            piece = min(64 << 10, session.wants[number])
            session.wants[number] -= piece
            session.size[number] += piece
            session.untaken_streams.count()


def test_small_answer_has_its_turn_beside_any_number_of_large_ones() -> None:
    session = PlayedSession({**dict.fromkeys(range(10), 1 << 40), 10: 1000})
    session.untaken_streams.count()
    for stream in range(10):
        session.untaken_streams._streams[stream].tell_room()
    assert session.untaken_streams.crowded and session.wants[10]
    for _ in range(20):
        session.send()
    assert not session.wants[10] and session.waiting <= CROWD_BYTES + (64 << 10)


def test_streams_that_hold_up_others_are_waited_for_less_long() -> None:
    session = Mock(waiting=CROWD_BYTES + 1)
    streams = UntakenStreams(session, {})
    for patience_s in (UNTAKEN_S, CROWDED_S):
        streams.streams(5.0, blocked=False)
        session.untaken.assert_called_with(5.0, patience_s, excused=False)
        streams.count()


@pytest.mark.parametrize(
    ("under_way", "data_ms", "acknowledged_ms", "deaf"),
    [
        (1, 20_000, 20_000, True),
        (1, 20_000, 19_999, False),
        (1, 19_999, 20_000, False),
        (0, 120_000, 120_000, False),
        (9, 0, 0, False),
    ],
)
def test_deaf_is_a_client_whose_kernel_leaves_what_is_sent_without_an_answer(
    under_way: int, data_ms: int, acknowledged_ms: int, deaf: bool
) -> None:
    assert is_deaf(transport(0, heard(data_ms, acknowledged_ms, 0, under_way)), 20.0) is deaf


@pytest.mark.parametrize("said", [None, b"old"])
def test_deaf_is_nobody_where_the_kernel_does_not_tell(said: bytes | None) -> None:
    assert not is_deaf(transport(0, said), 20.0)
