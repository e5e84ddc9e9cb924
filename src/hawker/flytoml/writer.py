"""Plain values as TOML, in an order in which people write a fly.toml. Reading it back gives the same values."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(document: dict[str, Any]) -> str:
    """Of JSON's values. An absent one (None) is left away: TOML has no word for it."""
    return "\n".join(_table(document, ())).lstrip("\n") + "\n"


def _table(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """First what is on a line of its own, then the tables below, each with its header."""
    given = {key: value for key, value in table.items() if value is not None}
    for key, value in given.items():
        if not isinstance(value, dict) and not _is_tables(value):
            yield f"{_key(key)} = {_inline(value)}"
    for key, value in given.items():
        name = ".".join(map(_key, (*path, key)))
        if isinstance(value, dict):
            yield from ("", f"[{name}]")
            yield from _table(value, (*path, key))
        elif _is_tables(value):
            for each in value:
                yield from ("", f"[[{name}]]")
                yield from _table(each, (*path, key))


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{_key(key)} = {_inline(each)}" for key, each in value.items() if each is not None)
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(each) for each in value if each is not None) + "]"
    return _text(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    """JSON's escapes are TOML's, but for one character that JSON leaves as it is."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
