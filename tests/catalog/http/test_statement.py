import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.catalog.http.statement import NotJson, WrongShape, statement_of, statements_of, texts_of

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("body", "query", "params", "named"),
    [
        (b' "SELECT 1" ', "SELECT 1", (), {}),
        (b'["S", [1, true, null, "a", [1, 255], []]]', "S", (1, 1, None, "a", b"\1\xff", b""), {}),
        (b'["S", {":a": 1, "@b": false, "$c": 3, "d": 4}]', "S", (), {"a": 1, "b": 0, "c": 3, "d": 4}),
        (b'{"query": "S", "params": [1], "named_params": {"$x": 1}, "more": 1}', "S", (1,), {}),
        (b'{"query": "S", "params": null, "named_params": {"$x": 1}}', "S", (), {"x": 1}),
        (b'["S", [[1, 256], [1.0], {"a": 1}, [ "b" ]]]', "S", ("[1, 256]", "[1.0]", '{"a": 1}', '[ "b" ]'), {}),
        (b'["S", [9223372036854775808, -9223372036854775808]]', "S", (float(2**63), -(2**63)), {}),
    ],
)
def test_forms(body: bytes, query: str, params: tuple[object, ...], named: dict[str, object]) -> None:
    statement = statement_of(body)
    assert (statement.query, statement.params, dict(statement.named_params)) == (query, params, named)


@pytest.mark.parametrize("body", [b"", b"[", b"{]", b'"\xff"', b'["S", [1e999]]', b"[" * 100_000, b'["S",[[1,]]]'])
def test_no_json(body: bytes) -> None:
    with pytest.raises(NotJson):
        statement_of(body)


@pytest.mark.parametrize(
    "body", [b"1", b"null", b'["S"]', b'["S", 1]', b"[]", b'{"q": "S"}', b'{"query": 1}', b"[1, []]"]
)
def test_no_statement(body: bytes) -> None:
    with pytest.raises(WrongShape):
        statement_of(body)


def test_lists() -> None:
    assert [each.query for each in statements_of(b'["a", ["b", []], {"query": "c"}]')] == ["a", "b", "c"]
    assert texts_of(b'["a", "b"]') == ["a", "b"]
    for body in (b"{}", b"[1]"):
        with pytest.raises(WrongShape):
            statements_of(body)
        with pytest.raises(WrongShape):
            texts_of(body)


def test_a_transaction_has_so_many_statements() -> None:
    with pytest.raises(WrongShape, match="100000"):
        statements_of(b"[" + b'"S",' * 100_000 + b'"S"]')


@given(_JSON)
def test_whatever_comes_is_a_statement_or_refused(value: object) -> None:
    for read in (statement_of, statements_of):
        try:
            read(json.dumps(value).encode())
        except (NotJson, WrongShape):
            continue


@given(st.binary(max_size=40))
def test_no_bytes_break_it(body: bytes) -> None:
    for read in (statement_of, statements_of, texts_of):
        try:
            read(body)
        except (NotJson, WrongShape):
            continue
