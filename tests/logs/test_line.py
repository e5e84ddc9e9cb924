"""Lines of pieces: whatever the pieces are, the text is the same, and nothing is longer than a line may be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.ids import EventId
from hawker.logs.line import (
    MAX_LINE_BYTES,
    Cursor,
    KeptLine,
    MachineFacts,
    OpenLine,
    closed_lines,
    event_line,
    lines_of,
)
from hawker.record.machine import Detail, EventRecord
from hawker.runtime.driver import Exit, OutputChunk

FACTS = MachineFacts(machine="3d8f", containers=("web", "side"), release="7")


def chunks_of(*pieces: bytes, stream: int = 1) -> list[OutputChunk]:
    return [
        OutputChunk(position=place, at=1.0 + place, stream=stream, process=0, data=piece)
        for place, piece in enumerate(pieces)
    ]


def texts(lines: list[KeptLine]) -> list[str]:
    return [line.text for line in lines]


@given(st.lists(st.text("ab\n", max_size=6).map(str.encode), max_size=8), st.integers(0, 8))
def test_lines_are_the_same_however_the_output_came_in_pieces(pieces: list[bytes], cut: int) -> None:
    chunks = chunks_of(*pieces)
    first, open_lines = lines_of(FACTS, chunks[:cut], ())
    more, open_lines = lines_of(FACTS, chunks[cut:], open_lines)
    whole = texts(first + more + closed_lines(FACTS, open_lines))
    text = b"".join(pieces).decode()
    assert whole == text.removesuffix("\n").split("\n") if text else whole == []


def test_a_line_has_the_time_of_its_first_byte_its_container_and_its_release() -> None:
    (line,), left = lines_of(FACTS, chunks_of(b"be", b"gun\n"), ())
    assert (line.at, line.text, line.container, line.release, left) == (10**9, "begun", "web", "7", ())


def test_a_line_without_end_is_split_and_never_held_whole() -> None:
    lines, (left,) = lines_of(FACTS, chunks_of(b"x" * (2 * MAX_LINE_BYTES), b"y"), ())
    assert [len(each) for each in texts(lines)] == [MAX_LINE_BYTES, MAX_LINE_BYTES] and left.data == b"y"
    lines, left_over = lines_of(FACTS, chunks_of(b"z" * (MAX_LINE_BYTES + 1) + b"\n"), ())
    assert [len(each) for each in texts(lines)] == [MAX_LINE_BYTES, 1] and left_over == ()


def test_streams_do_not_mix_and_what_is_not_text_is_replaced() -> None:
    lines, left = lines_of(FACTS, [*chunks_of(b"out"), *chunks_of(b"\xff\r\n", stream=2)], ())
    assert texts(lines) == ["\ufffd"] and left == (OpenLine(stream=1, process=0, at=10**9, data=b"out"),)


@pytest.mark.parametrize(
    ("detail", "status", "text", "level"),
    [
        (Detail(exit=Exit(exit_code=3, exited_at=0)), "stopped", "Main child exited normally with code: 3", "error"),
        (Detail(exit=Exit(exit_code=137, signal=9, exited_at=0)), "stopped", "Main child ended by signal 9", "error"),
        (None, "stopped", "machine stopped (exit)", "info"),
        (Detail(error="no room"), "failed", "machine failed (exit): no room", "error"),
    ],
)
def test_an_event_of_a_machine_is_a_line_of_the_nodes(
    detail: Detail | None, status: str, text: str, level: str
) -> None:
    """Clients wait for the words of the first."""
    event = EventRecord(id=EventId("01E"), type="exit", status=status, source="flyd", at=2.0, detail=detail)
    line = event_line(FACTS, event)
    assert (line.text, line.level, line.provider, line.stream, line.at) == (text, level, "runner", 0, 2 * 10**9)


def test_a_cursor_that_was_never_written_begins_before_the_first_piece() -> None:
    assert Cursor().after == -1
