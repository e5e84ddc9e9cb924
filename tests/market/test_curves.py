import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.market.curves import MOST_POINTS, Curve, curve

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
def test_what_is_no_curve_is_refused_with_the_place(given: list[tuple[float, ...]], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        curve(given)


def test_a_value_above_the_most_is_refused() -> None:
    with pytest.raises(ValueError, match="the value 2 is not between 0 and 1"):
        curve([(2, 1)], most=1)


@given(line=points, value=st.floats(-10, 2000))
def test_it_stays_between_its_lowest_and_its_highest_point(line: Curve, value: float) -> None:
    heights = [height for _, height in line.points]
    assert min(heights) - 1e-9 <= line.at(value) <= max(heights) + 1e-9
