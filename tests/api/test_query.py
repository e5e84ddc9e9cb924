from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.api.bounds import Seconds
from hawker.api.contract.machine import ListMachinesQuery, WaitState
from hawker.api.contract.machine_operation import WaitQuery
from hawker.api.contract.run import RunState
from hawker.api.query import QueryCodec
from hawker.api.routes import ROUTES
from hawker.errors import BadRequest
from hawker.machine import State


class Everything(msgspec.Struct, frozen=True, kw_only=True):
    text: str | None = None
    count: int = 5
    yes: bool = False
    lasts: Seconds | None = None
    states: tuple[RunState, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)


CODEC = QueryCodec(Everything)


def test_a_parameter_that_would_narrow_a_list_and_is_not_known_is_refused() -> None:
    strict = QueryCodec(Everything, strict=True)
    with pytest.raises(BadRequest, match="query parameter role: this list cannot be narrowed by it"):
        strict.decode([("role", "builder")])
    assert strict.decode([("role", ""), ("labels.a", "b")]).labels == {"a": "b"}
    assert CODEC.decode([("role", "builder")]) == Everything()


@pytest.mark.parametrize("text", ["", "1", "t", "true", "True", "YES", "on"])
def test_yes_in_every_way(text: str) -> None:
    assert CODEC.decode([("yes", text)]).yes


@pytest.mark.parametrize("text", ["0", "false", "F", "no", "off"])
def test_no_in_every_way(text: str) -> None:
    assert not CODEC.decode([("yes", text)]).yes


@pytest.mark.parametrize(("text", "seconds"), [("60", 60), ("1.5", 1.5), ("1m0s", 60), ("250ms", 0.25)])
def test_seconds_are_a_number_or_a_go_duration(text: str, seconds: float) -> None:
    assert CODEC.decode([("lasts", text)]).lasts == seconds


def test_a_text_that_may_be_absent_is_absent_when_it_is_empty() -> None:
    assert QueryCodec(WaitQuery).decode([("version", ""), ("instance_id", ""), ("from_event_id", "")]) == WaitQuery()


def test_lists_are_repeated_or_separated_by_commas() -> None:
    query = QueryCodec(WaitQuery).decode([("state", "started, stopped"), ("state", "settled"), ("state", "")])
    assert query.state == (WaitState.STARTED, WaitState.STOPPED, WaitState.SETTLED)


def test_entries_of_a_map_are_named_one_by_one() -> None:
    query = QueryCodec(ListMachinesQuery).decode([("metadata.a.b", "1"), ("metadata.c", "x=y"), ("state", "created")])
    assert query.metadata == {"a.b": "1", "c": "x=y"} and query.state == (State.CREATED,)


def test_the_last_of_several_wins_and_the_unknown_is_ignored() -> None:
    assert CODEC.decode([("count", "1"), ("count", "2"), ("unknown", "3"), ("labelsx", "4")]) == Everything(count=2)


@pytest.mark.parametrize(
    ("pair", "complaint"),
    [
        (("count", "many"), "count"),
        (("count", "1.5"), "count"),
        (("count", "9" * 5000), "count"),
        (("yes", "maybe"), "yes: 'maybe' is neither true nor false"),
        (("lasts", "soon"), "lasts: 'soon' is not a duration"),
        (("states", "done,nope"), "Invalid enum value 'nope'"),
    ],
)
def test_a_bad_value_is_a_bad_request_that_names_the_parameter(pair: tuple[str, str], complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint):
        CODEC.decode([pair])


@given(
    st.builds(
        Everything,
        text=st.none() | st.text(min_size=1),
        count=st.integers(-(2**40), 2**40),
        yes=st.booleans(),
        lasts=st.none() | st.integers(0, 10**9).map(lambda thousandths: thousandths / 1000),
        states=st.lists(st.sampled_from(RunState)).map(tuple),
        labels=st.dictionaries(st.text(), st.text()),
    )
)
def test_a_query_written_is_read_back(query: Everything) -> None:
    assert CODEC.decode(CODEC.encode(query)) == query


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_routes_query_is_empty_when_nothing_is_asked(route: Any) -> None:
    codec: QueryCodec[Any] = QueryCodec(route.query)
    assert codec.encode(route.query()) == [] and codec.decode([]) == route.query()


@given(st.lists(st.tuples(st.sampled_from([*Everything.__struct_fields__, "labels.a"]), st.text())))
def test_any_query_is_read_or_a_bad_request(pairs: list[tuple[str, str]]) -> None:
    try:
        CODEC.decode(pairs)
    except BadRequest as error:
        assert error.status == 400


@pytest.mark.parametrize("count", [2**63, -(2**63) - 1, 10**400], ids=["above", "below", "far"])
def test_an_integer_of_more_than_64_bits_is_refused(count: int) -> None:
    with pytest.raises(BadRequest, match="query parameter count: an integer has at most 64 bits"):
        CODEC.decode([("count", str(count))])
    assert CODEC.decode([("count", str(2**63 - 1))]).count == 2**63 - 1
