"""One app's log in real files: what was appended is there once, whatever the daemon's end was."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from hawker.logs.app_log import AppLog, LogLimits, LogPart
from hawker.logs.line import Cursor, KeptLine, OpenLine

LIMITS = LogLimits()
NOW = 1_700_000_000.0


WRITTEN = (
    "c7d0886a1f0000005600000000401e18240a06000200000000002a36fe9c971701002a36fe9c971781a26d3195a2693104a26531c291940200"
    "cf17979cfe362a0002c40362656728b52ffd20516d020034049298cf17979cfe362a0000a26d3101a56669727374a3776562a4696e666fa361"
    "7070a13301a26d3100b05374617274696e67206d616368696e65a0a672756e6e6572a002009d128da6504fd2af76bd0c0000002e0000000240"
    "1e18240a06000100000003002a36fe9c971703002a36fe9c971781a26d3295a2693200a0c39028b52ffd20252901009198cf17979cfe362a00"
    "03a26d3202a97365636f6e6420c3bca0a56572726f72a3617070a0"
)
"""A segment as the first version wrote it, of two frames."""


def line(number: int, machine: str = "m1", at: float = NOW) -> KeptLine:
    return KeptLine(at=int(at * 1e9) + number, machine=machine, stream=1, text=f"line {number}")


def lines(begin: int, end: int) -> list[KeptLine]:
    return [line(number) for number in range(begin, end)]


def read_all(log: AppLog, after: int = -1, most_lines: int = 10_000) -> LogPart:
    return log.read(after, most_lines=most_lines, most_bytes=1 << 30)


def texts(part: LogPart) -> Sequence[str]:
    return [each.line.text for each in part.lines]


def test_lines_are_read_on_from_a_position_and_by_pages(tmp_path: Path) -> None:
    log = AppLog(tmp_path / "a", LIMITS, NOW)
    for begin in range(0, 300, 3):
        log.append(lines(begin, begin + 3), {})
    found, after = list[str](), -1
    while True:
        part = read_all(log, after, most_lines=7)
        found += texts(part)
        after = part.position
        if not part.more:
            break
    assert found == [f"line {number}" for number in range(300)]
    assert read_all(log, after).lines == [] and read_all(log, after + 99).position == after


def test_a_log_the_next_daemon_finds_is_the_appended_one_with_its_cursors(tmp_path: Path) -> None:
    first = AppLog(tmp_path / "a", LIMITS, NOW)
    first.append(lines(0, 2), {"m1": Cursor(instance="i", after=4)})
    first.append(lines(2, 3), {"m2": Cursor(instance="k", after=0)})
    again = AppLog(tmp_path / "a", LIMITS, NOW + 9)
    again.append(lines(3, 4), {"m1": Cursor(instance="i", after=5)})
    assert texts(read_all(again)) == ["line 0", "line 1", "line 2", "line 3"]
    positions = [each.position for each in read_all(again).lines]
    assert positions == list(range(positions[0], positions[0] + 4))
    assert {key: each.after for key, each in again.cursors.items()} == {"m1": 5, "m2": 0}


def test_a_segment_of_the_first_version_is_read_as_it_was_meant(tmp_path: Path) -> None:
    directory, at = tmp_path / "a", int(NOW) * 10**9
    directory.mkdir()
    (directory / "00001700000000000000.log").write_bytes(bytes.fromhex(WRITTEN))
    log = AppLog(directory, LIMITS, NOW + 9)
    assert [(each.position, each.line) for each in read_all(log).lines] == [
        (1_700_000_000_000_000, KeptLine(at=at, machine="m1", stream=1, text="first", container="web", release="3")),
        (
            1_700_000_000_000_001,
            KeptLine(at=at + 1, machine="m1", stream=0, text="Starting machine", provider="runner"),
        ),
        (1_700_000_000_000_002, KeptLine(at=at + 3, machine="m2", stream=2, text="second ü", level="error")),
    ]
    begun = OpenLine(stream=2, process=0, at=at + 2, data=b"beg")
    assert log.cursors == {
        "m1": Cursor(instance="i1", after=4, event="e1", open=(begun,)),
        "m2": Cursor(instance="i2", after=0, closed=True),
    }
    log.append([line(7)], {})
    assert texts(read_all(log))[-1] == "line 7"


@pytest.mark.parametrize("lost", range(1, 40, 3))
def test_a_torn_frame_is_as_if_it_had_never_been_written(tmp_path: Path, lost: int) -> None:
    log = AppLog(tmp_path / "a", LIMITS, NOW)
    log.append(lines(0, 2), {"m1": Cursor(after=1)})
    log.append(lines(2, 4), {"m1": Cursor(after=3)})
    (segment,) = (tmp_path / "a").iterdir()
    os.truncate(segment, segment.stat().st_size - lost)
    again = AppLog(tmp_path / "a", LIMITS, NOW)
    assert again.cursors["m1"].after == 1 and texts(read_all(again)) == ["line 0", "line 1"]
    again.append(lines(2, 4), {"m1": Cursor(after=3)})
    assert texts(read_all(AppLog(tmp_path / "a", LIMITS, NOW))) == ["line 0", "line 1", "line 2", "line 3"]


def test_positions_of_a_log_that_was_lost_are_never_given_again(tmp_path: Path) -> None:
    log = AppLog(tmp_path / "a", LIMITS, NOW)
    log.append(lines(0, 500), {})
    other = AppLog(tmp_path / "b", LIMITS, NOW + 1)
    other.append(lines(0, 1), {})
    assert texts(read_all(other, log.position)) == ["line 0"]


def test_the_log_has_a_bound_and_what_is_cut_off_is_the_oldest(tmp_path: Path) -> None:
    limits = LogLimits(most_bytes=1 << 20)
    log = AppLog(tmp_path / "a", limits, NOW)
    for number in range(200):
        text = os.urandom(8192).hex()
        log.append([KeptLine(at=number, machine="m1", stream=1, text=text)], {"m1": Cursor(after=number)})
        log.trim(0)
    size = sum(each.stat().st_size for each in (tmp_path / "a").iterdir())
    assert limits.most_bytes // 2 < size <= limits.most_bytes
    left = [each.line.at for each in read_all(log).lines]
    assert left == list(range(left[0], 200)) and left[0] > 0
    assert AppLog(tmp_path / "a", limits, NOW).cursors["m1"].after == 199


def test_while_the_disk_is_scarce_an_app_that_writes_keeps_two_segments(tmp_path: Path) -> None:
    free = True
    limits = LogLimits(most_bytes=1 << 20, scarce=lambda: not free)
    log = AppLog(tmp_path / "a", limits, NOW)

    def write(count: int) -> int:
        for number in range(count):
            text = os.urandom(8192).hex()
            log.append([KeptLine(at=int(NOW * 1e9), machine="m1", stream=1, text=text)], {"m1": Cursor(after=number)})
        return sum(file.stat().st_size for file in (tmp_path / "a").iterdir())

    assert write(60) > 3 * limits.segment_bytes
    free = False
    assert write(60) <= 2 * limits.segment_bytes + (32 << 10)
    assert log.cursors["m1"].after == 59 and AppLog(tmp_path / "a", limits, NOW).cursors == log.cursors
    free = True
    assert write(30) > 2 * limits.segment_bytes + (32 << 10), "and more again"


def test_lines_go_with_their_age(tmp_path: Path) -> None:
    limits = LogLimits(kept_s=60.0)
    log = AppLog(tmp_path / "a", limits, NOW)
    log.append([line(0, at=NOW)], {})
    (segment,) = (tmp_path / "a").iterdir()
    log.trim(NOW + 59)
    log.append([line(1, at=NOW + 59)], {})
    os.utime(segment, (NOW, NOW))
    log.trim(NOW + 61)
    assert texts(read_all(log)) == ["line 1"]


def test_the_last_lines_and_those_since_a_moment_and_of_one_machine(tmp_path: Path) -> None:
    log = AppLog(tmp_path / "a", LIMITS, NOW)
    for number in range(90):
        log.append([line(number, machine=f"m{number % 3}")], {})
    assert texts(log.tail(2)) == ["line 88", "line 89"]
    assert texts(log.tail(2, wanted=lambda each: each.machine == "m0")) == ["line 84", "line 87"]
    since = log.read(-1, most_lines=99, most_bytes=1 << 20, since=line(87).at)
    assert texts(since) == ["line 87", "line 88", "line 89"]
    assert log.tail(0).lines == [] and log.tail(0).position == log.position


def test_looks_for_a_quiet_machine_are_bounded_and_go_on_where_they_were(tmp_path: Path) -> None:
    log = AppLog(tmp_path / "a", LIMITS, NOW)
    log.append([line(0, machine="quiet")], {})
    for number in range(1, 41):
        log.append([KeptLine(at=line(number).at, machine="m1", stream=1, text="x" * (1 << 20))], {})
    log.append([line(41, machine="quiet")], {})

    def quiet(each: KeptLine) -> bool:
        return each.machine == "quiet"

    found, part = list[str](), LogPart(lines=(), position=-1, more=True)
    parts = 0
    while part.more:
        part = log.read(part.position, most_lines=10, most_bytes=1 << 20, wanted=quiet)
        found, parts = [*found, *texts(part)], parts + 1
    assert (found, part.position, parts) == (["line 0", "line 41"], log.position, 6)
    found, before, parts = [], None, 0
    while before is None or part.more:
        part = log.tail(2 - len(found), before=before, wanted=quiet)
        found, before, parts = [*texts(part), *found], part.begin, parts + 1
    assert (found, parts) == (["line 0", "line 41"], 6)


def test_a_frame_that_the_disk_has_damaged_is_left_out(tmp_path: Path) -> None:
    log = AppLog(tmp_path / "a", LIMITS, NOW)
    log.append(lines(0, 1), {})
    (segment,) = (tmp_path / "a").iterdir()
    size = segment.stat().st_size
    log.append(lines(1, 2), {})
    with segment.open("r+b") as file:
        file.seek(size - 12)
        file.write(b"\0" * 12)
    assert texts(read_all(log)) == ["line 1"]


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    real = os.pwrite

    def refuse(fd: int, data: bytes, at: int) -> int:
        real(fd, b"half", at)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", refuse)
        yield


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AppLog(tmp_path / "a", LIMITS, NOW)
    log.append(lines(0, 1), {})
    with full_disk(monkeypatch), pytest.raises(OSError, match="No space"):
        log.append(lines(1, 2), {"m1": Cursor(after=1)})
    log.append(lines(1, 2), {})
    assert texts(read_all(AppLog(tmp_path / "a", LIMITS, NOW))) == ["line 0", "line 1"] and not log.cursors


AGED = LogLimits(kept_s=60.0)


def about_to_rotate(directory: Path) -> AppLog:
    """Because of its age: the segment has room, as the next daemon finds."""
    log = AppLog(directory, AGED, NOW)
    log.append(lines(0, 2), {"m1": Cursor(after=1), "m2": Cursor(after=7)})
    log.trim(NOW + 59)
    return log


def test_segment_whose_first_frame_failed_begins_with_all_cursors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = about_to_rotate(tmp_path / "a")
    with full_disk(monkeypatch), pytest.raises(OSError, match="No space"):
        log.append(lines(2, 3), {"m1": Cursor(after=2)})
    log.append(lines(2, 3), {"m1": Cursor(after=2)})
    assert len(list((tmp_path / "a").iterdir())) == 2
    again = AppLog(tmp_path / "a", AGED, NOW)
    assert {key: each.after for key, each in again.cursors.items()} == {"m1": 2, "m2": 7}


@pytest.mark.parametrize("ahead", [0, 5], ids=["the next segment", "one of positions that were lost"])
@pytest.mark.parametrize("scarce", [False, True])
def test_segment_with_nothing_whole_hides_no_later_line(tmp_path: Path, ahead: int, scarce: bool) -> None:
    end = about_to_rotate(tmp_path / "a").position
    (tmp_path / "a" / f"{end + 1 + ahead:020d}.log").write_bytes(b"half")
    log = AppLog(tmp_path / "a", LogLimits(scarce=lambda: scarce), NOW)
    log.trim(0)
    for number in range(2, 10):
        log.append([line(number)], {"m1": Cursor(after=number)})
    for reader in (log, AppLog(tmp_path / "a", LIMITS, NOW)):
        assert texts(read_all(reader)) == [f"line {number}" for number in range(10)]
        assert texts(read_all(reader, end)) == [f"line {number}" for number in range(2, 10)]
        assert texts(read_all(reader, end + 6)) == ["line 8", "line 9"]
        assert {key: each.after for key, each in reader.cursors.items()} == {"m1": 9, "m2": 7}


def test_newest_segment_that_has_something_stays_with_its_cursors(tmp_path: Path) -> None:
    end = about_to_rotate(tmp_path / "a").position
    (tmp_path / "a" / f"{end + 1:020d}.log").write_bytes(b"half")
    AppLog(tmp_path / "a", AGED, NOW).trim(NOW + 1e9)
    assert AppLog(tmp_path / "a", AGED, NOW).cursors["m2"].after == 7
