"""What a played VMM changes of the talk between a client and the pilot of its guest, which has no kernel of its own: it
is told of no disks and links, and what only a kernel of its own could do is answered in its place. Pure.
"""

import struct
from collections.abc import Callable, Iterator

from hawker.runtime.pilot.frames import PAYLOAD_MAX, Frame, FrameKind, FrameParser, encode, string

_ALONE = frozenset(
    {FrameKind.CLOCK, FrameKind.FREEZE, FrameKind.THAW, FrameKind.GROW, FrameKind.MEMORY, FrameKind.USAGE}
)
_THIRD_PART = 4
_BLOCK, _BLOCKS = 4096, 1 << 16


class Talk:
    """One connection. `memory` is total and available bytes, as they are now."""

    def __init__(self, memory: Callable[[], tuple[int, int]]) -> None:
        self._memory = memory
        self._said = FrameParser()
        self._heard = FrameParser()
        self._spec = bytearray()

    def of_client(self, data: bytes) -> tuple[bytes, bytes]:
        """What goes on to the pilot, and what goes back."""
        to_pilot, back = b"", b""
        for frame in self._said.feed(data):
            if frame.kind in _ALONE:
                back += self._answer(frame)
            elif frame.kind == FrameKind.SPEC:
                to_pilot += self._take(frame)
            else:
                to_pilot += _again(frame)
        return to_pilot, back

    def of_pilot(self, data: bytes) -> bytes:
        """Whole frames only, so that an answer of ours never comes in between."""
        return b"".join(_again(frame) for frame in self._heard.feed(data))

    def _take(self, frame: Frame) -> bytes:
        self._spec += frame.payload[1:]
        if not frame.payload[0]:
            return b""
        plain = without_third_part(bytes(self._spec))
        self._spec.clear()
        return b"".join(_parts(plain))

    def _answer(self, frame: Frame) -> bytes:
        if frame.kind == FrameKind.MEMORY:
            total, available = self._memory()
            return encode(FrameKind.MEMORY_IS, frame.channel, struct.pack("<5Q", total, available, available, 0, 0))
        if frame.kind == FrameKind.USAGE:
            return encode(FrameKind.USAGE_IS, frame.channel, struct.pack("<4Q", _BLOCK, _BLOCKS, _BLOCKS, _BLOCKS))
        return encode(FrameKind.DONE, frame.channel, string(""))


def without_third_part(spec: bytes) -> bytes:
    """A run spec as a machine without a kernel of its own takes it (guest/PROTOCOL.md)."""
    walk = _Walk(spec)
    walk.string()
    walk.string()
    flags_at = walk.at
    flags = walk.number("B")
    walk.skip(1 + 4 + 4)
    walk.files()
    processes = walk.number("I")
    for _ in range(processes):
        walk.command()
    if flags & 2:
        walk.skip(1)
        for _ in range(processes):
            walk.string()
            walk.string()
            walk.skip(1)
            walk.files()
    return spec[:flags_at] + bytes([flags & ~_THIRD_PART]) + spec[flags_at + 1 : walk.at]


class _Walk:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def skip(self, count: int) -> None:
        self.at += count

    def number(self, kind: str) -> int:
        (value,) = struct.unpack_from(f"<{kind}", self._data, self.at)
        self.at += struct.calcsize(f"<{kind}")
        return int(value)

    def string(self) -> None:
        self.skip(self.number("I") + 1)

    def strings(self) -> None:
        for _ in range(self.number("I")):
            self.string()

    def files(self) -> None:
        for _ in range(self.number("I")):
            self.string()
            self.skip(4)
            self.skip(self.number("I"))

    def command(self) -> None:
        self.strings()
        self.strings()
        self.string()
        self.string()
        self.skip(1 + 2 + 2)


def _again(frame: Frame) -> bytes:
    return encode(frame.kind, frame.channel, frame.payload)  # type: ignore[arg-type]


def _parts(spec: bytes) -> Iterator[bytes]:
    step = PAYLOAD_MAX - 1
    for at in range(0, len(spec), step):
        last = at + step >= len(spec)
        yield encode(FrameKind.SPEC, 0, bytes([last]) + spec[at : at + step])
