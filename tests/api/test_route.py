"""The table itself: every row is complete and consistent."""

import re
from types import NoneType
from typing import Any

import msgspec
import pytest

from hawker.api.codec import answer_type
from hawker.api.contract.body import Problem
from hawker.api.contract.market import QUOTE
from hawker.api.contract.node import EDGE_METRICS, MACHINE_METRICS, METRICS
from hawker.api.route import AnyRoute, Rate, Socket, Stream, Tag, declared_errors, writes
from hawker.api.routes import ROUTES
from hawker.errors import BadRequest, TooLarge, Unauthorized, Unprocessable

every_route = pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)


def test_no_two_rows_have_one_name_or_one_path() -> None:
    assert len({route.name for route in ROUTES}) == len(ROUTES)
    places = [(route.method, route.path) for route in ROUTES]
    places += [(alias.method, alias.path) for route in ROUTES for alias in route.aliases]
    assert len(set(places)) == len(places)


def test_only_these_need_no_token() -> None:
    public = {route.name for route in ROUTES if not route.auth}
    assert public == {"admit_host", "health", "list_regions", "authenticate_token", "authorize_token"}


@every_route
def test_a_row_is_complete(route: AnyRoute) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", route.name)
    ours = route.path.startswith(("/v1/", "/hawker/v1/", "/internal/v1/")) and not route.path.endswith("/")
    assert ours or route in (METRICS, MACHINE_METRICS, EDGE_METRICS), (
        "only what scrapers look for has a path of its own"
    )
    assert route.summary and not route.summary.endswith(".")
    assert isinstance(route.tag, Tag) and route.timeout_s > 0


@every_route
def test_path_and_parameters_name_the_same(route: AnyRoute) -> None:
    assert re.findall(r"{(\w+)}", route.path) == list(route.params.__struct_fields__)


@every_route
def test_a_query_and_an_optional_body_can_be_left_out(route: AnyRoute) -> None:
    assert isinstance(route.query(), msgspec.Struct)
    if route.body_optional:
        assert isinstance(route.body(), msgspec.Struct)


@every_route
def test_reading_takes_no_body(route: AnyRoute) -> None:
    assert route.method != "GET" or route.body is NoneType or isinstance(route, Socket)


@every_route
def test_errors_beyond_the_routes_own_follow_from_what_it_takes(route: AnyRoute) -> None:
    declared = declared_errors(route)
    assert len(set(declared)) == len(declared) and set(route.errors) <= set(declared) and BadRequest in declared
    assert (Unauthorized in declared) == (route.auth or Unauthorized in route.errors)
    if route.body is not NoneType:
        assert {TooLarge, Unprocessable} <= set(declared)


@every_route
def test_no_answer_can_be_taken_for_an_error(route: AnyRoute) -> None:
    """A client tells a stream's failure by its first member."""
    if isinstance(route, Stream | Socket):
        _, components = msgspec.json.schema_components([answer_type(route)])
        tags = [schema.get("properties", {}).get("type", {}).get("enum", []) for schema in components.values()]
        assert ["failed"] not in tags


@every_route
def test_a_strict_body_has_no_default_but_none(route: AnyRoute) -> None:
    """Strictness compares what came with what was kept, and what has its default is not kept."""
    if route.strict:
        for kind in _structs(route.body, set()):
            for field in msgspec.structs.fields(kind):
                assert field.required or field.default is None, f"{kind.__name__}.{field.name}"


def _structs(kind: Any, seen: set[type]) -> set[type[msgspec.Struct]]:
    info = msgspec.inspect.type_info(kind)
    _walk(info, seen)
    return seen


def _walk(info: Any, seen: set[type]) -> None:
    if isinstance(info, msgspec.inspect.StructType):
        if info.cls in seen:
            return
        seen.add(info.cls)
        for field in info.fields:
            _walk(field.type, seen)
    for name in ("item_type", "key_type", "value_type"):
        if hasattr(info, name):
            _walk(getattr(info, name), seen)
    for option in getattr(info, "types", ()):
        _walk(option, seen)


def test_a_problem_is_what_every_client_of_the_real_api_reads() -> None:
    assert list(Problem.__struct_fields__[:2]) == ["error", "status"]


def test_a_call_writes_unless_it_reads() -> None:
    assert all(writes(route) == (route.method != "GET") for route in ROUTES if route.action is None)
    assert not writes(QUOTE)


def test_the_classes_are_those_of_the_contract() -> None:
    assert (Rate.USUAL.value.per_s, Rate.USUAL.value.burst) == (1, 3)
    assert (Rate.LOOK.value.per_s, Rate.LOOK.value.burst) == (5, 10)
    assert (round(Rate.APP_DELETION.value.per_s * 60), Rate.APP_DELETION.value.burst) == (100, 100)
