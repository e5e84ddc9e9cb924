"""Statements as Corrosion reads them: the forms are those of our own server, what is no value is refused."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hawker.catalog.change import Value

_INT = range(-(2**63), 2**63)


class NoJson(Exception):
    """400: the body cannot be read."""


class NoStatement(Exception):
    """422: it can, and is something else."""


@dataclass(frozen=True, slots=True)
class PlayedStatement:
    """`named` keeps the prefix of each name; None where parameters have places."""

    query: str
    params: tuple[Value, ...] = ()
    named: Mapping[str, Value] | None = None


def statement_of(body: bytes) -> PlayedStatement:
    """Raises `NoJson`, `NoStatement`."""
    return _statement(_json(body))


def statements_of(body: bytes) -> list[PlayedStatement]:
    """Raises `NoJson`, `NoStatement`."""
    said = _json(body)
    if not isinstance(said, list):
        raise NoStatement("invalid type, expected a sequence at line 1 column 0")
    return [_statement(each) for each in said]


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise NoJson(str(error)) from error


def _statement(said: Any) -> PlayedStatement:
    match said:
        case str():
            return PlayedStatement(said)
        case {"query": str(query)}:
            params, named = said.get("params"), said.get("named_params")
            if params is None and named is not None:
                return PlayedStatement(query, named=_named(named))
            return PlayedStatement(query, _listed(params or []))
        case [str(query), list(params)]:
            return PlayedStatement(query, _listed(params))
        case [str(query), dict(params)]:
            return PlayedStatement(query, named=_named(params))
    raise NoStatement("data did not match any variant of untagged enum Statement")


def _listed(params: Any) -> tuple[Value, ...]:
    return tuple(_value(each) for each in params)


def _named(params: Any) -> dict[str, Value]:
    return {str(name): _value(each) for name, each in params.items()}


def _value(said: Any) -> Value:
    match said:
        case bool():
            return int(said)
        case int():
            return said if said in _INT else float(said)
        case None | float() | str():
            return said
        case list() if all(type(each) is int and 0 <= each <= 255 for each in said):
            return bytes(said)
    raise NoStatement("data did not match any variant of untagged enum Statement")
