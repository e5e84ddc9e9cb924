from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.errors import CannotStart
from hawker.market.preferences import MOST_POINTS, RESOURCES, Curve, Limits, curve, load_preferences, preferences

points = st.lists(
    st.tuples(st.floats(0, 1000), st.floats(0, 1)), min_size=1, max_size=8, unique_by=lambda point: point[0]
).map(lambda found: Curve(tuple(sorted(found))))


@pytest.mark.parametrize(
    ("value", "desirability"), [(-1, 1.0), (0, 1.0), (0.25, 0.75), (0.5, 0.5), (0.75, 0.25), (1, 0.0), (2, 0.0)]
)
def test_between_points_it_is_a_straight_line_and_beyond_them_level(value: float, desirability: float) -> None:
    assert curve([(0, 1), (0.5, 0.5), (1, 0)]).at(value) == pytest.approx(desirability)


def test_one_point_is_a_level_line() -> None:
    assert {curve([(5, 0.3)]).at(value) for value in (0, 5, 9)} == {0.3}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "a curve has 1 to"),
        ([(0, 1)] * (MOST_POINTS + 1), "a curve has 1 to"),
        ([(0, 1, 2)], r"\[0\]: a point is \[value, desirability\]"),
        ([(0, 1), (-1, 1)], r"\[1\]: the value -1 is not between"),
        ([(0, 1.5)], r"\[0\]: the desirability 1.5 is not between 0 and 1"),
        ([(0, 1), (0.5, 1), (0.5, 0)], r"\[2\]: values must grow, and 0.5 comes after 0.5"),
        ([(0, float("nan"))], r"\[0\]: the desirability nan"),
        ([(float("nan"), 1)], r"\[0\]: the value nan"),
    ],
)
def test_a_text_that_is_no_curve_is_refused_with_the_place(given: list[tuple[float, ...]], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        curve(given)


def test_a_value_above_the_most_is_refused() -> None:
    with pytest.raises(ValueError, match="the value 2 is not between 0 and 1"):
        curve([(2, 1)], most=1)


@given(line=points, value=st.floats(-10, 2000))
def test_a_curve_stays_between_its_lowest_and_its_highest_point(line: Curve, value: float) -> None:
    heights = [height for _, height in line.points]
    assert min(heights) - 1e-9 <= line.at(value) <= max(heights) + 1e-9


def _loaded(tmp_path: Path, text: str) -> object:
    file = tmp_path / "market.toml"
    file.write_text(text)
    return load_preferences(file)


def test_without_a_file_there_is_a_curve_and_a_weight_for_each_resource() -> None:
    usual = load_preferences(None)
    assert set(usual.curves) == set(usual.weights) == set(RESOURCES)


def test_a_curve_of_the_file_replaces_that_and_nothing_else(tmp_path: Path) -> None:
    text = "[curves]\ncpu = [[0.0, 0.0], [1.0, 1.0]]\n[weights]\nimage = 3\n[limits]\nbid_deadline_s = 0.25\n"
    found = _loaded(tmp_path, text)
    usual = preferences()
    assert found == preferences({"cpu": ((0.0, 0.0), (1.0, 1.0))}, {"image": 3.0}, Limits(bid_deadline_s=0.25))
    assert found != usual and usual.curves["memory"] == preferences({"cpu": ((0.0, 0.0),)}).curves["memory"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[curves]\ncpus = [[0.0, 1.0]]", "curves.cpus is not known: there are cpu, memory"),
        ("[curves]\ncpu = [[0.5, 1.0], [0.25, 0.0]]", r"curves.cpu\[1\]: values must grow"),
        ("[curves]\ncpu = [[2.0, 1.0]]", r"curves.cpu\[0\]: the value 2"),
        ("[curves]\ncpu = 3", r"curves\[...\]"),
        ("[weights]\ncpu = -1", "weights.cpu must be between 0 and 1000"),
        ("[weights]\nspread = 'x'", "float"),
        ("[weights]\ncpu = 0\nmemory = 0\ndisk = 0", "one of cpu, memory and disk must be above 0"),
        ("[limits]\nbid_deadline_s = 0", "bid_deadline_s must be between"),
        ("[limits]\nhaste = 1", "haste"),
        ("colour = 1", "colour"),
        ("[curves", "cannot read"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_with_its_key(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(CannotStart, match=named) as refused:
        _loaded(tmp_path, text)
    assert "market.toml" in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"nothing.toml"):
        load_preferences(tmp_path / "nothing.toml")
