"""A document as nodes that know their line and column, whichever of the three notations it came in. What a file may
cost is bounded here: bytes, depth, and values after aliases are followed. Nothing here knows what a key means."""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import TypeAlias

import yaml

from hawker.flytoml import toml
from hawker.value_object import ValueObject

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_VALUES = 5_000

Scalar: TypeAlias = bool | int | float | str | date | datetime | time | None
Value: TypeAlias = "Scalar | dict[str, Located] | list[Located]"

_JSON = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(?:[0-9]{1,40}\.[0-9]{0,40}|\.[0-9]{1,40}|[0-9]{1,40}(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?")
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class Located(ValueObject, frozen=True):
    """A value with the place of its key, or of itself in a list. `line` and `column` count from 1."""

    value: Value
    line: int
    column: int


class Unreadable(ValueError):
    """The text is no document of its notation, or costs too much."""

    def __init__(self, text: str, line: int = 1, column: int = 1) -> None:
        super().__init__(text)
        self.text, self.line, self.column = text, line, column


def read(text: str, suffix: str) -> Located:
    """`suffix` is of the file's name: `.json`, `.yaml` or `.yml`, or else TOML. Raises `Unreadable`."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise Unreadable(f"the file is longer than {MAX_BYTES >> 10} KiB")
    try:
        if suffix == ".json":
            return _read_json(text)
        if suffix in (".yaml", ".yml"):
            return _read_yaml(text)
        return _read_toml(text)
    except RecursionError:
        raise Unreadable(f"it is nested more than {MAX_DEPTH} deep") from None


class _Open:
    """A table or list that has not ended; `key` is the one whose value comes next."""

    def __init__(self, node: Located) -> None:
        self.node = node
        self.key: str | None = None
        self.key_at = (1, 1)


class _Builder:
    """Makes nodes of what a parser meets, in order, without recursion."""

    def __init__(self) -> None:
        self.open: list[_Open] = []
        self.root: Located | None = None
        self.values = 0

    def begin(self, value: Value, line: int, column: int) -> Located:
        if len(self.open) >= MAX_DEPTH:
            raise Unreadable(f"it is nested more than {MAX_DEPTH} deep", line, column)
        node = self.add(value, line, column)
        self.open.append(_Open(node))
        return node

    def end(self) -> Located:
        return self.open.pop().node

    def scalar(self, value: Scalar, line: int, column: int, *, key: str) -> Located | None:
        """A key where a table waits for one; None then. `key` is the scalar's text."""
        if self.open and isinstance(self.open[-1].node.value, dict) and self.open[-1].key is None:
            there = self.open[-1]
            if key in self.open[-1].node.value:
                raise Unreadable(f"{key[:80]} is there twice", line, column)
            there.key, there.key_at = key, (line, column)
            return None
        return self.add(value, line, column)

    def add(self, value: Value, line: int, column: int) -> Located:
        self.values += 1
        if self.values > MAX_VALUES:
            raise Unreadable(f"it has more than {MAX_VALUES} values", line, column)
        if not self.open:
            self.root = Located(value, line, column)
            return self.root
        there = self.open[-1]
        inside = there.node.value
        if isinstance(inside, dict):
            if there.key is None:
                raise Unreadable("a key must be text", line, column)
            node = inside[there.key] = Located(value, *there.key_at)
            there.key = None
        else:
            assert isinstance(inside, list), "only tables and lists are open"
            node = Located(value, line, column)
            inside.append(node)
        return node


def _read_json(text: str) -> Located:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise Unreadable(error.msg, error.lineno, error.colno) from None
    except ValueError as error:
        raise Unreadable(str(error)) from None
    places, builder = Places(text), _Builder()
    for token in _JSON.finditer(text):
        word = token[0]
        at = places.of(token.start())
        if word in "{[":
            builder.begin({} if word == "{" else [], *at)
        elif word in "}]":
            builder.end()
        elif word not in ",:":
            value = json.loads(word)
            builder.scalar(value, *at, key=value if isinstance(value, str) else word)
    assert builder.root is not None, "JSON has a value"
    return builder.root


def _read_yaml(text: str) -> Located:
    try:
        return _built(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise Unreadable(error.problem or "it is not YAML", line, column) from None
    except (yaml.YAMLError, ValueError) as error:
        raise Unreadable(str(error).splitlines()[0][:200]) from None


def _built(text: str) -> Located:
    """Of one document. An alias is its node again, and counted each time; one inside its own node is refused."""
    builder, anchors = _Builder(), dict[str, Located]()
    opened: list[str | None] = []
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        if isinstance(event, yaml.DocumentStartEvent) and builder.root is not None:
            raise Unreadable("there is a second document", line, column)
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            builder.begin({} if isinstance(event, yaml.MappingStartEvent) else [], line, column)
            opened.append(event.anchor)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            node, anchor = builder.end(), opened.pop()
            if anchor is not None:
                anchors[anchor] = node
        elif isinstance(event, yaml.ScalarEvent):
            value = _plain(event.value) if event.implicit[0] else event.value
            node_or_key = builder.scalar(value, line, column, key=event.value)
            if event.anchor is not None and node_or_key is not None:
                anchors[event.anchor] = node_or_key
        elif isinstance(event, yaml.AliasEvent):
            _add_alias(builder, anchors, event.anchor, line, column)
    return builder.root or Located({}, 1, 1)


def _add_alias(builder: _Builder, anchors: dict[str, Located], name: str, line: int, column: int) -> None:
    if name not in anchors:
        raise Unreadable(f"*{name[:80]} stands for nothing that has ended before", line, column)
    node = anchors[name]
    builder.values += _size(node, MAX_VALUES - builder.values)
    if len(builder.open) + _depth(node) > MAX_DEPTH:
        raise Unreadable(f"it is nested more than {MAX_DEPTH} deep", line, column)
    builder.add(node.value, line, column)


def _inside(node: Located) -> Iterator[Located]:
    if isinstance(node.value, dict):
        yield from node.value.values()
    elif isinstance(node.value, list):
        yield from node.value


def _size(node: Located, most: int) -> int:
    """How many values it has; counting ends above `most`."""
    count, left = 0, [node]
    while left and count <= most:
        count += 1
        left.extend(_inside(left.pop()))
    return count


def _depth(node: Located) -> int:
    return 1 + max(map(_depth, _inside(node)), default=0) if isinstance(node.value, dict | list) else 0


def _plain(text: str) -> Scalar:
    """A plain scalar by YAML 1.2's core schema, so that `off` and `yes` are words."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _read_toml(text: str) -> Located:
    try:
        value, places = toml.read(text, MAX_DEPTH)
    except toml.BadToml as error:
        raise Unreadable(error.text, *Places(text).of(error.at)) from None
    where = Places(text)
    count = 0

    def built(value: object, path: tuple[str | int, ...]) -> Located:
        nonlocal count
        count += 1
        at = where.of(places.get(path, 0))
        if count > MAX_VALUES:
            raise Unreadable(f"it has more than {MAX_VALUES} values", *at)
        if isinstance(value, dict):
            return Located({key: built(each, (*path, key)) for key, each in value.items()}, *at)
        if isinstance(value, list):
            return Located([built(each, (*path, index)) for index, each in enumerate(value)], *at)
        assert value is None or isinstance(value, bool | int | float | str | date | time), "what TOML has"
        return Located(value, *at)

    return built(value, ())


class Places:
    """Lines and columns, from 1, of offsets in a text."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def of(self, offset: int) -> tuple[int, int]:
        from_ = bisect_right(self._starts, offset)
        return from_, offset - self._starts[from_ - 1] + 1
