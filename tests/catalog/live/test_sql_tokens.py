import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.catalog.live.sql_tokens import SqlTokenKind, quoted, tokens_of


@pytest.mark.parametrize(
    ("sql", "texts"),
    [
        ("SELECT a.b FROM t", ["SELECT", "a", ".", "b", "FROM", "t"]),
        ("SELECT 'it''s', x'00'", ["SELECT", "'it''s'", ",", "x'00'"]),
        ('SELECT "a ""b""", `c`, [d e]', ["SELECT", 'a "b"', ",", "c", ",", "d e"]),
        ("a -- FROM x\n/* FROM y */ b", ["a", "b"]),
        ("a->>'$.b' || 1.5e3 <> .5", ["a", "->>", "'$.b'", "||", "1.5e3", "<>", ".5"]),
        ("/* open", []),
    ],
)
def test_words(sql: str, texts: list[str]) -> None:
    assert [token.text for token in tokens_of(sql)] == texts


def test_kinds_and_depth() -> None:
    word, open_, quoted_, close = tokens_of('f("x")')
    assert (word.kind, quoted_.kind) == (SqlTokenKind.WORD, SqlTokenKind.QUOTED)
    assert (word.depth, open_.depth, quoted_.depth, close.depth) == (0, 0, 1, 0)
    assert (word.upper, quoted_.upper) == ("F", "")


@given(st.text(max_size=60))
def test_places_are_those_of_the_text(sql: str) -> None:
    end = 0
    for token in tokens_of(sql):
        assert end <= token.start < token.end
        end = token.end
    assert end <= len(sql)


@given(st.text(min_size=1, max_size=20))
def test_a_quoted_name_is_read_back(name: str) -> None:
    (token,) = tokens_of(quoted(name))
    assert (token.kind, token.text) == (SqlTokenKind.QUOTED, name)
