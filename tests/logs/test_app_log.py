"""One app's log in real files: what was appended is there once, whatever the daemon's end was."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from hawker.logs.app_log import AppLog, LogLimits, LogPart
from hawker.logs.line import Cursor, KeptLine

LIMITS = LogLimits()
NOW = 1_700_000_000.0


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


def test_what_the_next_daemon_finds_is_what_was_appended_with_its_cursors(tmp_path: Path) -> None:
    first = AppLog(tmp_path / "a", LIMITS, NOW)
    first.append(lines(0, 2), {"m1": Cursor(instance="i", after=4)})
    first.append(lines(2, 3), {"m2": Cursor(instance="k", after=0)})
    again = AppLog(tmp_path / "a", LIMITS, NOW + 9)
    again.append(lines(3, 4), {"m1": Cursor(instance="i", after=5)})
    assert texts(read_all(again)) == ["line 0", "line 1", "line 2", "line 3"]
    positions = [each.position for each in read_all(again).lines]
    assert positions == list(range(positions[0], positions[0] + 4))
    assert {key: each.after for key, each in again.cursors.items()} == {"m1": 5, "m2": 0}


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


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AppLog(tmp_path / "a", LIMITS, NOW)
    log.append(lines(0, 1), {})

    real = os.pwrite

    def refuse(fd: int, data: bytes, at: int) -> int:
        real(fd, b"half", at)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", refuse)
        with pytest.raises(OSError, match="No space"):
            log.append(lines(1, 2), {"m1": Cursor(after=1)})
    log.append(lines(1, 2), {})
    assert texts(read_all(AppLog(tmp_path / "a", LIMITS, NOW))) == ["line 0", "line 1"] and not log.cursors
