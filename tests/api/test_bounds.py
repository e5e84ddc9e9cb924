"""What the document says of a value is what the check does."""

import re

import msgspec
import pytest

from hawker.api.bounds import WRITTEN, AppsLimit, EventsLimit, PageLimit, RunsLimit
from hawker.api.contract.app import ListAppsQuery
from hawker.api.query import QueryCodec
from hawker.config.duration import DURATION_PATTERN, SECONDS_PATTERN, parse_duration, parse_seconds
from hawker.errors import BadRequest


@pytest.mark.parametrize("kind", [AppsLimit, PageLimit, RunsLimit, EventsLimit])
def test_a_limit_is_told_as_it_is_checked(kind: type[int]) -> None:
    schema = msgspec.json.schema(kind)
    least, most = schema["minimum"], schema.get("maximum", 10**9)
    assert msgspec.convert(least, kind) == 1 and msgspec.convert(most, kind) == most
    for wrong in (least - 1, most + 1) if "maximum" in schema else (least - 1,):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, kind)


@pytest.mark.parametrize("text", ["0", "5001", "-1", "99999999999999999999"])
def test_a_query_out_of_its_bounds_is_named(text: str) -> None:
    with pytest.raises(BadRequest, match="limit"):
        QueryCodec(ListAppsQuery).decode([("limit", text)])


@pytest.mark.parametrize("text", ["1s", "1m30s", "1.5h", ".5s", "+2ms", "10µs"])
def test_a_duration_fits_its_pattern(text: str) -> None:
    assert re.match(DURATION_PATTERN, text) and parse_duration(text) > 0


@pytest.mark.parametrize("text", ["0", "60", "1.5", "60s", "+0"])
def test_seconds_fit_their_pattern(text: str) -> None:
    assert re.match(SECONDS_PATTERN, text) and parse_seconds(text) >= 0


@pytest.mark.parametrize("text", ["", "s", "1", "1x", "1s ", "-1s", "١s"])
def test_words_that_are_no_duration_do_not(text: str) -> None:
    assert not re.match(DURATION_PATTERN, text)


def test_the_word_for_a_whole_schema_is_an_extension() -> None:
    assert WRITTEN.startswith("x-")
