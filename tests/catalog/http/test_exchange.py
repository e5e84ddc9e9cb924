import pytest

from hawker.catalog.http.exchange import Answered, decimal, flag, number


def test_a_given_number() -> None:
    query = {"from": "12", "skip_rows": "true", "p99_lag": "0.5"}
    assert number(query, "from") == 12
    assert flag(query, "skip_rows")
    assert decimal(query, "p99_lag") == 0.5


def test_a_number_left_out() -> None:
    assert number({}, "from") is None
    assert not flag({}, "skip_rows")
    assert decimal({}, "p99_lag") is None


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "9" * 19, "9" * 5000, "²"])
def test_a_text_that_is_no_whole_number(text: str) -> None:
    with pytest.raises(Answered) as refused:
        number({"from": text}, "from")
    assert refused.value.status == 400


@pytest.mark.parametrize("text", ["", "x", "nan", "inf"])
def test_a_text_that_is_no_number(text: str) -> None:
    with pytest.raises(Answered):
        decimal({"p99_lag": text}, "p99_lag")


@pytest.mark.parametrize("text", ["", "1", "True"])
def test_a_text_that_is_no_flag(text: str) -> None:
    with pytest.raises(Answered):
        flag({"skip_rows": text}, "skip_rows")
