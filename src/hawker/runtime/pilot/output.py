"""Reads what a workload wrote: the two segments of the pilot's output ring (guest/PROTOCOL.md).

The pilot writes meanwhile, and may empty the older segment under us: what was read counts only when it has no gap.
"""

import itertools
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hawker.runtime.driver import OutputChunk

ANSWER_MAX = 4 << 20  # bytes in one answer
SEGMENT_MAX = 64 << 20  # far above any limit we set; what is past it is not ours
SEGMENT_DEFAULT = 4 << 20
_POSITION_MAX = (1 << 63) - 1  # what others can store
_TRIES = 3
_HEAD = struct.Struct("<IIQQBBxx")


@dataclass(frozen=True, slots=True)
class Segment:
    """One of the two segments of an output ring: bytes of a file."""

    path: Path
    offset: int = 0  # bytes
    length: int = SEGMENT_MAX  # bytes, at the most
    consecutive: bool = False  # never emptied but written over: what does not follow the record before it is old


def read_output(segments: tuple[Segment, Segment], *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
    """Chunks past position `after`, oldest first, up to `ANSWER_MAX` bytes; with `tail`, only the last lines."""
    chunks: list[OutputChunk] = []
    for _ in range(_TRIES):
        chunks = _read_both(segments, after)
        if not _has_gap(chunks):
            break
    return _first_bytes(chunks) if tail is None else _last_lines(chunks, tail)


def _read_both(segments: tuple[Segment, Segment], after: int) -> list[OutputChunk]:
    older, newer = sorted(
        (list(scan(_read(each), after, consecutive=each.consecutive)) for each in segments),
        key=lambda part: part[0].position if part else -1,
    )
    last = older[-1].position if older else -1
    return older + [chunk for chunk in newer if chunk.position > last]


def _read(segment: Segment) -> bytes:
    """Up to where the file has a hole: nothing was ever written from there on."""
    try:
        with segment.path.open("rb", buffering=0) as file:
            hole = os.lseek(file.fileno(), segment.offset, os.SEEK_HOLE)
            file.seek(segment.offset)
            return file.read(min(segment.length, hole - segment.offset))
    except OSError:  # not there, or shorter
        return b""


def scan(data: bytes, after: int, *, consecutive: bool = False) -> Iterator[OutputChunk]:
    """The records of one segment, until its end or the first that is torn, or does not follow the one before."""
    at, view = 0, memoryview(data)
    expected: int | None = None
    while at + _HEAD.size <= len(data):
        crc, length, position, unix_ns, stream, process = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        if end > len(data) or position > _POSITION_MAX or (consecutive and expected not in (None, position)):
            return
        expected = position + 1
        if position > after:
            if zlib.crc32(view[at + 4 : end]) != crc:
                return
            yield OutputChunk(
                position=position, at=unix_ns / 1e9, stream=stream, process=process, data=data[at + _HEAD.size : end]
            )
        at = end


def _has_gap(chunks: list[OutputChunk]) -> bool:
    return any(later.position != earlier.position + 1 for earlier, later in itertools.pairwise(chunks))


def _first_bytes(chunks: list[OutputChunk]) -> list[OutputChunk]:
    room = ANSWER_MAX
    for count, chunk in enumerate(chunks):
        room -= len(chunk.data)
        if room < 0:
            return chunks[:count]
    return chunks


def _last_lines(chunks: list[OutputChunk], lines: int) -> list[OutputChunk]:
    """Walks back until `lines` lines are behind us. The newline at the very end closes a line and begins none."""
    kept: list[OutputChunk] = []
    room, wanted = ANSWER_MAX, lines
    if lines <= 0:
        return []
    for chunk in reversed(chunks):
        room -= len(chunk.data)
        if room < 0:
            break
        closing = 1 if not kept and chunk.data.endswith(b"\n") else 0
        breaks = chunk.data.count(b"\n") - closing
        if breaks >= wanted:
            kept.append(_cut(chunk, wanted, closing))
            break
        wanted -= breaks
        kept.append(chunk)
    return [chunk for chunk in reversed(kept) if chunk.data]


def _cut(chunk: OutputChunk, lines: int, closing: int) -> OutputChunk:
    at = len(chunk.data) - closing
    for _ in range(lines):
        at = chunk.data.rindex(b"\n", 0, at)
    return OutputChunk(
        position=chunk.position, at=chunk.at, stream=chunk.stream, process=chunk.process, data=chunk.data[at + 1 :]
    )
