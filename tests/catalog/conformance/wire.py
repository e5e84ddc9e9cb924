"""HTTP as a client speaks it, over HTTP/1.1 or over HTTP/2 that is assumed from the start: status, headers, lines."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

import aiohttp
import anyio
import h2.config
import h2.connection
import h2.events

WITHIN_S = 60.0
LINE_BYTES = 4 * 1024 * 1024


class Response(Protocol):
    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def line(self) -> bytes:
        """The next one with its end; what is left without one; empty at the end."""


class Wire(Protocol):
    def send(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[Response]: ...


class Http1:
    def __init__(self, url: str, buffer_bytes: int = LINE_BYTES) -> None:
        self._url, self._buffer_bytes = url, buffer_bytes

    @asynccontextmanager
    async def send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[Response]:
        timeout = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(timeout=timeout, read_bufsize=self._buffer_bytes) as session,
            session.request(
                method, self._url + path, data=body, headers=headers, skip_auto_headers=["content-type"]
            ) as response,
        ):
            yield _Response1(response)


class _Response1:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def line(self) -> bytes:
        with anyio.fail_after(WITHIN_S):
            try:
                return await self._response.content.readline()
            except aiohttp.ClientError:
                return b""  # cut off


class Http2:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80

    @asynccontextmanager
    async def send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[Response]:
        async with await anyio.connect_tcp(self._host, self._port) as stream:
            connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
            connection.initiate_connection()
            named = [(":method", method), (":path", path), (":scheme", "http"), (":authority", self._host)]
            connection.send_headers(1, [*named, *headers.items()], end_stream=not body)
            response = _Response2(connection, stream)
            with anyio.fail_after(WITHIN_S):
                await response.upload(body)
                while not response.status:
                    await response.more()
            yield response


class _Response2:
    def __init__(self, connection: h2.connection.H2Connection, stream: Any) -> None:
        self._connection, self._stream = connection, stream
        self._data, self._ended = b"", False
        self.status = 0
        self.headers: dict[str, str] = {}

    async def upload(self, body: bytes) -> None:
        """In pieces as the server takes them."""
        while body and not self.status:
            most = min(self._connection.local_flow_control_window(1), self._connection.max_outbound_frame_size)
            if most <= 0:
                await self._stream.send(self._connection.data_to_send())
                await self.more()
                continue
            self._connection.send_data(1, body[:most], end_stream=len(body) <= most)
            body = body[most:]
        await self._stream.send(self._connection.data_to_send())

    async def line(self) -> bytes:
        with anyio.fail_after(WITHIN_S):
            while b"\n" not in self._data and not self._ended:
                await self.more()
        line, end, self._data = self._data.partition(b"\n")
        return line + end

    async def more(self) -> None:
        try:
            data = await self._stream.receive()
        except anyio.EndOfStream:
            self._ended = True
            return
        for event in self._connection.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                self.headers = dict(event.headers)  # type: ignore[arg-type]
                self.status = int(self.headers.pop(":status"))
            elif isinstance(event, h2.events.DataReceived):
                self._data += event.data
                self._connection.acknowledge_received_data(event.flow_controlled_length, 1)
            elif isinstance(event, h2.events.StreamEnded | h2.events.StreamReset | h2.events.ConnectionTerminated):
                self._ended = True
        await self._stream.send(self._connection.data_to_send())


class Lines:
    """An answer of lines of JSON."""

    def __init__(self, response: Response) -> None:
        self._response = response
        self.status, self.headers = response.status, response.headers

    async def next(self) -> Any:
        """The next line; None at the end."""
        line = await self._response.line()
        return json.loads(line) if line else None

    async def take(self, count: int) -> list[Any]:
        return [await self.next() for _ in range(count)]

    async def rest(self) -> list[Any]:
        found = []
        while (line := await self.next()) is not None:
            found.append(line)
        return found

    async def until(self, key: str) -> list[Any]:
        """All lines up to the first one of this kind, that included."""
        found = [await self.next()]
        while found[-1] is not None and key not in found[-1]:
            found.append(await self.next())
        return found


class Caller:
    """Requests of the catalog's API."""

    def __init__(self, wire: Wire, headers: Mapping[str, str] | None = None) -> None:
        self._wire, self._headers = wire, dict(headers or {})

    @asynccontextmanager
    async def open(
        self, method: str, path: str, said: object = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Lines]:
        body = b"" if said is None else said if isinstance(said, bytes) else json.dumps(said).encode()
        kind = {"content-type": "application/json"} if said is not None else {}
        async with self._wire.send(method, path, body, {**kind, **self._headers, **(headers or {})}) as response:
            yield Lines(response)

    async def call(
        self, method: str, path: str, said: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and whole body."""
        body = b"" if said is None else said if isinstance(said, bytes) else json.dumps(said).encode()
        kind = {"content-type": "application/json"} if said is not None else {}
        async with self._wire.send(method, path, body, {**kind, **self._headers, **(headers or {})}) as response:
            parts = []
            while line := await response.line():
                parts.append(line)
            return response.status, b"".join(parts)

    async def ask(self, method: str, path: str, said: object = None) -> tuple[int, Any]:
        status, body = await self.call(method, path, said)
        return status, json.loads(body)
