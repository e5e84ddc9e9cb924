"""When a loop counts as stalled, as a table of ticks."""

import pytest

from hawker.observe.stall import StallDetector, StallLimits, StallVerdict

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
