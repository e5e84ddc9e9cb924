"""The rows that a siege becomes."""

import pytest

from hawker.chaos.kill_runner import KillOutcome
from hawker.chaos.scenarios import SCENARIOS
from hawker.chaos.steps import FLOW_NAMES, StepsPlan, StepsReport, rows_of


@pytest.mark.parametrize(
    ("place", "step", "where", "point"),
    [
        ("stop.accept.before", "accept", "before", ""),
        ("stop.halt.asked", "halt", "inside", "asked"),
        ("stop.halt.after", "halt", "after", ""),
        ("create.image.undo", "image (undo)", "before", ""),
        ("create.image.undo.killed", "image (undo)", "inside", "killed"),
        ("create.image.undone", "image (undo)", "after", ""),
        ("instance.exit.ended", "exit", "inside", "ended"),
    ],
)
def test_a_place_is_told_in_words(place: str, step: str, where: str, point: str) -> None:
    [row] = rows_of(SCENARIOS[0], KillOutcome((place,), 12.5, ()))
    assert (row.flow, row.step, row.where, row.point, row.recovered_ms) == (
        place.split(".")[0],
        step,
        where,
        point,
        12.5,
    )


def test_last_of_deaths_in_a_row_has_the_outcome() -> None:
    first, last = rows_of(SCENARIOS[0], KillOutcome(("stop.halt.before", "stop.halt.after"), 7.0, ("is gone",)))
    assert (first.recovered_ms, first.findings) == (None, ())
    assert (last.recovered_ms, last.findings) == (7.0, ("is gone",))


def test_findings_are_counted_wherever_they_are() -> None:
    rows = tuple(rows_of(SCENARIOS[0], KillOutcome(("stop.halt.before",), 7.0, ("is gone", "is doubled"))))
    assert StepsReport(driver="process", seconds=1.0, rows=rows, findings=("left on the host: x",)).found == 3


def test_a_plan_has_the_scenes_of_its_flow() -> None:
    assert StepsPlan().scenarios() == SCENARIOS
    assert {scenario.flow for scenario in StepsPlan(flow="start").scenarios()} == {"start"}
    assert all(StepsPlan(flow=name).scenarios() for name in FLOW_NAMES)
