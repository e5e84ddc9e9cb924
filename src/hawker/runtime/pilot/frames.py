"""Frames of the pilot protocol (guest/PROTOCOL.md): how they are cut from a byte stream, and fields within a payload.

Pure and bounded: a parser never holds more than one frame, and hostile bytes give `MalformedPilotFrame`, nothing else.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum

from hawker.value_object import ValueObject

MAGIC = 0x504B5748
VERSION = 5
OLDEST_VERSION = 1  # of a pilot that may still run: machines outlive the hawker that started them
FRAME_MAX = 65536
PAYLOAD_MAX = FRAME_MAX - 5
OUT_WINDOW = 256 << 10  # bytes of a session's output that the pilot may have sent and we not yet consumed
WORDS_MAX = 1024  # characters of what the other side has to say for people
IN_WINDOW = 64 << 10  # bytes of input that we may have sent and the command not yet read

_HEAD = struct.Struct("<IBI")


class FrameKind(IntEnum):
    HELLO = 1
    SPEC = 2
    STOP = 3
    SIGNAL = 4
    EXEC = 5
    STDIN = 6
    STDIN_END = 7
    RESIZE = 8
    CREDIT = 9
    CLOSE = 10
    LIST = 11
    WATCH = 12  # from here to CONCLUDE: to a pilot of version 2
    RUN = 13
    END = 14
    CONCLUDE = 15
    CLOCK = 16  # from here to USAGE: to a pilot of version 3 with a kernel of its own
    FREEZE = 17
    THAW = 18
    GROW = 19
    MEMORY = 20
    USAGE = 21
    ATTACH = 22  # to a pilot of version 4
    TRIM = 23  # to a pilot of version 5 with a kernel of its own
    READY = 33
    REFUSED = 34
    EXIT = 35
    STDOUT = 36
    STDERR = 37
    PROCESS = 38
    LIST_END = 39
    STATE = 40
    WATCHING = 41
    DONE = 42
    MEMORY_IS = 43
    USAGE_IS = 44
    ATTACHED = 45


KINDS = frozenset(map(int, FrameKind))


class MalformedPilotFrame(ValueError):
    """The other side sent what the protocol does not allow."""


class Frame(ValueObject, frozen=True):
    kind: int  # a `FrameKind`, or a number that a newer pilot knows
    channel: int
    """Of the session that it is of, 0 for the connection itself."""
    payload: bytes
    """At most `PAYLOAD_MAX` bytes."""


def encode(kind: FrameKind, channel: int = 0, payload: bytes = b"") -> bytes:
    assert len(payload) <= PAYLOAD_MAX
    return _HEAD.pack(len(payload) + 5, kind, channel) + payload


class FrameParser:
    """Feed it what arrives; it yields the frames that are complete."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        self._rest += data
        at = 0
        try:
            while (end := self._frame_end(at)) is not None:
                _, kind, channel = _HEAD.unpack_from(self._rest, at)
                payload = bytes(self._rest[at + _HEAD.size : end])
                at = end
                yield Frame(kind, channel, payload)
        finally:
            del self._rest[:at]

    def _frame_end(self, at: int) -> int | None:
        """Where the frame at `at` ends, or None while it is not complete."""
        if len(self._rest) - at < 4:
            return None
        length = int.from_bytes(self._rest[at : at + 4], "little")
        if not 5 <= length <= FRAME_MAX:
            raise MalformedPilotFrame(f"a frame of {length} bytes")
        end = at + 4 + length
        return end if len(self._rest) >= end else None


class PayloadReader:
    """Reads the fields of a payload, in order. A call raises `MalformedPilotFrame` past the end, or for a bad field."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def string(self) -> str:
        """A string is for people or is compared; bytes that are no UTF-8 are kept as escapes."""
        text = self._take(self.number(4))
        if self._take(1) != b"\0":
            raise MalformedPilotFrame("a string without its end")
        return text.decode("utf-8", "backslashreplace")

    def words(self) -> str:
        """A string that is shown to people, who may have a terminal: short, on one line, and nothing in it obeyed."""
        text = self.string()[:WORDS_MAX]
        return text if text.isprintable() else "".join(map(_shown, text))

    def strings(self) -> tuple[str, ...]:
        count = self.number(4)
        if count > len(self._data):
            raise MalformedPilotFrame("a list longer than its payload")
        return tuple(self.string() for _ in range(count))

    @property
    def more(self) -> bool:
        """Whether fields follow: a newer version has some that an older one has not."""
        return self._at < len(self._data)

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise MalformedPilotFrame("a payload that ends too soon")
        taken = self._data[self._at : end]
        self._at = end
        return taken


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def number(value: int, width: int) -> bytes:
    return value.to_bytes(width, "little")


def nanoseconds(unix_s: float) -> bytes:
    """A point in time, as the protocol has it."""
    return number(round(unix_s * 1e9), 8)


def milliseconds(seconds: float) -> bytes:
    """Seven weeks at most, which is as good as for ever."""
    return number(min(max(round(seconds * 1000), 0), 2**32 - 1), 4)


def blob(data: bytes) -> bytes:
    return number(len(data), 4) + data


def string(text: str) -> bytes:
    """`surrogateescape` lets names through that are no UTF-8. A NUL inside is refused by the pilot."""
    return blob(text.encode("utf-8", "surrogateescape")) + b"\0"


def strings(texts: tuple[str, ...]) -> bytes:
    return number(len(texts), 4) + b"".join(string(text) for text in texts)
