"""Bodies of HTTP/1.1 messages: their content, cut out of a stream of bytes, and framed anew. Pure.

Lengths are counted; chunks are read strictly and their extensions dropped. What follows a body is handed back, so a
connection's next message is never a part of this one.
"""

import re
from collections.abc import Iterable
from typing import Protocol

from hawker.fair.occupancy import Occupancy

SIZE_LINE_BYTES = 1 << 10
TRAILER_BYTES = 8 << 10
TRAILERS = 32
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER = re.compile(rb"([!#$%&'*+\-.^`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_NO_TRAILERS = frozenset(
    b"""transfer-encoding content-length host connection trailer te upgrade expect authorization
    proxy-authorization cookie set-cookie content-encoding content-type content-range cache-control via
    x-forwarded-for forwarded keep-alive age date""".split()
)

Trailer = tuple[bytes, bytes]


class BadBody(Exception):
    """The bytes are no body."""


class MessageBody(Protocol):
    """The body of one message, as it comes. `done` once it is whole; its `trailers` are all there then."""

    done: bool

    @property
    def trailers(self) -> tuple[Trailer, ...]: ...

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The body's content in `data`, and the bytes behind the body's end. Raises `BadBody`."""


class NoBody:
    done = True
    trailers: tuple[Trailer, ...] = ()

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        return b"", data


class CountedBody:
    """A body of as many bytes as its head announced."""

    trailers: tuple[Trailer, ...] = ()

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        if len(data) < self._left:
            self._left -= len(data)
            return data, b""
        mine, rest = data[: self._left], data[self._left :]
        self._left, self.done = 0, True
        return mine, rest


class OpenBody:
    """A body that goes on until the connection ends; its reader sets `done` then."""

    trailers: tuple[Trailer, ...] = ()

    def __init__(self) -> None:
        self.done = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        return data, b""


class ChunkedBody:
    def __init__(self) -> None:
        self.done = False
        self._line = bytearray()  # a line that is not whole
        self._left = 0  # of the chunk under way
        self._ends_chunk = False  # CR LF comes next
        self._trailers: list[Trailer] | None = None
        self._trailer_bytes = 0

    @property
    def trailers(self) -> tuple[Trailer, ...]:
        return tuple(self._trailers or ())

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        out: list[bytes] = []
        at = 0
        while at < len(data) and not self.done:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                self._ends_chunk = not self._left
                out.append(piece)
                continue
            end = data.find(b"\n", at)
            self._line += data[at : end + 1 if end >= 0 else len(data)]
            at = end + 1 if end >= 0 else len(data)
            if len(self._line) > (SIZE_LINE_BYTES if self._trailers is None else TRAILER_BYTES):
                raise BadBody("a line between chunks is too long")
            if end >= 0:
                self._end_of_line()
        return b"".join(out), data[at:]

    def _end_of_line(self) -> None:
        line, self._line = bytes(self._line), bytearray()
        if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
            raise BadBody("a line between chunks does not end as one")
        line = line[:-2]
        if self._ends_chunk:
            if line:
                raise BadBody("a chunk is longer than it says")
            self._ends_chunk = False
        elif self._trailers is None:
            self._chunk(line)
        else:
            self._trailer(line, self._trailers)

    def _chunk(self, line: bytes) -> None:
        match = _SIZE.fullmatch(line)
        if match is None:
            raise BadBody("a chunk has no size")
        self._left = int(match[1], 16)
        if not self._left:
            self._trailers = []

    def _trailer(self, line: bytes, trailers: list[Trailer]) -> None:
        """Fields that say how a message is to be read, or who sends it, are none that may come late."""
        if not line:
            self.done = True
            return
        match = _TRAILER.fullmatch(line)
        self._trailer_bytes += len(line)
        if match is None or not may_trail(match[1].lower()):
            raise BadBody("a trailer is none that may be one")
        if self._trailer_bytes > TRAILER_BYTES or len(trailers) >= TRAILERS:
            raise BadBody("there are too many trailers")
        trailers.append((match[1], match[2].rstrip(b" \t")))


def may_trail(name: bytes) -> bool:
    """Whether a field of this name, in lower case, may come after a body."""
    return name not in _NO_TRAILERS and not name.startswith((b"fly-", b"x-forwarded"))


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


def last_chunk(trailers: Iterable[Trailer]) -> bytes:
    return b"0\r\n%b\r\n" % b"".join([b"%b: %b\r\n" % trailer for trailer in trailers])


def request_body(*, chunked: bool, length: int | None) -> MessageBody:
    """The body that a request's head announces; without chunks and length there is none."""
    if chunked:
        return ChunkedBody()
    return CountedBody(length) if length else NoBody()


BODY_S, LEAST_BYTES_PER_S = 60.0, 1024 / 60
"""Seconds in which no byte of a request's body may come, and bytes a second that must come on average, after the first
`BODY_S` seconds."""


class BodyPace:
    """The pace at which a request's body must come. `silence_s`: so many seconds may pass without a byte."""

    def __init__(self, now: float, silence_s: float) -> None:
        self._silence_s = silence_s
        self._paid_until = now + BODY_S

    def took(self, size: int) -> None:
        self._paid_until += size / LEAST_BYTES_PER_S

    def excuse(self, now: float) -> None:
        """Give the client `BODY_S` seconds anew: the machine was slow, and not the client."""
        self._paid_until = max(self._paid_until, now + BODY_S)

    def deadline(self, now: float, *, answered: bool) -> float:
        """The time by which more of the body must come, when bytes came just now. Once an answer has begun
        (`answered`), only silence counts, and not the average."""
        silent = now + self._silence_s
        return silent if answered else min(silent, self._paid_until)


_PIECE_BYTES = 16 << 10


def put_last(pieces: list[bytes], content: bytes) -> None:
    """Append `content` to the last piece or as a new one. Small pieces are joined, so that a reader of all pieces in
    one turn of the event loop has few."""
    if pieces and len(pieces[-1]) + len(content) <= _PIECE_BYTES:
        pieces[-1] += content
    else:
        pieces.append(content)


KEPT_BYTES = 1 << 20
"""The most bytes of a request's body that are kept, so that the request can be sent again."""


class KeptBody:
    """The part of a request's body that has come, while the request may be sent again: never more than `KEPT_BYTES`,
    nor than the process has for all requests (`occupancy`). `pieces` is None once the body was too much, or of no more
    use."""

    __slots__ = ("_occupancy", "_owner", "pieces", "size")

    def __init__(self, occupancy: Occupancy) -> None:
        self._occupancy = occupancy
        self._owner = ""
        self.pieces: list[bytes] | None = []
        self.size = 0

    def keep(self, owner: str, content: bytes) -> None:
        """Keep `content`. `owner` is the key in whose share the body counts, from its first byte on."""
        if self.pieces is None:
            return
        self._owner = self._owner or owner
        if self.size + len(content) > KEPT_BYTES or not self._occupancy.fits(self._owner, len(content)):
            self.drop()
            return
        self._occupancy.enter(self._owner, len(content))
        put_last(self.pieces, content)
        self.size += len(content)

    def drop(self) -> None:
        """Drop the kept pieces. A repeated call does no harm."""
        if self.size:
            self._occupancy.leave(self._owner, self.size)
        self.pieces, self.size = None, 0
