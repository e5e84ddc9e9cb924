"""The places of keys in TOML, held to what `tomllib` reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.flytoml.toml import BadToml, Path, read
from hawker.flytoml.writer import toml_text

TEXT = """\
# a comment with [brackets] = "and more"
app = 'sh[op'
"quoted key" = 1
a.b.c = \"\"\"
[no]
header = 1 \\\"\"\" \"\"\"\"
list = [ # comment ]
  "x", [1, 2],
  {k = 1, l.m = [3]},
]
[one.two]
when = 1979-05-27 07:32:00
[[many]]
x = 1
[[many]]
[many.sub]
y = '''
it's'''
[[many.deep]]
z = 1
"""


def test_each_key_and_item_has_the_place_where_it_begins() -> None:
    value, places = read(TEXT, 32)

    def line(*path: str | int) -> int:
        return TEXT.count("\n", 0, places[path]) + 1

    assert value["many"][1]["deep"] == [{"z": 1}]
    assert line("app") == 2 and line("quoted key") == 3 and line("a", "b", "c") == 4
    assert line("list") == 7 and line("list", 1, 0) == 8 and line("list", 2, "l", "m", 0) == 9
    assert line("one", "two", "when") == 12 and line("many", 1, "sub", "y") == 17
    assert line("many", 0) == 13 and line("many", 1) == 15 and line("many", 1, "deep", 0, "z") == 20


def _paths(value: object, path: Path = ()) -> list[Path]:
    if isinstance(value, dict):
        return [path, *(each for key, inner in value.items() for each in _paths(inner, (*path, key)))]
    if isinstance(value, list):
        return [path, *(each for index, inner in enumerate(value) for each in _paths(inner, (*path, index)))]
    return [path]


_KEYS = st.text(min_size=1, max_size=6)
_VALUES = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_every_value_has_a_place_and_is_what_was_written(document: dict[str, object]) -> None:
    value, places = read(toml_text(document), 32)
    assert value == document
    assert set(_paths(value)) - {()} <= set(places)


@pytest.mark.parametrize(
    ("text", "at"), [("a = 1\nb = [1,,2]\n", 13), ("a = \n", 4), ("x = 1\nx = 2", 11), ("[a\n", 2), ('a = "x', 6)]
)
def test_an_error_of_syntax_has_its_place(text: str, at: int) -> None:
    with pytest.raises(BadToml) as caught:
        read(text, 32)
    assert caught.value.at == at


def test_a_number_of_many_digits_is_refused() -> None:
    with pytest.raises(BadToml):
        read("a = " + "9" * 5000, 32)
