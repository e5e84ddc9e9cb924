"""The output ring, read in every shape that a pilot or a crash can leave it in."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.runtime.driver import MAX_PROCESSES
from hawker.runtime.pilot import output
from hawker.runtime.pilot.output import ANSWER_MAX, OutputReader, Segment, read_output, scan
from tests.runtime.pilot.records import output_record, ring, said


@pytest.fixture
def segments(tmp_path: Path) -> tuple[Segment, Segment]:
    return Segment(tmp_path / "output.0"), Segment(tmp_path / "output.1")


def fill(segments: tuple[Segment, Segment], *contents: list[tuple[int, bytes]]) -> None:
    for segment, records in zip(segments, contents, strict=False):
        segment.path.write_bytes(ring(*records))


def test_nothing_written_is_nothing_read(segments: tuple[Segment, Segment]) -> None:
    assert read_output(segments) == []


@pytest.mark.parametrize("turned", [False, True])
def test_the_older_segment_comes_first_wherever_it_is(segments: tuple[Segment, Segment], turned: bool) -> None:
    older, newer = [(3, b"c"), (4, b"d")], [(5, b"e")]
    fill(segments, *((newer, older) if turned else (older, newer)))
    chunks = read_output(segments)
    assert said(chunks) == [b"c", b"d", b"e"] and [chunk.at for chunk in chunks] == [5.0] * 3


def test_reading_goes_on_after_a_position(segments: tuple[Segment, Segment]) -> None:
    fill(segments, [(0, b"a"), (1, b"b")], [(2, b"c")])
    assert said(read_output(segments, after=0)) == [b"b", b"c"]
    assert read_output(segments, after=2) == []


def test_one_answer_is_bounded_and_the_next_goes_on(segments: tuple[Segment, Segment]) -> None:
    part = bytes(16_384)
    fill(segments, [(at, part) for at in range(200)], [(at, part) for at in range(200, 400)])
    first = read_output(segments)
    assert sum(map(len, said(first))) <= ANSWER_MAX
    rest = read_output(segments, after=first[-1].position)
    assert [chunk.position for chunk in first + rest] == list(range(400))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [(0, b""), (1, b"four\n"), (2, b"three\nfour\n"), (3, b"two\nthree\nfour\n"), (9, b"one\ntwo\nthree\nfour\n")],
)
def test_the_tail_counts_lines_over_chunks(segments: tuple[Segment, Segment], lines: int, expected: bytes) -> None:
    fill(segments, [(0, b"one\ntw"), (1, b"o\nthree\n")], [(2, b"four\n")])
    assert b"".join(said(read_output(segments, tail=lines))) == expected


def test_an_unfinished_line_counts_as_one(segments: tuple[Segment, Segment]) -> None:
    fill(segments, [(0, b"one\ntwo\nthr"), (1, b"ee")])
    assert b"".join(said(read_output(segments, tail=1))) == b"three"


@given(st.integers(0, 200))
def test_a_torn_tail_leaves_what_came_before(cut: int) -> None:
    records = [output_record(at, b"line %d\n" % at) for at in range(4)]
    whole = b"".join(records)
    kept = scan(whole[: min(cut, len(whole))], -1)
    sizes = [len(b"".join(records[: count + 1])) for count in range(4)]
    assert [chunk.position for chunk in kept] == list(range(sum(size <= cut for size in sizes)))


@given(st.binary(max_size=300))
def test_foreign_bytes_are_no_output(data: bytes) -> None:
    assert list(scan(data, -1)) == []


def test_where_nothing_is_written_over_what_does_not_follow_is_left_from_before() -> None:
    """A segment that was full is begun again; what was there is longer."""
    left = ring(*((at, b"old") for at in range(6)))
    written = ring((6, b"new"), (7, b"new")) + left[2 * len(output_record(0, b"old")) :]
    chunks = list(scan(written, -1, consecutive=True))
    assert [chunk.position for chunk in chunks] == [6, 7]
    assert list(scan(written, 6, consecutive=True)) == chunks[1:]
    assert len(list(scan(written, -1))) == 6


@pytest.mark.parametrize("position", [2**63, 2**64 - 1])
def test_a_position_that_nobody_could_store_is_none(position: int) -> None:
    assert list(scan(output_record(position, b"far"), -1)) == []
    assert [chunk.position for chunk in scan(ring((2**63 - 1, b"last"), (2**63, b"far")), -1)] == [2**63 - 1]


def test_a_segment_is_a_part_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    older, newer = ring((0, b"a"), (1, b"b")), ring((2, b"c"))
    file.write_bytes(bytes(100) + older + bytes(500 - len(older)) + newer + b"beyond")
    first = Segment(file, offset=100, length=500, consecutive=True)
    second = Segment(file, offset=600, length=len(newer), consecutive=True)
    assert said(read_output((first, second))) == said(read_output((second, first))) == [b"a", b"b", b"c"]
    past = Segment(file, offset=10_000, length=10)
    assert said(read_output((past, second))) == [b"c"]


def test_segments_that_contradict_each_other_tell_nothing_twice(segments: tuple[Segment, Segment]) -> None:
    fill(segments, [(1, b"a"), (2, b"b"), (3, b"c")], [(2, b"again"), (3, b"again"), (4, b"d")])
    positions = [chunk.position for chunk in read_output(segments)]
    assert positions == sorted(set(positions))


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=20)), max_size=20), st.integers(-1, 2**63))
def test_whatever_a_guest_writes_goes_forward(records: list[tuple[int, bytes]], after: int) -> None:
    positions = [chunk.position for chunk in scan(ring(*records), after, consecutive=True)]
    assert positions == sorted(set(positions)) and all(after < position < 2**63 for position in positions)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that each look at a segment takes."""
    taken: list[int] = []
    read = output._read

    def counted(*args: int) -> bytes:
        data = read(*args)  # type: ignore[arg-type]
        taken.append(len(data))
        return data

    monkeypatch.setattr(output, "_read", counted)
    return taken


