from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.api.dispatch import ANY_METHOD, Dispatch, Found, WrongMethod
from hawker.api.route import AnyRoute
from hawker.api.routes import ROUTES, UNSERVED


def _tree() -> Dispatch[str]:
    tree: Dispatch[str] = Dispatch()
    for route in ROUTES:
        tree.add(route.method, route.path, route.name)
        for alias in route.aliases:
            tree.add(alias.method, alias.path, route.name)
    for unserved in UNSERVED:
        tree.add(ANY_METHOD, unserved.path, "unserved")
    return tree


TREE = _tree()


def _find(method: str, path: str) -> tuple[str, Mapping[str, str]]:
    found = TREE.find(method, path)
    assert isinstance(found, Found), f"{method} {path}: {found}"
    return found.target, found.params


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_is_found_by_its_own_path_with_and_without_a_slash_at_the_end(route: AnyRoute) -> None:
    values = {name: f"{name}-value" for name in route.params.__struct_fields__}
    path = route.path.format(**values)
    assert _find(route.method, path) == _find(route.method, f"{path}/") == (route.name, values)


def test_a_parameter_may_hold_an_encoded_slash() -> None:
    assert _find("GET", "/v1/apps/a/machines/b/metadata/x%2Fy%25") == (
        "get_metadata",
        {"app_name": "a", "machine_id": "b", "key": "x/y%"},
    )


def test_a_parameter_is_never_empty() -> None:
    assert TREE.find("GET", "/v1/apps//machines") is None


def test_another_method_is_told_from_another_path() -> None:
    assert TREE.find("PUT", "/v1/apps") == WrongMethod(("GET", "POST"))
    assert TREE.find("GET", "/v1/nothing") is None
    assert TREE.find("GET", "/v1") is None


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/apps/a/certificates/custom"),
        ("GET", "/v1/apps/a/certificates"),
        ("DELETE", "/v1/apps/a/certificates/a.example/acme"),
        ("POST", "/v1/tokens/oidc"),
    ],
)
def test_what_is_not_served_is_found_with_any_method(method: str, path: str) -> None:
    assert _find(method, path)[0] == "unserved"


def test_two_targets_of_one_place_are_refused() -> None:
    with pytest.raises(AssertionError, match="two routes for GET /v1/apps"):
        _tree().add("GET", "/v1/apps", "again")


def test_a_literal_wins_over_a_parameter() -> None:
    tree: Dispatch[str] = Dispatch()
    tree.add("GET", "/a/{b}", "parameter")
    tree.add("GET", "/a/c", "literal")
    assert tree.find("GET", "/a/c") == Found("literal", {})
    assert tree.find("GET", "/a/d") == Found("parameter", {"b": "d"})


@given(st.sampled_from(["GET", "POST", "HEAD", ""]), st.text(alphabet="/v1apsmchine%2F.{}*?", max_size=40))
def test_any_path_finds_something_or_nothing(method: str, path: str) -> None:
    TREE.find(method, path)
