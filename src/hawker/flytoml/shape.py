"""Nodes into the structs of `app_config`, with every mismatch collected. The structs say what a key holds; how a file
may spell it (a table for a list of one, a number for a duration) is a `Spelling` in the field's `Meta`."""

import shlex
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import inspect

from hawker.config.duration import parse_duration
from hawker.flytoml.document import Located
from hawker.flytoml.problem import Path, Problems

MAX_SHOWN = 60


class Spelling(StrEnum):
    """`TEXT` numbers and booleans too · `COMMAND` a list, or one text split as a shell does · `SECONDS` and `MILLIS` a
    duration, or a number of these · `MIB` and `GB` a size with a unit, or a number of these."""

    TEXT = "text"
    COMMAND = "command"
    SECONDS = "seconds"
    MILLIS = "millis"
    MIB = "mib"
    GB = "gb"


UNKNOWN_KEY = "unknown key"
"""How the text of a problem opens that names a key that no section has."""
_MIB_UNITS = {"": 1, "m": 1, "mb": 1, "mib": 1, "g": 1024, "gb": 1024, "gib": 1024}
_GB_UNITS = {"": 1, "g": 1, "gb": 1, "gib": 1, "t": 1024, "tb": 1024, "tib": 1024}


class _Mismatch(ValueError):
    """What was wanted of the value at hand."""


def shaped(node: Located, struct: type[Any], problems: Problems, *, lax: bool = False) -> Any:
    """An instance of `struct`; what does not fit is reported and left away. `lax` makes an unknown key a warning."""
    problems.lax = lax
    return _struct(node, inspect.type_info(struct), (), problems)


def _value(node: Located, kind: inspect.Type, path: Path, problems: Problems) -> Any:
    if node.value is None:
        return None
    if isinstance(kind, inspect.UnionType):
        kind = next(each for each in kind.types if not isinstance(each, inspect.NoneType))
    if isinstance(kind, inspect.StructType):
        return _struct(node, kind, path, problems)
    if isinstance(kind, inspect.VarTupleType):
        return _list(node, kind, path, problems)
    if isinstance(kind, inspect.DictType):
        return _dict(node, kind, path, problems)
    if isinstance(kind, inspect.AnyType):
        return plain(node)
    try:
        return _scalar(node, kind)
    except _Mismatch as error:
        problems.add(path, f"wanted {error}, got {_shown(node)}")
        return None


def _struct(node: Located, kind: inspect.Type, path: Path, problems: Problems) -> Any:
    assert isinstance(kind, inspect.StructType), "the root is a struct"
    if not isinstance(node.value, dict):
        problems.add(path, f"wanted a table, got {_shown(node)}")
        return None
    fields = {field.encode_name: field for field in kind.fields}
    given: dict[str, Any] = {}
    for key, inner in node.value.items():
        if (field := fields.get(key)) is None:
            said = UNKNOWN_KEY if problems.full else _unknown(key, list(fields))
            problems.add((*path, key), said, warning=problems.lax)
        else:
            given[field.name] = _value(inner, field.type, (*path, key), problems)
    return kind.cls(**given)


def _unknown(key: str, known: list[str]) -> str:
    near = get_close_matches(key[:80], known, 1)
    return f"{UNKNOWN_KEY}; did you mean {near[0]}?" if near else UNKNOWN_KEY


def _list(node: Located, kind: inspect.VarTupleType, path: Path, problems: Problems) -> Any:
    """A table where a list of tables is wanted is a list of one."""
    if isinstance(node.value, list):
        every = [_value(each, kind.item_type, (*path, index), problems) for index, each in enumerate(node.value)]
        return tuple(each for each in every if each is not None)
    if isinstance(node.value, dict) and isinstance(kind.item_type, inspect.StructType):
        return (_struct(node, kind.item_type, path, problems),)
    problems.add(path, f"wanted a list, got {_shown(node)}")
    return None


def _dict(node: Located, kind: inspect.DictType, path: Path, problems: Problems) -> Any:
    if not isinstance(node.value, dict):
        problems.add(path, f"wanted a table, got {_shown(node)}")
        return None
    every = {key: _value(each, kind.value_type, (*path, key), problems) for key, each in node.value.items()}
    return {key: each for key, each in every.items() if each is not None}


def _scalar(node: Located, kind: inspect.Type) -> Any:
    if isinstance(kind, inspect.Metadata):
        return _spelled(node, Spelling((kind.extra or {})["spelling"]))
    value = node.value
    if isinstance(kind, inspect.BoolType):
        return _wanted(value, bool, "true or false")
    if isinstance(kind, inspect.IntType):
        if isinstance(value, bool):
            raise _Mismatch("a number")
        return _wanted(value, int, "a whole number" if isinstance(value, float) else "a number")
    if isinstance(kind, inspect.FloatType):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _Mismatch("a number")
        return float(value)
    if isinstance(kind, inspect.LiteralType):
        if value not in kind.values:
            raise _Mismatch("one of " + ", ".join(map(str, kind.values)))
        return value
    assert isinstance(kind, inspect.StrType), f"no field of a config holds {kind}"
    return _wanted(value, str, "text")


def _wanted(value: object, type: type[Any], what: str) -> Any:
    if not isinstance(value, type):
        raise _Mismatch(what)
    return value


def _spelled(node: Located, spelling: Spelling) -> Any:
    match spelling:
        case Spelling.TEXT:
            return _text(node.value)
        case Spelling.COMMAND:
            return _command(node)
        case Spelling.SECONDS:
            return _duration(node.value, "s")
        case Spelling.MILLIS:
            return _duration(node.value, "ms")
        case Spelling.MIB:
            return _sized(node.value, _MIB_UNITS, "a size such as 512mb")
        case Spelling.GB:
            return _sized(node.value, _GB_UNITS, "a size such as 10gb")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise _Mismatch("text, a number, true or false")
    return str(value)


def _command(node: Located) -> tuple[str, ...]:
    if isinstance(node.value, list):
        words = [each.value for each in node.value]
        if not all(isinstance(word, str) for word in words):
            raise _Mismatch("a list of texts")
        return tuple(str(word) for word in words)
    if not isinstance(node.value, str):
        raise _Mismatch("a command")
    try:
        return tuple(shlex.split(node.value))
    except ValueError as error:
        raise _Mismatch(f"a command ({str(error).lower()})") from None


def _duration(value: object, unit: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12:
        return f"{value}{unit}"
    if isinstance(value, str):
        try:
            if parse_duration(value) >= 0:
                return value
        except ValueError:
            pass
    raise _Mismatch("a duration such as 10s or 1m30s")


def _sized(value: object, units: dict[str, int], what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9:
        return value
    if isinstance(value, str):
        digits = value.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
        unit = value.strip()[len(digits) :].strip().lower()
        if digits.isascii() and digits.isdecimal() and len(digits) < 10 and unit in units:
            return int(digits) * units[unit]
    raise _Mismatch(what)


def plain(node: Located) -> Any:
    """Without places, as JSON has it."""
    if isinstance(node.value, dict):
        return {key: plain(each) for key, each in node.value.items()}
    if isinstance(node.value, list):
        return [plain(each) for each in node.value]
    return node.value if node.value is None or isinstance(node.value, bool | int | float | str) else str(node.value)


def _shown(node: Located) -> str:
    if isinstance(node.value, dict | list):
        return "a table" if isinstance(node.value, dict) else "a list"
    text = msgspec.json.encode(plain(node)).decode()
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