def test_a_follower_reads_what_is_new_and_nothing_twice(
    segments: tuple[Segment, Segment], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, reader = [(at, b"x") for at in range(10_000)], OutputReader()
    fill(segments, old, [])
    last = reader.read(segments)[-1].position
    taken = counting(monkeypatch)
    assert reader.read(segments, after=last) == [] and sum(taken) < 100
    fill(segments, [*old, (10_000, b"a")], [])
    taken.clear()
    assert said(reader.read(segments, after=last)) == [b"a"] and sum(taken) < 200
    assert said(reader.read(segments, after=last)) == [b"a"], "another follower is where the first one was"
    fill(segments, [*old, (10_000, b"a")], [(10_001, b"b")])
    assert said(reader.read(segments, after=10_000)) == [b"b"]
    fill(segments, [(10_002, b"c")], [(10_001, b"b")])
    assert said(reader.read(segments, after=10_001)) == [b"c"]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.data())
def test_following_gives_what_reading_anew_gives(counts: list[int], data: st.DataObject) -> None:
    """However the ring turns meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        segments = Segment(Path(folder) / "0"), Segment(Path(folder) / "1")
        held: list[list[tuple[int, bytes]]] = [[], []]
        reader, at, after, own = OutputReader(), 0, -1, 0
        for count in counts:
            if data.draw(st.booleans()) and held[own]:
                own = 1 - own
                held[own] = []
            held[own] += [(at + more, b"%d" % (at + more)) for more in range(count)]
            at += count
            fill(segments, *held)
            found = reader.read(segments, after=after)
            assert found == read_output(segments, after=after)
            after = found[-1].position


@pytest.mark.parametrize(
    "field",
    [
        {"position": 1 << 63},
        {"unix_ns": 1 << 63},
        {"unix_ns": (1 << 64) - 1},
        {"stream": 0},
        {"stream": 3},
        {"process": MAX_PROCESSES},
        {"process": 255},
    ],
)
def test_record_that_no_pilot_writes_is_where_its_segment_ends(field: dict[str, int]) -> None:
    impossible = output_record(**{"position": 1, **field}, data=b"two")
    assert said(list(scan(output_record(0, b"one") + impossible + output_record(2, b"three"), -1))) == [b"one"]


def test_record_longer_than_a_pilot_writes_is_where_its_segment_ends() -> None:
    assert said(list(scan(ring((0, b"one"), (1, bytes(16_385)), (2, b"three")), -1))) == [b"one"]


def test_record_of_the_last_moment_stream_process_and_length_is_one() -> None:
    (chunk,) = scan(output_record(0, bytes(16_384), stream=2, unix_ns=(1 << 63) - 1, process=MAX_PROCESSES - 1), -1)
    assert (chunk.stream, chunk.process) == (2, MAX_PROCESSES - 1)
