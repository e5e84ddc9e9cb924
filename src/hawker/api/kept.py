"""Questions and answers in HTTP/1.1 over connections that are kept: what parts of Hawker ask each other all the time.

No redirects, cookies, proxies or compression, which no part of Hawker uses; an answer is read whole. A general HTTP
client takes several times the processor time for each call.
"""

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import anyio
import httptools

IDLE_S = 15.0  # less than the server keeps an idle connection
MAX_HEAD_BYTES = 64 * 1024
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})


class Unsent(Exception):
    """There was no connection in time, or none at all: nothing was sent."""


@dataclass(frozen=True, slots=True)
class Place:
    host: str
    port: int
    origin: str
    """What URLs of this place begin with."""
    name: str
    """As the header `Host` has it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`headers` by their names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def place_in(url: str) -> Place | None:
    """Where calls to URLs below `url` go; None for what needs more than plain HTTP."""
    try:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or "@" in parts.netloc or parts.port == 0:
            return None
        return Place(parts.hostname, parts.port or 80, f"http://{parts.netloc}", parts.netloc)
    except ValueError:
        return None


class Kept:
    """At most `most` connections at once, any number for 0; who finds none free waits for one, in turn. `connect_s` is
    for opening one, `patience_s` for that and the wait before it."""

    def __init__(self, place: Place, *, most: int, connect_s: float, patience_s: float) -> None:
        self._place = place
        self._most = most
        self._connect_s = connect_s
        self._patience_s = patience_s
        self._idle: list[_Connection] = []  # the least recently used first
        self._taken: set[_Connection] = set()
        self._opening = 0
        self._waiting: deque[asyncio.Future[_Connection | None]] = deque()

    async def ask(self, method: str, request: bytes, timeout_s: float) -> Answer:
        """Raises `Unsent`, `TimeoutError`, and `OSError` or `HttpParserError` when the connection is lost. A call that
        may be repeated is, once, when a connection that was kept turns out to be closed."""
        until = asyncio.get_running_loop().time() + timeout_s
        connection = self._spare() or await self._got(until)
        try:
            return await self._asked(connection, request, until)
        except OSError:
            if isinstance(connection.broken, TimeoutError) or method not in _REPEATABLE or not connection.is_stale:
                raise
        return await self._asked(await self._opened(until), request, until)

    async def close(self) -> None:
        """Calls that are under way are lost."""
        for connection in [*self._idle, *self._taken]:
            connection.close()
        self._idle.clear()

    async def _asked(self, connection: "_Connection", request: bytes, until: float) -> Answer:
        self._taken.add(connection)
        try:
            return await connection.ask(request, until)
        finally:
            self._taken.discard(connection)
            self._give_back(connection)

    def _spare(self) -> "_Connection | None":
        """The one that was used last; those that nobody has needed for long are closed."""
        if not self._idle:
            return None
        found, oldest = self._idle.pop(), asyncio.get_running_loop().time() - IDLE_S
        while self._idle and self._idle[0].used_at < oldest:
            self._idle.pop(0).close()
        if found.used_at >= oldest and found.is_open:
            return found
        found.close()
        return self._spare()

    async def _got(self, until: float) -> "_Connection":
        """A new one, or the next that is given back."""
        if not self._is_full:
            return await self._opened(until)
        turn: asyncio.Future[_Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        began = asyncio.get_running_loop().time()
        try:
            with anyio.move_on_after(min(until - began, self._patience_s)):
                given = await turn
                return given if given is not None and given.is_open else await self._opened(until)
        except BaseException:
            self._pass_on(turn)
            raise
        self._pass_on(turn)
        raise Unsent("no connection became free")

    def _pass_on(self, turn: "asyncio.Future[_Connection | None]") -> None:
        """Whoever gave up does not keep what he was given at the last moment."""
        with suppress(ValueError):
            self._waiting.remove(turn)
        if turn.done() and not turn.cancelled() and (given := turn.result()) is not None:
            self._give_back(given)

    @property
    def _is_full(self) -> bool:
        return bool(self._most) and len(self._taken) + self._opening >= self._most

    async def _opened(self, until: float) -> "_Connection":
        loop = asyncio.get_running_loop()
        self._opening += 1
        try:
            with anyio.move_on_after(min(until - loop.time(), self._connect_s)):
                _, made = await loop.create_connection(
                    lambda: _Connection(self._idle), self._place.host, self._place.port
                )
                self._taken.add(made)
                return made
            raise Unsent("it takes too long")
        except (OSError, UnicodeError) as error:
            raise Unsent(str(error)) from error
        finally:
            self._opening -= 1
            self._call_next()

    def _give_back(self, connection: "_Connection") -> None:
        if connection.is_open and connection.is_ready:
            if not self._call_next(connection):
                connection.used_at = asyncio.get_running_loop().time()
                self._idle.append(connection)
            return
        connection.close()
        self._call_next()

    def _call_next(self, connection: "_Connection | None" = None) -> bool:
        """Whether somebody took it. One who gets none may open one."""
        while self._waiting and (connection is not None or not self._is_full):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return True
        return False


class _Connection(asyncio.Protocol):
    """One question at a time. The parser calls the methods that begin with `on_`."""

    def __init__(self, idle: "list[_Connection]") -> None:
        self._idle = idle
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answered: asyncio.Future[Answer] | None = None
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._pieces: list[bytes] = []
        self._asked = 0
        self._heard = False
        self.used_at = 0.0
        self.is_ready = True
        self.broken: Exception | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_stale(self) -> bool:
        """It was used before, and this time nothing came."""
        return self._asked > 1 and not self._heard

    async def ask(self, request: bytes, until: float) -> Answer:
        loop = asyncio.get_running_loop()
        assert self._transport is not None
        self._asked += 1
        self._heard, self.is_ready = False, False
        self._answered = loop.create_future()
        if not self.is_open:
            raise self.broken or ConnectionResetError("the connection was closed")
        overdue = loop.call_at(until, self._break, TimeoutError("no answer in time"))
        try:
            self._transport.write(request)
            return await self._answered
        finally:
            overdue.cancel()
            self._answered = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _break(self, error: Exception) -> None:
        self.broken = self.broken or error
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)
        self.close()

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self._answered is None:
            self._break(ConnectionResetError("an answer came that nobody waits for"))
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._break(error)

    def eof_received(self) -> None:
        """An answer may end with its connection."""
        if self._pieces and not self._headers.keys() & {"content-length", "transfer-encoding"}:
            self._complete(may_go_on=False)

    def connection_lost(self, error: Exception | None) -> None:
        with suppress(ValueError):
            self._idle.remove(self)
        self._break(error or ConnectionResetError("the node closed the connection"))

    # What the parser tells.

    def on_message_begin(self) -> None:
        self._headers, self._pieces, self._head_bytes = {}, [], 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise ValueError("the head of the answer is too long")
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 200:  # others only say that an answer will come
            self._complete(may_go_on=self._parser.should_keep_alive())

    def _complete(self, *, may_go_on: bool) -> None:
        if self._answered is None or self._answered.done():
            self._break(ConnectionResetError("two answers came to one question"))
            return
        self.is_ready = may_go_on
        answer = Answer(self._parser.get_status_code(), self._headers, b"".join(self._pieces))
        self._headers, self._pieces = {}, []
        self._answered.set_result(answer)
