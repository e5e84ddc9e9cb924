"""The journal as it was written, cut anywhere, and as no pilot would write it."""

import struct
import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hawker.runtime.pilot import frames
from hawker.runtime.pilot.journal import Story, read_journal, tell


def record(kind: int, payload: bytes) -> bytes:
    body = struct.pack("<HBx", len(payload), kind) + payload
    return struct.pack("<I", zlib.crc32(body)) + body


def ending(code: int) -> bytes:
    return frames.number(9_000_000_000, 8) + frames.number(code, 4) + frames.number(0, 4) + b"\0" + frames.string("")


STAMP = frames.number(1_000_000_000, 8)
RECORDS = [
    record(1, STAMP + frames.number(42, 4)),
    record(2, STAMP + frames.string("instance")),
    record(3, STAMP),
    record(4, ending(3)),
    record(4, ending(143)),
    record(5, ending(3)),
]
WHOLE = b"".join(RECORDS)


def test_a_whole_journal_tells_the_story() -> None:
    story = tell(WHOLE)
    assert (story.pilot_pid, story.instance_id, story.started_at, story.ready_at) == (42, "instance", 1.0, 1.0)
    assert story.first_exit is not None and story.first_exit.exit_code == 3
    assert story.final_exit is not None and story.final_exit.exited_at == 9.0


def test_no_journal_is_an_empty_story(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "journal") == Story()


@given(st.integers(0, len(WHOLE)))
def test_a_torn_tail_leaves_what_came_before(cut: int) -> None:
    complete = 0
    while len(b"".join(RECORDS[: complete + 1])) <= cut and complete < len(RECORDS):
        complete += 1
    assert tell(WHOLE[:cut]) == tell(b"".join(RECORDS[:complete]))


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_never_believed(at: int, flip: int) -> None:
    hurt = bytearray(WHOLE)
    hurt[at] ^= flip
    stories = [tell(b"".join(RECORDS[:count])) for count in range(len(RECORDS) + 1)]
    assert tell(bytes(hurt)) in stories


@given(st.binary(max_size=500))
def test_foreign_bytes_tell_nothing(data: bytes) -> None:
    assert tell(data) == Story()


def test_a_record_of_a_newer_pilot_is_passed_over() -> None:
    assert tell(record(99, b"news") + WHOLE) == tell(WHOLE)


def test_a_record_that_is_whole_but_too_short_ends_the_story() -> None:
    assert tell(RECORDS[0] + record(2, b"") + record(5, ending(1))) == tell(RECORDS[0])
