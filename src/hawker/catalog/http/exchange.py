"""One HTTP request and its answer, as ASGI has them: query parameters, each with its type, bounded reading, whole
answers, streams that notice when nobody listens any more.
"""

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import anyio
import msgspec

from hawker.errors import HawkerError

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

BODY_BYTES = 16 * 1024 * 1024
BODY_S = 30.0
LAST_S = 10.0  # for a last piece that the client does not take
_JSON = b"application/json"
_TEXT = b"text/plain; charset=utf-8"


class Answered(Exception):
    """Ends a request early with a plain text, or an empty body."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text)
        self.status = status


class AnswerCut(Exception):
    """The answer is not to be ended as if it were whole."""


class ClientLeft(Exception):
    """The client went away."""


class Exchange:
    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._headers = dict(scope["headers"])
        self._multiplexed = scope["http_version"] == "2"  # where closing the connection would cut off others too
        self._whole = False
        self.begun = False

    @property
    def method(self) -> str:
        return str(self._scope["method"])

    @property
    def path(self) -> str:
        return str(self._scope["path"])

    def header(self, name: bytes) -> bytes | None:
        return self._headers.get(name)

    def query(self) -> dict[str, str]:
        text: bytes = self._scope["query_string"]
        return dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True)) if text else {}

    async def body(self) -> bytes:
        """The whole body of the request. Raises `Answered` when it is too long or too slow, `ClientLeft`."""
        parts, size = [], 0
        with anyio.move_on_after(BODY_S):
            while not self._whole:
                parts.append(await self._part())
                size += len(parts[-1])
                if size > BODY_BYTES:
                    raise Answered(413, f"a request may have {BODY_BYTES} bytes")
            return b"".join(parts)
        raise Answered(408, "the request did not come in time")

    async def json(self) -> bytes:
        """The body of a request that says that it is JSON. Raises `Answered` with 415 for another, and what `body`
        raises."""
        kind = (self.header(b"content-type") or b"").split(b";")[0].strip().lower()
        if kind != _JSON and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
            raise Answered(415, "Expected request with `Content-Type: application/json`")
        return await self.body()

    async def say(self, status: int, said: object) -> None:
        """A whole answer of JSON."""
        await self._answer(status, msgspec.json.encode(said), [(b"content-type", _JSON)])

    async def text(self, status: int, text: str) -> None:
        await self._answer(status, text.encode(), [(b"content-type", _TEXT)] if text else [])

    async def stream(self, lines: AsyncGenerator[bytes, None], headers: Headers) -> None:
        """Lines as they come, until they or the client end. `AnswerCut` out of `lines` cuts the answer off. Raises an
        error of the family that `lines` raised, once the answer is ended."""
        await self._begin(200, headers)
        failure: AnswerCut | HawkerError | None = None
        async with anyio.create_task_group() as group, aclosing(lines):
            group.start_soon(self._watch, group.cancel_scope)
            try:
                async for line in lines:
                    await self._write(line)
            except (AnswerCut, HawkerError) as error:
                failure = error
            if failure is None or self._multiplexed:
                await self._finish()
            group.cancel_scope.cancel()
        if isinstance(failure, HawkerError):
            raise failure

    async def end(self) -> None:
        """Whatever was begun, or that there is no time for it."""
        if self.begun:
            await self._finish()
        else:
            await self.text(503, "the node is stopping")

    async def _finish(self) -> None:
        with anyio.move_on_after(LAST_S):
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def drain(self) -> None:
        """Take what the client still sends, so that it comes to read the answer."""
        if self._whole:
            return
        left = BODY_BYTES
        with anyio.move_on_after(LAST_S):
            while not self._whole and left > 0:
                left -= len(await self._part())

    async def _part(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._whole = True
            raise ClientLeft
        self._whole = not message.get("more_body", False)
        return bytes(message.get("body", b""))

    async def _watch(self, scope: anyio.CancelScope) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _begin(self, status: int, headers: Headers) -> None:
        self.begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _answer(self, status: int, body: bytes, headers: Headers) -> None:
        await self._begin(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


_MOST = 2**63 - 1


def number(query: Mapping[str, str], name: str) -> int | None:
    """A whole number from 0 on; None when it is not given. Raises `Answered` with 400 for anything else."""
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= _MOST):
        raise _refused(f"{name}: a whole number is wanted, not {text[:40]!r}")
    return int(text)


def decimal(query: Mapping[str, str], name: str) -> float | None:
    """A finite number; None when it is not given. Raises `Answered` with 400 for anything else."""
    text = query.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _refused(f"{name}: a number is wanted, not {text[:40]!r}")
    return value


def flag(query: Mapping[str, str], name: str) -> bool:
    """`true` or `false`, which is also what is not given. Raises `Answered` with 400 for anything else."""
    text = query.get(name, "false")
    if text not in ("true", "false"):
        raise _refused(f"{name}: true or false is wanted, not {text[:40]!r}")
    return text == "true"


def _refused(what: str) -> Answered:
    return Answered(400, f"Failed to deserialize query string: {what}")
