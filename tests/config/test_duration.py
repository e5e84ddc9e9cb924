import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.config.duration import duration_complaints, format_duration, parse_duration, parse_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("1m0s", 60), ("1h1m1s", 3661), ("250ms", 0.25), ("1.5h", 5400), (".5s", 0.5), ("0", 0), ("-2s", -2)],
)
def test_go_durations_are_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "10", "s", "1x", "1s ", "1 s", "1e3s", "s1", "1s;", "--1s", "nan", "9" * 40 + "s"]
)
def test_a_duration_go_would_not_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (250_000_000, "250ms"),
        (1_500_000_000, "1.5s"),
        (60_000_000_000, "1m0s"),
        (3_661_000_000_000, "1h1m1s"),
        (-60_000_000_000, "-1m0s"),
    ],
)
def test_durations_are_written_as_go_writes_them(nanoseconds: int, text: str) -> None:
    assert format_duration(nanoseconds) == text


@given(st.integers(-(10**17), 10**17))
def test_a_duration_written_is_read_back(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)) == pytest.approx(nanoseconds / 1e9)


def test_a_query_may_give_plain_seconds() -> None:
    assert parse_seconds("60") == parse_seconds("60.0") == parse_seconds("1m0s") == 60
    assert parse_seconds("5.316322016631514e-298") == 5.316322016631514e-298


def test_a_field_that_holds_a_duration_is_complained_about_by_its_name() -> None:
    def complaint(value: str | int | None) -> str | None:
        return next(duration_complaints("wait", value, 1.0, 60.0), None)

    assert complaint(None) is None and complaint("1m") is None
    assert complaint("2m") == "wait must be between 1 s and 60 s, not 2m"
    assert complaint("soon") == "wait: 'soon' is not a duration such as 10s or 1m30s"
