"""Bodies to and from bytes. Built once per route; the same objects serve both ends. Pure.

What cannot be read as JSON is a `BadRequest`; what can be read but not used is an `Unprocessable` that opens with the
path of the field.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from itertools import islice
from types import NoneType
from typing import Any, Generic, TypeAlias, cast, get_args, get_origin

import msgspec

from hawker.api.bounds import TOO_WIDE, is_wide
from hawker.api.route import JSON, AnyRoute, B, Page, R
from hawker.errors import BadRequest, Unprocessable

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


# The types of ASGI, the interface between the server and uvicorn (asgi.readthedocs.io).

CURSOR_HEADER = "fly-next-cursor"

MAX_VALUES = 20_000
"""Values of a body whose unknown fields are refused: each is looked at, and what has more is no config of a machine."""

MAX_DEPTH = 64
"""Lists and objects of a client's body, one in another: what nodes send each other has it some levels deeper, and all
of them have to be able to read it."""

_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_TEXT_OR_COMMA = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|,', re.DOTALL)
"""A text without an end goes on to the end of the body: nothing is looked at twice."""
_MANY_DIGITS = re.compile(rb"[0-9]{19}")
"""In each integer of more than 64 bits."""
_JSON = msgspec.json.Encoder()
_AT = re.compile(r"(.*) - at `(?:key in )?\$\.?(.*)`", re.DOTALL)


def encode_json(value: object) -> bytes:
    return _JSON.encode(value)


class BodyCodec(Generic[B]):
    """A route's request body. One with more than `deepest` lists and objects in each other is refused."""

    def __init__(
        self, kind: type[B], *, strict: bool = False, optional: bool = False, deepest: int | None = None
    ) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind)
        self._strict = strict
        self._optional = optional
        self._deepest = deepest

    def decode(self, data: bytes) -> B:
        """Raises `BadRequest` for what is no JSON or missing, `Unprocessable` for what does not fit the type."""
        if self._kind is NoneType:
            return cast(B, None)
        if not data and not self._optional:
            raise BadRequest("this call needs a JSON body")
        if self._deepest is not None and _is_deeper(data, self._deepest):
            raise BadRequest(f"the body has more than {self._deepest} lists and objects in each other")
        body = self._strictly(data) if self._strict else self._tolerantly(data or b"{}")
        wide = _wide(msgspec.to_builtins(body, enc_hook=_unread)) if _MANY_DIGITS.search(data) else None
        if wide is not None:
            raise Unprocessable(f"{wide}: {TOO_WIDE}")
        return body

    def encode(self, body: B) -> bytes:
        return b"" if body is None else encode_json(body)

    def _tolerantly(self, data: bytes) -> B:
        return _read(self._decoder, data)

    def _strictly(self, data: bytes) -> B:
        if _has_too_many(data):
            raise Unprocessable(f"the body has more than {MAX_VALUES} values")
        body = self._tolerantly(data or b"{}")
        unknown = _surplus(_read(_ANYTHING, data or b"{}"), msgspec.to_builtins(body), "")
        if unknown is not None:
            raise Unprocessable(f"{unknown} is not a known field")
        return body


def _is_deeper(data: bytes, deepest: int) -> bool:
    """Each turn takes the innermost pairs away. What only has no end is left to who reads it: it is no JSON."""
    if data.count(b"[") + data.count(b"{") <= deepest:
        return False
    left = _TEXT.sub(b"", data).translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(deepest):
        left = left.replace(b"[]", b"")
    return b"[]" in left or left.count(b"[") > deepest


def _has_too_many(data: bytes) -> bool:
    """Told by the commas outside of texts, up to the one that is too many."""
    if data.count(b",") < MAX_VALUES:
        return False
    commas = (found for found in _TEXT_OR_COMMA.finditer(data) if found.end() - found.start() == 1)
    return next(islice(commas, MAX_VALUES - 1, None), None) is not None


def _read(decoder: msgspec.json.Decoder[B], data: bytes) -> B:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise Unprocessable(_located(error)) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error


_ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def answer_type(route: AnyRoute) -> Any:
    """The type of the JSON that is sent; a page is a bare list."""
    if get_origin(route.response) is Page:
        item = get_args(route.response)[0]
        return tuple[item, ...]  # type: ignore[valid-type]  # made at run time
    return route.response


class AnswerCodec(Generic[R]):
    """A route's answer, or one item of its stream: a body and, for a page, the header with the next cursor."""

    def __init__(self, route: AnyRoute) -> None:
        self._none = route.response is NoneType
        self._plain = route.media != JSON
        self._bytes = route.response is bytes
        self._paged = get_origin(route.response) is Page
        self._decoder = msgspec.json.Decoder(answer_type(route))

    def encode(self, answer: R) -> tuple[bytes, str | None]:
        """The body, and the cursor of the next page."""
        if self._none:
            return b"", None
        if self._plain:
            return answer if isinstance(answer, bytes) else str(answer).encode(), None
        if isinstance(answer, Page):
            return encode_json(answer.items), answer.next_cursor
        return encode_json(answer), None

    def decode(self, data: bytes, headers: Mapping[str, str]) -> R:
        """Raises `msgspec.DecodeError`."""
        if self._none:
            return cast(R, None)
        if self._plain:
            return cast(R, data if self._bytes else data.decode(errors="replace"))
        answer = self._decoder.decode(data)
        if self._paged:
            return cast(R, Page(items=answer, next_cursor=headers.get(CURSOR_HEADER)))
        return cast(R, answer)


def _located(error: msgspec.ValidationError) -> str:
    """The field first: "config.guest.cpus: expected `int`, got `str`"."""
    match = _AT.fullmatch(str(error))
    if match is None:
        return str(error)
    what, where = match.groups()
    return f"{where}: {what[0].lower()}{what[1:]}" if where else what


def _surplus(given: object, kept: object, path: str) -> str | None:
    """The path of the first thing in `given` that was not taken over into `kept`; null asks for nothing. A body may be
    a list of 200,000 words, and the event loop waits meanwhile: only what holds other things is looked into."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            if value is None:
                continue
            if key not in kept:
                return f"{path}.{key}" if path else str(key)
            if isinstance(value, _HOLDERS) and value != kept[key]:
                found = _surplus(value, kept[key], f"{path}.{key}" if path else str(key))
                if found is not None:
                    return found
    elif isinstance(given, list) and isinstance(kept, list | tuple):
        for index, (item, taken) in enumerate(zip(given, kept, strict=True)):
            if isinstance(item, _HOLDERS):
                found = _surplus(item, taken, f"{path}[{index}]")
                if found is not None:
                    return found
    return None


_HOLDERS = (dict, list)


def _unread(_: object) -> None:
    """A `Raw` part of a body is left to who reads it: one bad part spoils no other."""


def _wide(value: object) -> str | None:
    """The path of an integer of more than 64 bits: it could be neither stored nor sent on."""
    left = [("", value)]
    while left:
        path, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{path}.{key}" if path else str(key), item) for key, item in value.items()]
        elif isinstance(value, list | tuple):
            left += [(f"{path}[{index}]", item) for index, item in enumerate(value)]
        elif isinstance(value, int) and is_wide(value):
            return path
    return None
