"""Statements as clients write them, in the order in which Corrosion tries their forms: an object, a bare text, a text
with parameters by position, a text with parameters by name. No I/O.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from hawker.catalog.change import Value
from hawker.catalog.contract import Statement

MOST_STATEMENTS = 100_000
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_BYTE_MAX = 255


class NotJson(Exception):
    """The text cannot be read as JSON."""


class WrongShape(Exception):
    """The body is JSON, and no statement."""


class _Verbose(msgspec.Struct, frozen=True, kw_only=True):
    query: str
    params: list[msgspec.Raw] | None = None
    named_params: dict[str, msgspec.Raw] | None = None


_raw = msgspec.json.Decoder(msgspec.Raw)
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_named = msgspec.json.Decoder(dict[str, msgspec.Raw])
_texts = msgspec.json.Decoder(list[str])
_verbose = msgspec.json.Decoder(_Verbose)
_text = msgspec.json.Decoder(str)
_number = msgspec.json.Decoder(int | float)
_ints = msgspec.json.Decoder(list[int])

FORMS = "a statement is a text, [text, [parameters]], [text, {parameters}] or {query, params, named_params}"


def statement_of(body: bytes) -> Statement:
    """The statement of a body. Raises `NotJson` or `WrongShape`."""
    with _judged():
        return _statement(bytes(_raw.decode(body)).strip())


def statements_of(body: bytes) -> list[Statement]:
    """The statements in a body, which is a list of them. Raises `NotJson`, `WrongShape`."""
    with _judged():
        parts = _raws.decode(body)
        if len(parts) > MOST_STATEMENTS:
            raise WrongShape(f"a transaction may have {MOST_STATEMENTS} statements")
        return [_statement(bytes(part).strip()) for part in parts]


def texts_of(body: bytes) -> list[str]:
    """A list of texts."""
    with _judged():
        return _texts.decode(body)


@contextmanager
def _judged() -> Iterator[None]:
    """What is no JSON at all, and what is and has another shape."""
    try:
        yield
    except RecursionError as error:
        raise NotJson("it is nested too deep") from error
    except msgspec.ValidationError as error:
        raise WrongShape(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotJson(str(error)) from error


def _statement(part: bytes) -> Statement:
    match part[:1]:
        case b"{":
            return _verbose_statement(_verbose.decode(part))
        case b'"':
            return Statement(query=_text.decode(part))
        case b"[":
            return _listed(_raws.decode(part))
    raise WrongShape(FORMS)


def _verbose_statement(verbose: _Verbose) -> Statement:
    if verbose.params is not None:
        return Statement(query=verbose.query, params=_values(verbose.params))
    return Statement(query=verbose.query, named_params=_by_name(verbose.named_params or {}))


def _listed(parts: list[msgspec.Raw]) -> Statement:
    if len(parts) != 2:
        raise WrongShape(FORMS)
    query, params = _text.decode(parts[0]), bytes(parts[1]).strip()
    if params[:1] == b"{":
        return Statement(query=query, named_params=_by_name(_named.decode(params)))
    return Statement(query=query, params=_values(_raws.decode(params)))


def _by_name(params: dict[str, msgspec.Raw]) -> dict[str, Value]:
    """Clients write a name with its prefix; the database is asked without."""
    return {name.lstrip(":@$") if name[:1] in ":@$" else name: _value(raw) for name, raw in params.items()}


def _values(raws: Iterable[msgspec.Raw]) -> tuple[Value, ...]:
    return tuple(map(_value, raws))


def _value(raw: msgspec.Raw) -> Value:
    """Whole numbers beyond 64 bits become floats; what SQLite has no type for is stored as the JSON text that it is."""
    text = bytes(raw).strip()
    match text[:1]:
        case b"n":
            return None
        case b"t" | b"f":
            return int(text == b"true")
        case b'"':
            return _text.decode(text)
        case b"[":
            return _blob(text)
        case b"{":
            return text.decode()
    return _number_of(text)


def _number_of(text: bytes) -> int | float:
    try:
        number: int | float = _number.decode(text)
    except msgspec.ValidationError as error:
        raise NotJson(f"{error}: a number must fit 64 bits, or a float") from error
    if isinstance(number, float) or _INT_MIN <= number <= _INT_MAX:
        return number
    return float(number)


def _blob(text: bytes) -> bytes | str:
    """Bytes, if it is a list of nothing else."""
    try:
        return bytes(_ints.decode(text))
    except (msgspec.ValidationError, ValueError, OverflowError):
        return text.decode()
