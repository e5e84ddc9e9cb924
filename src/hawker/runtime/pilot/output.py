"""Reads what a workload wrote: the two segments of the pilot's output ring (guest/PROTOCOL.md).

The pilot writes meanwhile, and may empty the older segment under us: what was read counts only when it has no gap.
"""

import itertools
import os
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

from hawker.runtime.driver import MAX_PROCESSES, OutputChunk
from hawker.value_object import ValueObject

ANSWER_MAX = 4 << 20  # bytes in one answer
SEGMENT_MAX = 64 << 20  # far above any limit we set; what is past it is not ours
SEGMENT_DEFAULT = 4 << 20
_CHUNK_MAX = 16 << 10  # bytes of one record: OUTPUT_CHUNK of every pilot
_NUMBER_MAX = (1 << 63) - 1  # what others can store
_STREAMS = (1, 2)
_TRIES = 3
_MARKS = 1024
_HEAD = struct.Struct("<IIQQBBxx")


class Segment(ValueObject, frozen=True):
    """One of the two segments of an output ring: bytes of a file."""

    path: Path
    offset: int = 0  # bytes
    length: int = SEGMENT_MAX  # bytes, at the most
    consecutive: bool = False  # never emptied but written over: what does not follow the record before it is old


class _Mark(ValueObject, frozen=True):
    """How far a segment was read: the first record's position, where its records end, and the last one's position."""

    first: int
    end: int
    last: int


class OutputReader:
    """Reads rings, and remembers where a reader was: who asks for what comes after a position that was just answered
    costs a look at what is new, not at all that is there. Safe in threads."""

    def __init__(self) -> None:
        self._marks: OrderedDict[tuple[tuple[Segment, Segment], int], tuple[_Mark, _Mark]] = OrderedDict()
        self._lock = Lock()

    def read(self, segments: tuple[Segment, Segment], *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
        """As `read_output`."""
        with self._lock:
            marks = self._marks.get((segments, after)) if tail is None else None
        found = None if marks is None else _read_on(segments, marks)
        if found is None:
            found = _read_whole(segments, after)
        chunks, marks = found
        answer = _first_bytes(chunks) if tail is None else _last_lines(chunks, tail)
        last = chunks[-1].position if chunks else after
        if len(answer) == len(chunks) or not chunks:
            self._remember(segments, last, marks)
        return answer

    def _remember(self, segments: tuple[Segment, Segment], after: int, marks: tuple[_Mark, _Mark]) -> None:
        with self._lock:
            self._marks[segments, after] = marks
            self._marks.move_to_end((segments, after))
            if len(self._marks) > _MARKS:
                self._marks.popitem(last=False)


def read_output(segments: tuple[Segment, Segment], *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
    """Chunks past position `after`, oldest first, up to `ANSWER_MAX` bytes; with `tail`, only the last lines."""
    return OutputReader().read(segments, after=after, tail=tail)


def _read_whole(segments: tuple[Segment, Segment], after: int) -> tuple[list[OutputChunk], tuple[_Mark, _Mark]]:
    for _ in range(_TRIES):
        (first, mark), (second, other) = (_read_segment(each, after) for each in segments)
        older, newer = sorted((first, second), key=lambda part: part[0].position if part else -1)
        last = older[-1].position if older else -1
        chunks = older + [chunk for chunk in newer if chunk.position > last]
        if not _has_gap(chunks):
            break
    return chunks, (mark, other)


def _read_segment(segment: Segment, after: int) -> tuple[list[OutputChunk], _Mark]:
    data = _read(segment)
    records = list(_records(data, after, segment.consecutive, None))
    end, last, _ = records[-1] if records else (0, -1, None)
    return [chunk for _, _, chunk in records if chunk is not None], _Mark(_first_position(data), end, last)


def _read_on(
    segments: tuple[Segment, Segment], marks: tuple[_Mark, _Mark]
) -> tuple[list[OutputChunk], tuple[_Mark, _Mark]] | None:
    """What is new since `marks`; None when a segment was begun anew, or more than one has something new."""
    parts, new = [], []
    for segment, mark in zip(segments, marks, strict=True):
        if _first_position(_read(segment, 0, _HEAD.size)) != mark.first:
            return None
        records = list(_records(_read(segment, mark.end), -1, segment.consecutive, mark.last + 1))
        parts.append([chunk for _, _, chunk in records if chunk is not None])
        end, last, _ = records[-1] if records else (0, mark.last, None)
        new.append(_Mark(mark.first, mark.end + end, last))
    chunks = parts[0] or parts[1]
    if (parts[0] and parts[1]) or (chunks and chunks[0].position != max(mark.last for mark in marks) + 1):
        return None
    return chunks, (new[0], new[1])


def _first_position(data: bytes) -> int:
    return _HEAD.unpack_from(data)[2] if len(data) >= _HEAD.size else -1


def _read(segment: Segment, at: int = 0, most: int = SEGMENT_MAX) -> bytes:
    """From `at` up to where the file has a hole: nothing was ever written from there on."""
    try:
        with segment.path.open("rb", buffering=0) as file:
            hole = os.lseek(file.fileno(), segment.offset, os.SEEK_HOLE)
            file.seek(segment.offset + at)
            return file.read(max(0, min(segment.length - at, hole - segment.offset - at, most)))
    except OSError:  # not there, or shorter
        return b""


def scan(data: bytes, after: int, *, consecutive: bool = False) -> Iterator[OutputChunk]:
    """The records of one segment, until its end or the first that is torn, or does not follow the one before."""
    return (chunk for _, _, chunk in _records(data, after, consecutive, None) if chunk is not None)


def _records(
    data: bytes, after: int, consecutive: bool, expected: int | None
) -> Iterator[tuple[int, int, OutputChunk | None]]:
    """Where each record ends, its position, and the record itself past `after`. A record that cannot be ends them."""
    at, view = 0, memoryview(data)
    while at + _HEAD.size <= len(data):
        crc, length, position, unix_ns, stream, process = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        if end > len(data) or position > _NUMBER_MAX or (consecutive and expected not in (None, position)):
            return
        if length > _CHUNK_MAX or unix_ns > _NUMBER_MAX or stream not in _STREAMS or process >= MAX_PROCESSES:
            return  # no pilot wrote it
        expected, chunk = position + 1, None
        if position > after:
            if zlib.crc32(view[at + 4 : end]) != crc:
                return
            chunk = OutputChunk(
                position=position, at=unix_ns / 1e9, stream=stream, process=process, data=data[at + _HEAD.size : end]
            )
        yield end, position, chunk
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
