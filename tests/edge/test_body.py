"""Bodies cut out of a stream: in any pieces the same, and as another reader reads them."""

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.edge.body import (
    BODY_S,
    BadBody,
    BodyPace,
    ChunkedBody,
    CountedBody,
    KeptBody,
    NoBody,
    OpenBody,
    chunk,
    last_chunk,
    put_last,
)
from hawker.fair.occupancy import Occupancy
from hawker.fair.turns import Share


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    found = []
    while data:
        size = sizes.pop() if sizes else len(data)
        found.append(data[:size])
        data = data[size:]
    return found


def encoded(chunks: list[bytes], extension: bytes = b"") -> bytes:
    return b"".join(b"%x%b\r\n%b\r\n" % (len(each), extension, each) for each in chunks if each) + b"0\r\n\r\n"


class Reader:
    """llhttp, as a second reader of what we pass on."""

    def __init__(self) -> None:
        self.body, self.whole = b"", False
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.whole = True


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.lists(st.integers(1, 9), max_size=60))
def test_chunks_in_any_pieces_are_the_same_body_to_another_reader(chunks: list[bytes], sizes: list[int]) -> None:
    body, reader, content = ChunkedBody(), Reader(), b""
    for piece in pieces(encoded(chunks, b";ext=1") + b"NEXT", sizes):
        if body.done:
            break
        out, rest = body.feed(piece)
        reader.feed(chunk(out) if out else b"")
        content += out
        assert not rest or (body.done and b"NEXT".startswith(rest))
    reader.feed(last_chunk(body.trailers))
    assert body.done and reader.whole and reader.body == content == b"".join(chunks)


@given(st.binary(max_size=60))
def test_chunks_for_us_are_chunks_for_another_reader_too(data: bytes) -> None:
    body, reader = ChunkedBody(), Reader()
    try:
        content, rest = body.feed(data)
    except BadBody:
        return
    try:
        reader.feed(data[: len(data) - len(rest)])
    except httptools.HttpParserError:
        return
    assert reader.whole is body.done and reader.body == content


@pytest.mark.parametrize(
    "data",
    [
        b"zz\r\n",
        b"-1\r\n",
        b"0x5\r\n",
        b" 5\r\n",
        b"5 \r\n",
        b"\r\n",
        b"5\nhello",
        b"5\r\nhelloworld\r\n",
        b"5\r\nhello\n",
        b"ffffffffffffffff\r\n",
        b"5;" + b"x" * 2000,
        b"0\r\nContent-Length: 5\r\n",
        b"0\r\nAuthorization: x\r\n",
        b"0\r\nfly-client-ip: x\r\n",
        b"0\r\nbad name: x\r\n",
        b"0\r\n" + b"X: 1\r\n" * 40,
    ],
)
def test_a_line_that_is_no_chunk_or_trailer_is_refused(data: bytes) -> None:
    with pytest.raises(BadBody):
        ChunkedBody().feed(data)


def test_a_trailer_goes_on() -> None:
    body = ChunkedBody()
    assert body.feed(b"0\r\nX-Sum:  1\r\n\r\nrest") == (b"", b"rest") and body.done
    assert last_chunk(body.trailers) == b"0\r\nX-Sum: 1\r\n\r\n"


def test_a_counted_body_ends_where_it_says() -> None:
    body = CountedBody(5)
    assert body.feed(b"hel") == (b"hel", b"") and not body.done
    assert body.feed(b"loGET") == (b"lo", b"GET") and body.done
    assert NoBody().feed(b"x") == (b"", b"x") and OpenBody().feed(b"x") == (b"x", b"")


def test_a_body_that_drips_has_its_first_minute_and_what_its_bytes_pay_for() -> None:
    pace, now = BodyPace(0.0, BODY_S), 0.0
    while now < min(1000.0, pace.deadline(now, answered=False)):
        now += 1.0
        pace.took(1)
    assert 60 < now < 70, "a byte a second, where 17 are the least"


def test_a_body_that_comes_as_fast_as_it_must_goes_on() -> None:
    pace = BodyPace(0.0, BODY_S)
    for minute in range(1, 100):
        assert minute * 60.0 <= pace.deadline(minute * 60.0 - 1, answered=False)
        pace.took(1024)


def test_a_body_has_no_pace_once_an_answer_has_begun_or_while_the_machine_takes_nothing() -> None:
    pace = BodyPace(0.0, BODY_S)
    assert pace.deadline(500.0, answered=False) == 60.0 and pace.deadline(500.0, answered=True) == 560.0
    pace.excuse(500.0)
    assert pace.deadline(500.0, answered=False) == 560.0


def test_a_body_that_is_silent_has_no_more_time_for_all_that_came_before() -> None:
    pace = BodyPace(0.0, 5.0)
    pace.took(1 << 30)
    assert pace.deadline(10.0, answered=False) == 15.0


def test_a_kept_body_counts_for_who_had_its_first_byte_and_for_nobody_once_it_is_dropped() -> None:
    occupancy = Occupancy(Share(name="kept", total=100, each=50, reserve=10, key="organization", over="not kept"))
    kept = KeptBody(occupancy)
    kept.keep("acme", b"x" * 20)
    kept.keep("other", b"x" * 20)
    assert occupancy.counts == {"acme": 40} and kept.size == 40
    kept.keep("acme", b"x" * 11)
    assert kept.pieces is None and occupancy.total == 0 and not occupancy.counts
    kept.keep("acme", b"x")
    kept.drop()
    assert kept.pieces is None and occupancy.total == 0


def test_a_kept_body_that_came_byte_by_byte_is_sent_again_in_few_pieces() -> None:
    size = 100_000
    kept = KeptBody(Occupancy(Share(name="kept", total=size, each=size, key="organization", over="not kept")))
    for _ in range(size):
        kept.keep("acme", b"x")
    assert kept.pieces is not None and b"".join(kept.pieces) == b"x" * size and len(kept.pieces) < 20


@given(st.lists(st.integers(1, 40_000), max_size=60))
def test_joined_pieces_are_few_and_whole(sizes: list[int]) -> None:
    found: list[bytes] = []
    for number, size in enumerate(sizes):
        put_last(found, bytes([number]) * size)
    assert b"".join(found) == b"".join(bytes([number]) * size for number, size in enumerate(sizes))
    assert len(found) <= 2 * sum(sizes) / (16 << 10) + 1
    assert all(len(each) <= 16 << 10 or len(each) in sizes for each in found)
