"""The output ring, read in every shape that a pilot or a crash can leave it in."""

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.runtime.driver import OutputChunk
from hawker.runtime.pilot.output import ANSWER_MAX, read_output, scan


def record(position: int, data: bytes, stream: int = 1) -> bytes:
    body = struct.pack("<IQQBBxx", len(data), position, 5_000_000_000, stream, 0) + data
    return struct.pack("<I", zlib.crc32(body)) + body


@pytest.fixture
def segments(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "output.0", tmp_path / "output.1"


def fill(segments: tuple[Path, Path], *contents: list[tuple[int, bytes]]) -> None:
    for path, records in zip(segments, contents, strict=False):
        path.write_bytes(b"".join(record(position, data) for position, data in records))


def said(chunks: list[OutputChunk]) -> list[bytes]:
    return [chunk.data for chunk in chunks]


def test_nothing_written_is_nothing_read(segments: tuple[Path, Path]) -> None:
    assert read_output(segments) == []


@pytest.mark.parametrize("turned", [False, True])
def test_the_older_segment_comes_first_wherever_it_is(segments: tuple[Path, Path], turned: bool) -> None:
    older, newer = [(3, b"c"), (4, b"d")], [(5, b"e")]
    fill(segments, *((newer, older) if turned else (older, newer)))
    chunks = read_output(segments)
    assert said(chunks) == [b"c", b"d", b"e"] and [chunk.at for chunk in chunks] == [5.0] * 3


def test_reading_goes_on_after_a_position(segments: tuple[Path, Path]) -> None:
    fill(segments, [(0, b"a"), (1, b"b")], [(2, b"c")])
    assert said(read_output(segments, after=0)) == [b"b", b"c"]
    assert read_output(segments, after=2) == []


def test_one_answer_is_bounded_and_the_next_goes_on(segments: tuple[Path, Path]) -> None:
    part = bytes(60_000)
    fill(segments, [(at, part) for at in range(60)], [(at, part) for at in range(60, 120)])
    first = read_output(segments)
    assert sum(map(len, said(first))) <= ANSWER_MAX
    rest = read_output(segments, after=first[-1].position)
    assert [chunk.position for chunk in first + rest] == list(range(120))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [(0, b""), (1, b"four\n"), (2, b"three\nfour\n"), (3, b"two\nthree\nfour\n"), (9, b"one\ntwo\nthree\nfour\n")],
)
def test_the_tail_counts_lines_over_chunks(segments: tuple[Path, Path], lines: int, expected: bytes) -> None:
    fill(segments, [(0, b"one\ntw"), (1, b"o\nthree\n")], [(2, b"four\n")])
    assert b"".join(said(read_output(segments, tail=lines))) == expected


def test_an_unfinished_line_counts_as_one(segments: tuple[Path, Path]) -> None:
    fill(segments, [(0, b"one\ntwo\nthr"), (1, b"ee")])
    assert b"".join(said(read_output(segments, tail=1))) == b"three"


@given(st.integers(0, 200))
def test_a_torn_tail_leaves_what_came_before(cut: int) -> None:
    records = [record(at, b"line %d\n" % at) for at in range(4)]
    whole = b"".join(records)
    kept = scan(whole[: min(cut, len(whole))], -1)
    sizes = [len(b"".join(records[: count + 1])) for count in range(4)]
    assert [chunk.position for chunk in kept] == list(range(sum(size <= cut for size in sizes)))


@given(st.binary(max_size=300))
def test_foreign_bytes_are_no_output(data: bytes) -> None:
    assert list(scan(data, -1)) == []
