"""Documents in three notations, their places, and what a hostile one costs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.flytoml.document import MAX_BYTES, MAX_VALUES, Located, Unreadable, read
from hawker.flytoml.shape import plain


def at(node: Located, *path: str | int) -> tuple[int, int]:
    for part in path:
        if isinstance(part, int):
            assert isinstance(node.value, list)
            node = node.value[part]
        else:
            assert isinstance(node.value, dict)
            node = node.value[part]
    return node.line, node.column


def refused(text: str, suffix: str) -> Unreadable:
    with pytest.raises(Unreadable) as caught:
        read(text, suffix)
    return caught.value


TOML = 'app = "shop"\n[env]\n  PORT = 1\n[[vm]]\nsize = "a"\n[[vm]]\nprocesses = ["x", "y"]\n'
JSON = '{"app": "shop",\n\t"env": {"PORT": 1},\n "vm": [{"size": "a"},\n  {"processes": ["x", "y"]}]}'
YAML = "app: shop\nenv:\n  PORT: 1\nvm:\n- size: a\n- processes: [x, y]\n"


@pytest.mark.parametrize(
    ("text", "suffix", "port", "second"),
    [(TOML, ".toml", (3, 3), (7, 1)), (JSON, ".json", (2, 10), (4, 4)), (YAML, ".yaml", (3, 3), (6, 3))],
)
def test_a_document_has_the_same_values_and_its_places_in_each_notation(
    text: str, suffix: str, port: tuple[int, int], second: tuple[int, int]
) -> None:
    root = read(text, suffix)
    assert plain(root) == {"app": "shop", "env": {"PORT": 1}, "vm": [{"size": "a"}, {"processes": ["x", "y"]}]}
    assert at(root, "env", "PORT") == port and at(root, "vm", 1, "processes") == second


@pytest.mark.parametrize(
    ("text", "suffix", "line"),
    [("a = 1\nb = \n", ".toml", 2), ('{"a": 1,\n]', ".json", 2), ("a: 1\nb: [\n", ".yaml", 3), ("\0", ".yaml", 1)],
)
def test_a_document_with_an_error_of_syntax_has_its_line(text: str, suffix: str, line: int) -> None:
    assert refused(text, suffix).line == line


@pytest.mark.parametrize("suffix", [".toml", ".json", ".yaml"])
def test_a_long_document_is_refused(suffix: str) -> None:
    assert "longer than 256 KiB" in refused("#" * (MAX_BYTES + 1), suffix).text


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ("a = " + "[" * 100_000, ".toml"),
        ("a = " + "[" * 40 + "]" * 40, ".toml"),
        ("a" + ".a" * 100_000 + " = 1", ".toml"),
        ("[a" + ".a" * 40 + "]", ".toml"),
        ("a = " + "{a = " * 40 + "1" + "}" * 40, ".toml"),
        ("[" * 100_000, ".json"),
        ("[" * 40 + "]" * 40, ".json"),
        ("[" * 100_000, ".yaml"),
        ("- " * 40 + "x", ".yaml"),
    ],
)
def test_a_deep_document_is_refused(text: str, suffix: str) -> None:
    assert "nested more than 32 deep" in refused(text, suffix).text


def test_a_document_of_many_values_is_refused() -> None:
    many = "[" + "1," * MAX_VALUES + "1]"
    for text, suffix in ((f"a = {many}", ".toml"), (many, ".json"), (many, ".yaml")):
        assert "more than 5000 values" in refused(text, suffix).text


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    assert "more than 5000 values" in refused("\n".join(lines), ".yaml").text


def test_an_alias_of_what_has_not_ended_is_refused() -> None:
    assert refused("a: &a\n  b: *a\n", ".yaml") and refused("a: *b\n", ".yaml").line == 1


def test_an_alias_is_its_anchors_value() -> None:
    assert plain(read("a: &x {b: 1}\nc: *x\n", ".yaml")) == {"a": {"b": 1}, "c": {"b": 1}}


def test_a_key_that_is_there_twice_is_refused() -> None:
    for text, suffix in (("a = 1\na = 2", ".toml"), ('{"a": 1, "a": 2}', ".json"), ("a: 1\na: 2", ".yaml")):
        assert refused(text, suffix)


def test_a_tag_of_yaml_makes_no_object() -> None:
    assert plain(read("a: !!python/object/apply:os.system [ls]", ".yaml")) == {"a": ["ls"]}


def test_words_of_yaml_are_words() -> None:
    text = "a: off\nb: yes\nc: true\nd: ~\ne: 1.5\nf: '1'\ng: 0x10\n"
    assert plain(read(text, ".yaml")) == {
        "a": "off",
        "b": "yes",
        "c": True,
        "d": None,
        "e": 1.5,
        "f": "1",
        "g": "0x10",
    }


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for suffix in (".toml", ".json", ".yaml"):
        try:
            read(text, suffix)
        except Unreadable as error:
            assert error.line >= 1 and error.column >= 1


_JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(_JSONS)
def test_json_is_read_as_json_reads_it(value: object) -> None:
    assert plain(read(json.dumps(value, indent=1), ".json")) == value
