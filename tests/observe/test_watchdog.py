"""Real loops, really blocked, in a process of their own."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawker.observe.watchdog import EXIT_STATUS, StallDetector, StallLimits, StallVerdict
from tests.waiting import wait_for

PATIENCE = StallLimits(report_s=1, end_s=30)


def verdicts(patience: StallLimits, *ticks: tuple[float, bool]) -> list[tuple[float, StallVerdict]]:
    """What came of ticks so many seconds after one another, beside those that were fine."""
    stall, now, found = StallDetector(patience, 0.0), 0.0, list[tuple[float, StallVerdict]]()
    for after_s, turned in ticks:
        now += after_s
        seen = stall.tick(now, turned)
        if seen.verdict is not StallVerdict.FINE:
            found.append((seen.seconds, seen.verdict))
    return found


def still(seconds: float) -> list[tuple[float, bool]]:
    return [(0.25, False)] * int(seconds * 4)


TURNED = (0.25, True)


def test_a_loop_that_turns_is_fine() -> None:
    assert verdicts(PATIENCE, *[TURNED] * 1000) == []


def test_a_short_pause_is_fine() -> None:
    assert verdicts(PATIENCE, *still(0.75), TURNED, *still(0.75), TURNED) == []


def test_a_stall_is_said_at_the_limit_and_each_time_it_has_doubled() -> None:
    said = verdicts(PATIENCE, *still(9))
    assert said == [
        (1, StallVerdict.STALLED),
        (2, StallVerdict.STILL),
        (4, StallVerdict.STILL),
        (8, StallVerdict.STILL),
    ]


def test_the_end_of_a_stall_is_said_and_the_next_one_counts_anew() -> None:
    said = verdicts(PATIENCE, *still(1.5), TURNED, TURNED, *still(1))
    assert said == [(1, StallVerdict.STALLED), (1.5, StallVerdict.OVER), (1, StallVerdict.STALLED)]


def test_a_long_stall_ends_the_process() -> None:
    assert verdicts(PATIENCE, *still(30))[-1] == (30, StallVerdict.END)
    assert verdicts(PATIENCE, *still(29.75))[-1] == (16, StallVerdict.STILL)


@pytest.mark.parametrize("turned", [False, True])
def test_a_process_that_stood_still_is_not_a_stalled_loop(turned: bool) -> None:
    assert verdicts(PATIENCE, TURNED, (3600, turned), (0.25, False), TURNED) == []


def test_standing_still_again_and_again_within_one_stall_adds_little() -> None:
    assert verdicts(PATIENCE, (60, False), (60, False))[-1] == (1, StallVerdict.STALLED)


@pytest.mark.parametrize(
    ("patience", "said"),
    [
        (StallLimits(report_s=0, end_s=2), [StallVerdict.END]),
        (StallLimits(report_s=1, end_s=0), [StallVerdict.STALLED, StallVerdict.STILL]),
        (StallLimits(report_s=0, end_s=0), []),
    ],
)
def test_nothing_switches_a_part_off(patience: StallLimits, said: list[StallVerdict]) -> None:
    assert [verdict for _, verdict in verdicts(patience, *still(2))] == said


def test_ticks_are_short_enough_for_the_shortest_patience() -> None:
    assert StallLimits(report_s=0.2, end_s=0).tick_s == 0.05
    assert StallLimits(report_s=0, end_s=0).tick_s == 0.25


DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Program:
    process: "subprocess.Popen[str]"
    errors: Path

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def turn(self) -> float:
        """How many stalls it counted. A host that is busy may add some of its own."""
        self.say("turn")
        word, count = self.answer().split()
        assert word == "stalls"
        return float(count)

    def block(self, seconds: float) -> None:
        """Returns once its loop is blocked."""
        self.say(f"block {seconds}")
        assert self.answer() == "blocking"

    def hold(self) -> None:
        """As `block`, until the next line is said."""
        self.say("hold")
        assert self.answer() == "blocking"

    @property
    def logged(self) -> list[dict[str, Any]]:
        whole = self.errors.read_bytes().rpartition(b"\n")[0]
        return [msgspec.json.decode(line) for line in whole.splitlines()]

    @property
    def phrases(self) -> list[str]:
        return [line["message"] for line in self.logged]


@contextmanager
def watched(place: Path, report_s: float, end_s: float) -> Iterator[Program]:
    command = [sys.executable, "-m", "tests.observe.watched_loop", str(report_s), str(end_s)]
    with (place / "err").open("w") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    with process:
        program = Program(process, place / "err")
        try:
            program.turn()
            yield program
        finally:
            process.kill()


def test_a_stall_is_reported_with_the_place_where_the_loop_is(tmp_path: Path) -> None:
    with watched(tmp_path, report_s=0.5, end_s=0) as program:
        before = program.turn()
        program.hold()
        first = wait_for(lambda: [line for line in program.logged if "in hold_the_loop" in line.get("stack", "")])[0]
        assert first["message"] == "event loop does not turn" and first["seconds"] >= 0.5 and first["level"] == "error"
        program.say("")
        assert program.turn() > before
        wait_for(lambda: program.phrases[-1] == "event loop turns again")


def test_a_loop_that_is_stuck_ends_the_process_with_its_last_words(tmp_path: Path) -> None:
    with watched(tmp_path, report_s=0.5, end_s=1.2) as program:
        program.block(0)
        assert program.process.wait(DEADLINE_S) == EXIT_STATUS
        last = program.logged[-1]
        assert last["message"] == "event loop does not turn, ending the process"
        assert "in block_the_loop" in last["stack"] and "AnyIO worker thread" in last["others"]


def test_a_loop_that_is_stuck_in_logging_ends_the_process_too(tmp_path: Path) -> None:
    with watched(tmp_path, report_s=0.5, end_s=0.8) as program:
        program.say("log")
        assert program.process.wait(DEADLINE_S) == EXIT_STATUS


def test_a_process_that_was_stopped_and_goes_on_is_not_ended(tmp_path: Path) -> None:
    """Stopped while the watchdog waits for an answer: at any other moment, a stop would prove nothing."""
    with watched(tmp_path, report_s=0.3, end_s=4) as program:
        program.block(1)  # far from `end_s`, however late each of its pieces ends
        wait_for(lambda: program.phrases)
        program.process.send_signal(signal.SIGSTOP)
        stopped_at = time.monotonic()
        wait_for(lambda: time.monotonic() > stopped_at + 4.5)
        program.process.send_signal(signal.SIGCONT)
        assert all(program.turn() >= 1 for _ in range(20))
        wait_for(lambda: program.phrases[-1] == "event loop turns again")


def test_a_short_hold_up_is_not_reported(tmp_path: Path) -> None:
    with watched(tmp_path, report_s=5, end_s=0) as program:
        program.block(0.3)
        assert program.turn() == 0
        assert program.phrases == []
