"""Calls that nobody should send, made at random from the route table: known names with wrong values, and bytes that are
no JSON at all. The same for a seed.

Left out: what would make a call last for ever by itself, reach a registry, or end what other nodes have on this host.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_args
from urllib.parse import quote, urlencode

import msgspec

from hawker.api.route import AnyRoute, Socket, Upload
from hawker.api.routes import ROUTES
from hawker.sim.harness.plan import Chance
from tests.conformance.stock import HELLO

MIB = 1 << 20
_TEXTS = ("", " ", "\0", "a\nb", "../../etc", "é💥", "x y", "-1", "null", "\x1b[2J", "a" * 5000, "'", "%00", "{}")
_NUMBERS = (0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 1e308, 0.1, 1e-308)
_NOTHING_TO_TRY = frozenset({"follow", "end_foreign", "timeout", "reference"})


@dataclass(frozen=True, slots=True)
class Hostile:
    """`path` is ready to be sent."""

    route: str
    method: str
    path: str
    body: bytes | None
    headers: Mapping[str, str]


def routes() -> list[AnyRoute]:
    return [route for route in ROUTES if not isinstance(route, Socket)]


def hostile(route: AnyRoute, live: Mapping[str, str], chance: Chance) -> Hostile:
    """One call of a route; two of three are about something that is there."""
    values = {name: live.get(name, "x") for name in route.params.__struct_fields__}
    if chance.happens(0.33) and values:
        values[chance.one_of(list(values))] = chance.one_of(_TEXTS) or "x"
    path = route.path
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    headers = {"fly-machine-lease-nonce": chance.one_of(("", "x" * 3000, "0"))} if chance.happens(0.2) else {}
    if route.keyed and chance.happens(0.3):
        headers["idempotency-key"] = chance.one_of(("", "k" * 3000, "\t"))
    return Hostile(route.name, route.method, f"{path}{_query(route, chance)}", _body(route, chance), headers)


def _query(route: AnyRoute, chance: Chance) -> str:
    pairs = [
        (name, str(chance.one_of((*_TEXTS, *_NUMBERS))))
        for name in route.query.__struct_fields__
        if name not in _NOTHING_TO_TRY and chance.happens(0.4)
    ]
    if route.name == "wait_machine":
        pairs.append(("timeout", "1"))
    return f"?{urlencode(pairs)}" if pairs else ""


def _body(route: AnyRoute, chance: Chance) -> bytes | None:
    if route.body is NoneType and not isinstance(route, Upload):
        return None
    if chance.happens(0.35):
        return chance.one_of(_RAW)
    return _json(_wrong(route.body, chance, 4), chance)


def _wrong(kind: Any, chance: Chance, depth: int) -> Any:
    """A value for a type: a struct's known fields, each right, wrong or absent; anything else at random."""
    structs = list(_structs(kind))
    if structs and depth and chance.happens(0.85):
        given = {
            field.encode_name: _wrong(field.type, chance, depth - 1)
            for field in msgspec.structs.fields(structs[0])
            if field.name not in _NOTHING_TO_TRY and (field.required or chance.happens(0.2))
        }
        if "image" in given:
            given["image"] = HELLO if chance.happens(0.8) else chance.one_of(("\0", "a b", ""))
        return given | ({chance.one_of(_TEXTS): 1} if chance.happens(0.1) else {})
    match chance.between(0, 5):
        case 0 | 1:
            return chance.one_of(_TEXTS)
        case 2:
            return chance.one_of(_NUMBERS)
        case 3:
            return [_wrong(None, chance, depth - 1) for _ in range(chance.between(0, 3))] if depth > 0 else []
        case 4:
            return {chance.one_of(_TEXTS): _wrong(None, chance, depth - 1)} if depth > 0 else {}
        case _:
            return chance.one_of((None, True, False))


def _structs(kind: Any) -> Iterator[Any]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for part in get_args(kind):
        yield from _structs(part)


def _json(value: Any, chance: Chance) -> bytes:
    data = _written(value).encode()
    if chance.happens(0.1) and data.startswith(b'{"'):
        return data[:-1] + b"," + data[1:]  # every key twice
    return data


def _written(value: Any) -> str:
    """JSON with integers of any size, which msgspec does not write."""
    match value:
        case dict():
            return "{" + ",".join(f"{_written(str(key))}:{_written(each)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_written, value)) + "]"
        case bool() | None | str() | float():
            return msgspec.json.encode(value).decode()
        case _:
            return str(value)


_RAW = (
    b"",
    b"null",
    b"[]",
    b"0",
    b'"',
    b'{"config": {"image"',
    b"\xff\xfe\x00",
    b'{"config": {"image": "\xff"}}',
    b'{"a": "\\ud800"}',
    b'{"a": NaN, "b": Infinity}',
    b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    b"[" + b"9" * 100_000 + b"]",
    b'{"config": 1e99999}',
    b'{"ttl": ' + b"9" * 5_000 + b"}",
    b" " * 900_000,
    b"x" * (10 * MIB),
)
