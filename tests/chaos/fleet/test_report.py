"""A trial on one page."""

from hawker.chaos.fleet.report import OrderAnswer, TimedMoment, TrialPhase, TrialReport, page, phase_of

ANSWERS = [
    *(OrderAnswer(outcome="filled", seconds=seconds) for seconds in (0.25, 0.75, 0.5)),
    OrderAnswer(outcome="refused", seconds=0.1, why="no room"),
    OrderAnswer(outcome="unknown", seconds=30.0, why="no answer"),
]


def test_a_phase_counts_outcomes_and_says_how_long_was_waited() -> None:
    assert phase_of("quiet", ANSWERS) == TrialPhase(
        name="quiet", filled=3, refused=1, unavailable=0, unknown=1, p50_ms=500.0, slowest_s=30.0,
        why=("refused: no room", "unknown: no answer"),
    )  # fmt: skip
    assert phase_of("empty", []).slowest_s == 0.0


def test_the_page_has_orders_times_and_findings() -> None:
    moment = TimedMoment(what="the lost host is down", seconds=4.5)
    whole = TrialReport(nodes=3, phases=(phase_of("quiet", ANSWERS),), moments=(moment,), findings=())
    assert whole.status == 0
    lines = page(whole).splitlines()
    assert lines[3].split() == ["quiet", "3", "1", "0", "1", "500", "30.00"]
    assert "quiet: refused: no room" in lines
    assert "    4.50 s  the lost host is down" in lines and lines[-1] == "0 findings"
    broken = TrialReport(nodes=3, phases=(), moments=(), findings=("no order fills twice: x",))
    assert broken.status == 1 and "found: no order fills twice: x" in page(broken)
