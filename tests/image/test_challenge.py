"""Facts about challenges as registries write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.image.challenge import parse_challenges


def test_bearer_challenge_is_read() -> None:
    header = 'Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push"'
    [found] = parse_challenges([header])
    assert found.scheme == "bearer"
    assert found.get("realm") == "https://auth.example/token"
    assert found.get("scope") == "repository:a/b:pull,push"
    assert found.get("error") is None


@pytest.mark.parametrize(
    ("headers", "schemes"),
    [
        (["Basic realm=registry"], ["basic"]),
        (['BASIC REALM="a \\"b\\""'], ["basic"]),
        (['Bearer realm="x", Basic realm="y"'], ["bearer", "basic"]),
        (['Bearer realm="x"', 'Basic realm="y"'], ["bearer", "basic"]),
        (["Negotiate, Basic realm=y"], ["negotiate", "basic"]),
        ([""], []),
        (["=="], []),
    ],
)
def test_every_challenge_is_found(headers: list[str], schemes: list[str]) -> None:
    assert [found.scheme for found in parse_challenges(headers)] == schemes


def test_quoted_quotes_are_unquoted() -> None:
    assert parse_challenges(['Basic Realm="a \\"b\\""'])[0].get("realm") == 'a "b"'


@given(st.text(alphabet='Bearer realm="\\,= x', max_size=200))
def test_whatever_comes_is_survived(header: str) -> None:
    parse_challenges([header])
