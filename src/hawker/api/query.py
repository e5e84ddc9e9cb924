"""Query strings to and from typed structs. A field's type says how it is written:

a bool in any way that people write yes and no, `Seconds` as a number or a Go duration, a tuple repeated or separated by
commas, a dict of strings as `name.key=value`. Parameters that the struct does not have are ignored, and so is one that
is empty, unless empty says something: a text that may be absent is absent when it is empty. Of a list an unknown one is
refused: whoever wanted a part of it would take the whole for that part.
"""

from collections.abc import Iterable
from typing import Annotated, Generic, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from hawker.api.bounds import TOO_WIDE, is_wide
from hawker.api.route import Q
from hawker.config.duration import parse_seconds
from hawker.errors import BadRequest

Pairs: TypeAlias = list[tuple[str, str]]

_YES = frozenset({"", "1", "t", "true", "y", "yes", "on"})
_NO = frozenset({"0", "f", "false", "n", "no", "off"})


class QueryCodec(Generic[Q]):
    """Built once per route."""

    def __init__(self, kind: type[Q], *, strict: bool = False) -> None:
        """`strict` refuses parameters that `kind` does not have, unless they are empty."""
        self._kind = kind
        self._strict = strict
        cores = {name: _core(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}
        self._maps = {f"{name}.": name for name, core in cores.items() if get_origin(core) is dict}
        self._fields = {name: core for name, core in cores.items() if get_origin(core) is not dict}
        self._absent = {field.name for field in msgspec.structs.fields(kind) if field.default is None}

    def decode(self, pairs: Iterable[tuple[str, str]]) -> Q:
        """Raises `BadRequest` naming the parameter."""
        found: dict[str, object] = {}
        for name, text in pairs:
            if name in self._fields:
                self._take(found, name, text)
            elif not self._take_entry(found, name, text) and text and self._strict:
                raise BadRequest(f"query parameter {name:.80}: this list cannot be narrowed by it")
        try:
            query = msgspec.convert(found, self._kind, strict=False)
        except msgspec.ValidationError as error:
            raise BadRequest(f"query {str(error).replace('$.', '')}") from error
        for name in found:
            value = getattr(query, name)
            if isinstance(value, int) and is_wide(value):
                raise BadRequest(f"query parameter {name}: {TOO_WIDE}")
        return query

    def encode(self, query: Q) -> Pairs:
        """Only what differs from the defaults."""
        pairs: Pairs = []
        for field in msgspec.structs.fields(self._kind):
            value = getattr(query, field.name)
            if value != field.default:
                pairs += _written(field.name, value)
        return pairs

    def _take(self, found: dict[str, object], name: str, text: str) -> None:
        core = self._fields[name]
        if get_origin(core) is tuple:
            sofar = found.setdefault(name, [])
            assert isinstance(sofar, list)
            sofar += [item.strip() for item in text.split(",") if item.strip()]
        elif core is bool:
            found[name] = _flag(name, text)
        elif not text and (core is not str or name in self._absent):
            return
        elif core is not str and text.lower() == "null":
            raise BadRequest(f"query parameter {name}: leave it out instead of {text!r}")
        elif core is float:
            found[name] = _seconds(name, text)
        else:
            found[name] = text

    def _take_entry(self, found: dict[str, object], name: str, text: str) -> bool:
        """Whether it is one of a map."""
        for prefix, field in self._maps.items():
            if name.startswith(prefix):
                entries = found.setdefault(field, {})
                assert isinstance(entries, dict)
                entries[name.removeprefix(prefix)] = text
                return True
        return False


def _core(hint: object) -> object:
    """The type itself, without "or None" and without annotations."""
    if get_origin(hint) is Annotated:
        return _core(get_args(hint)[0])
    options = [option for option in get_args(hint) if option is not type(None)]
    if get_origin(hint) is not tuple and get_origin(hint) is not dict and len(options) == 1:
        return _core(options[0])
    return hint


def _flag(name: str, text: str) -> bool:
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise BadRequest(f"query parameter {name}: {text!r:.80} is neither true nor false")


def _seconds(name: str, text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise BadRequest(f"query parameter {name}: {error}") from error


def _written(name: str, value: object) -> Pairs:
    if isinstance(value, bool):
        return [(name, "true" if value else "false")]
    if isinstance(value, tuple):
        return [(name, str(item)) for item in value]
    if isinstance(value, dict):
        return [(f"{name}.{key}", str(item)) for key, item in value.items()]
    if isinstance(value, float):
        return [(name, f"{value:.9f}".rstrip("0").rstrip("."))]
    return [] if value is None else [(name, str(value))]
