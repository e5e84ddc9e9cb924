"""Reads the pilot's event journal (guest/PROTOCOL.md). A torn or foreign tail is where the journal ends."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from hawker.runtime.driver import Exit
from hawker.runtime.pilot.frames import Malformed, Reader
from hawker.runtime.pilot.messages import read_ending

_HEAD = struct.Struct("<IHBx")
_READ_MAX = 64 << 10  # a pilot writes less than 16 KiB


class _Record(IntEnum):
    STARTED = 1
    ACCEPTED = 2
    READY = 3
    PROCESS_EXIT = 4
    FINAL_EXIT = 5


@dataclass(frozen=True, slots=True)
class Story:
    """What the journal tells. Times are Unix seconds."""

    started_at: float | None = None
    pilot_pid: int | None = None  # as the pilot sees itself: 1 in a pid namespace of its own
    instance_id: str | None = None
    ready_at: float | None = None
    first_exit: Exit | None = None
    final_exit: Exit | None = None


def read_journal(path: Path) -> Story:
    try:
        with path.open("rb") as file:
            return tell(file.read(_READ_MAX))
    except FileNotFoundError:
        return Story()


def tell(data: bytes) -> Story:
    story = Story()
    for kind, payload in _records(data):
        try:
            story = _continued(story, kind, Reader(payload))
        except Malformed:
            break
    return story


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEAD.size <= len(data):
        crc, length, kind = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        if end > len(data) or zlib.crc32(data[at + 4 : end]) != crc:
            return
        yield kind, data[at + _HEAD.size : end]
        at = end


def _continued(story: Story, kind: int, reader: Reader) -> Story:
    match kind:
        case _Record.STARTED:
            return replace(story, started_at=_seconds(reader), pilot_pid=reader.number(4))
        case _Record.ACCEPTED:
            reader.number(8)
            return replace(story, instance_id=reader.string())
        case _Record.READY:
            return replace(story, ready_at=_seconds(reader))
        case _Record.PROCESS_EXIT:
            return replace(story, first_exit=story.first_exit or read_ending(reader))
        case _Record.FINAL_EXIT:
            return replace(story, final_exit=read_ending(reader))
        case _:
            return story  # a newer pilot knows more


def _seconds(reader: Reader) -> float:
    return reader.number(8) / 1e9
