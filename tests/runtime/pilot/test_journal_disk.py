"""A guest's ledger: made whole and locked, kept over a resume, and read as what a stranger wrote."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.runtime.pilot.exit import read_journal
from hawker.runtime.pilot.journal_disk import JOURNAL_BYTES, journal_disk_file, journal_disk_output, segment_bytes
from hawker.runtime.pilot.output import OutputReader
from hawker.runtime.pilot.rundir import RunDir
from tests.runtime.pilot.records import STAMP, journal_record, output_record, ring, said
from tests.runtime.plain import spec

SPEC = msgspec.structs.replace(spec("unused"), output_bytes=2 * 10_000)
SEGMENT = 12_288
NOW = 1_000.0


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def write(run: RunDir, at: int, data: bytes) -> None:
    with run.journal.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize(
    ("output_bytes", "segment"),
    [(0, 4 << 20), (1, 4 << 20), (2, 4096), (8192, 4096), (8194, 8192), (1 << 40, 64 << 20)],
)
def test_a_segment_is_whole_blocks_and_bounded(output_bytes: int, segment: int) -> None:
    assert segment_bytes(msgspec.structs.replace(SPEC, output_bytes=output_bytes)) == segment


def test_a_journal_is_locked_and_takes_no_space_before_the_guest_writes(run: RunDir) -> None:
    with journal_disk_file(run, SPEC) as fd:
        assert run.alive()
        found = os.fstat(fd)
        assert (found.st_size, found.st_blocks) == (JOURNAL_BYTES + 2 * SEGMENT, 0)
    assert not run.alive() and journal_disk_output(run, OutputReader(), NOW) == []


@pytest.mark.parametrize("resumed", [False, True])
def test_a_launch_forgets_the_process_id_of_the_one_before(run: RunDir, resumed: bool) -> None:
    """It may be a stranger's by now, who would be waited for, or killed, as long as the new one lives."""
    run.journal.touch()
    run.write_pid(1)
    with journal_disk_file(run, SPEC, resumed=resumed):
        assert run.alive() and run.pid() is None


def test_a_fresh_one_is_empty_and_a_resumed_one_is_kept(run: RunDir) -> None:
    with journal_disk_file(run, SPEC):
        write(run, 0, journal_record(3, STAMP))
        write(run, JOURNAL_BYTES, ring((0, b"said")))
    with journal_disk_file(run, SPEC, resumed=True):
        assert read_journal(run.journal).ready_at == 1.0 and said(journal_disk_output(run, OutputReader(), NOW)) == [
            b"said"
        ]
    with journal_disk_file(run, SPEC):
        assert read_journal(run.journal).ready_at is None and journal_disk_output(run, OutputReader(), NOW) == []


def test_nobody_takes_one_that_is_held_or_a_link_in_its_place(run: RunDir, tmp_path: Path) -> None:
    with journal_disk_file(run, SPEC), pytest.raises(BlockingIOError), journal_disk_file(run, SPEC, resumed=True):
        pass
    run.journal.rename(tmp_path / "elsewhere")
    run.journal.symlink_to("elsewhere")
    with pytest.raises(OSError, match="symbolic links"), journal_disk_file(run, SPEC):
        pass


def test_output_is_in_two_segments_and_goes_on_after_a_position(run: RunDir) -> None:
    with journal_disk_file(run, SPEC):
        write(run, JOURNAL_BYTES + SEGMENT, ring((0, b"one\n"), (1, b"two\n")))
        write(run, JOURNAL_BYTES, ring((2, b"three\n")))
        assert said(journal_disk_output(run, OutputReader(), NOW)) == [b"one\n", b"two\n", b"three\n"]
        assert (
            said(journal_disk_output(run, OutputReader(), NOW, after=1))
            == said(journal_disk_output(run, OutputReader(), NOW, tail=1))
            == [b"three\n"]
        )


def test_a_segment_that_was_begun_again_ends_where_the_new_ends(run: RunDir) -> None:
    with journal_disk_file(run, SPEC):
        write(run, JOURNAL_BYTES, ring(*((at, b"old") for at in range(9))))
        write(run, JOURNAL_BYTES + SEGMENT, ring((9, b"mid"), (10, b"mid")))
        write(run, JOURNAL_BYTES, ring((11, b"new")))
        assert said(journal_disk_output(run, OutputReader(), NOW)) == [b"mid", b"mid", b"new"]


def test_bytes_across_the_border_of_a_segment_are_no_record(run: RunDir) -> None:
    with journal_disk_file(run, SPEC):
        write(run, JOURNAL_BYTES, ring((0, bytes(SEGMENT - 30)), (1, b"reaches into the next")))
        assert [chunk.position for chunk in journal_disk_output(run, OutputReader(), NOW)] == [0]


def test_output_of_a_time_to_come_came_now(run: RunDir) -> None:
    with journal_disk_file(run, SPEC):
        records = output_record(0, b"before"), output_record(1, b"after", unix_ns=(1 << 63) - 1)
        write(run, JOURNAL_BYTES, b"".join(records))
        assert [chunk.at for chunk in journal_disk_output(run, OutputReader(), NOW)] == [5.0, NOW]


def test_a_ledger_that_is_not_there_or_cut_short_is_silent(run: RunDir) -> None:
    assert journal_disk_output(run, OutputReader(), NOW) == []
    run.journal.write_bytes(b"short")
    assert journal_disk_output(run, OutputReader(), NOW) == []


@given(st.binary(max_size=400), st.binary(max_size=400))
def test_foreign_bytes_are_no_output(tmp_path_factory: pytest.TempPathFactory, first: bytes, second: bytes) -> None:
    run = RunDir(tmp_path_factory.mktemp("foreign"))
    with journal_disk_file(run, SPEC):
        write(run, JOURNAL_BYTES, first)
        write(run, JOURNAL_BYTES + SEGMENT, second)
        assert (
            journal_disk_output(run, OutputReader(), NOW) == journal_disk_output(run, OutputReader(), NOW, tail=5) == []
        )
