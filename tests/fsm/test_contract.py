"""A bad table fails where it is written; a good one tells its rows and its hash."""

from math import inf, nan
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.fsm.contract import Backoff, Flow, Step
from tests.fsm.serving import Job, flow, noting, step, undoing


@pytest.mark.parametrize("name", ["", "Cut", "cut cloth", "cut-cloth", "_cut", "cut_", "cut__cloth", "1cut", "cut\n"])
def test_a_name_is_lower_snake(name: str) -> None:
    with pytest.raises(ValueError, match="lower_snake"):
        step(name)
    with pytest.raises(ValueError, match="lower_snake"):
        flow(name, step("cut"))
    with pytest.raises(ValueError, match="lower_snake"):
        Step("cut", noting("cut"), queue=name)


@pytest.mark.parametrize("timeout_s", [0, -1, inf, nan])
def test_a_timeout_is_positive_and_finite(timeout_s: float) -> None:
    with pytest.raises(ValueError, match="timeout_s"):
        Step("cut", noting("cut"), timeout_s=timeout_s)
    with pytest.raises(ValueError, match="deadline_s"):
        flow("make", step("cut"), deadline_s=timeout_s)


@pytest.mark.parametrize("point", ["Half", "", "before", "undone", "undo.half", "half.made"])
def test_a_point_is_a_name_that_is_not_taken(point: str) -> None:
    with pytest.raises(ValueError, match="point"):
        Step("cut", noting("cut"), points=(point,))


def test_a_flow_has_steps_with_names_of_their_own() -> None:
    with pytest.raises(ValueError, match="no steps"):
        flow("make")
    with pytest.raises(ValueError, match="twice"):
        flow("make", step("cut"), step("cut"))


@pytest.mark.parametrize(
    "fields", [{"attempts": 0}, {"attempts": 1001}, {"first_s": -1}, {"cap_s": 0.1}, {"cap_s": inf}]
)
def test_a_backoff_is_bounded(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"attempts|backoff"):
        Backoff(**fields)


@given(st.integers(1, 1000), st.floats(0, 1, exclude_max=True))
def test_a_backoff_grows_to_its_cap_with_full_jitter(attempt: int, jitter: float) -> None:
    wait_s = Backoff(first_s=0.2, cap_s=10).wait_s(attempt, jitter)
    full_s = min(10.0, 0.2 * 2 ** min(attempt - 1, 60))
    assert full_s / 2 <= wait_s <= full_s


def test_a_flow_finds_its_rows() -> None:
    cut, sew = step("cut"), step("sew")
    make = flow("make", cut, sew)
    assert (make.find("sew"), make.find("iron")) == (sew, None)
    assert (make.following("cut"), make.following("sew")) == (sew, None)


class Bigger(msgspec.Struct, frozen=True, kw_only=True):
    size: int = 0
    colour: str = ""


def test_the_definition_is_the_same_for_the_same_table() -> None:
    assert flow("make", step("cut")).definition() == flow("make", step("cut")).definition()


@pytest.mark.parametrize(
    "other",
    [
        flow("mend", step("cut"), step("sew")),
        flow("make", step("sew"), step("cut")),
        flow("make", step("cut")),
        flow("make", step("cut"), Step("sew", noting("sew"))),
        flow("make", step("cut"), Step("sew", noting("sew"), undoing("sew"), queue="machines")),
        flow("make", step("cut"), Step("sew", noting("sew"), undoing("sew"), durable=True)),
        Flow("make", Bigger, (step("cut"), step("sew"))),
    ],
)
def test_the_definition_changes_with_what_a_resumed_run_depends_on(other: Flow[Job]) -> None:
    assert other.definition() != flow("make", step("cut"), step("sew")).definition()


def test_the_definition_does_not_change_with_patience() -> None:
    patient = Step("cut", noting("cut"), undoing("cut"), timeout_s=1, backoff=Backoff(attempts=9))
    assert flow("make", patient).definition() == flow("make", step("cut")).definition()
