"""The listener within the caller's event loop: HTTP/1.1 and HTTP/2 without TLS on one port. A connection is HTTP/2 when
it begins with its preface (Hypercorn goes on), else HTTP/1.1 (uvicorn does). A client that does not tell what it wants
in time is closed.

Both servers are joined by their internals, so Hypercorn's version is bounded in pyproject.toml. Hypercorn alone took
620 µs of a processor for each POST of a transaction over HTTP/1.1 instead of 310 (16 connections, a busy host); it
knows no timeout for a request's head, and keeps all that a slow client does not take.
"""

import asyncio
import logging
import socket
from asyncio import TimerHandle
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import uvicorn
from hypercorn.asyncio.task_group import TaskGroup
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.events import Body
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import BUFFER_HIGH_WATER, H2Protocol
from hypercorn.typing import ConnectionState, LifespanState
from hypercorn.utils import parse_socket_addr, wrap_app
from uvicorn.server import ServerState

from hawker.catalog.http.app import CatalogApp
from hawker.errors import CannotStart
from hawker.fair.connections import ConnectionTable, DescriptorCount
from hawker.fair.table import CONNECTIONS
from hawker.http.incoming import incoming

HEAD_S = 15.0
KEEP_ALIVE_S = 75.0
STREAMS = 256
STOP_S = 1.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_READ_BYTES = 64 * 1024
_NO_END = 1 << 62

_log = logging.getLogger("hawker.catalog.http.edge")


def _is_whole(record: logging.LogRecord) -> bool:
    """Whether to log the record: not that of an answer which was cut off on purpose."""
    return "without completing response" not in record.getMessage()


class Connections:
    """The connections of one listener. `accept` makes the protocol of a new one."""

    def __init__(self, app: CatalogApp) -> None:
        self.table = ConnectionTable(CONNECTIONS, DescriptorCount(anyio.current_time).scarce)
        self._http1_kind = incoming(self.table, HEAD_S)
        self._wrapped = wrap_app(cast(Any, app), 0, "asgi")
        self._loop = asyncio.get_running_loop()
        self._http1 = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            ws="none",
            timeout_keep_alive=int(KEEP_ALIVE_S),
        )
        self._http1.load()
        self._http2 = _http2()
        self._context = WorkerContext(None)
        self.state = ServerState()
        self.transports: set[asyncio.WriteTransport] = set()
        _log.setLevel(logging.WARNING)
        _log.addFilter(_is_whole)

    def accept(self) -> asyncio.Protocol:
        return _Beginning(self)

    def http1(self) -> asyncio.Protocol:
        protocol = self._http1_kind(self._http1, self.state, {}, self._loop)
        protocol.logger = _log
        return protocol

    def http2(self) -> asyncio.Protocol:
        reader = asyncio.StreamReader(limit=_READ_BYTES, loop=self._loop)
        return asyncio.StreamReaderProtocol(reader, self._serve, loop=self._loop)

    async def stop(self) -> None:
        """Stops the server: nobody is asked anything more; what is being answered gets a moment, which the caller
        bounds."""
        await self._context.terminated.set()
        for protocol in list(self.state.connections):
            protocol.shutdown()

    def abort(self) -> None:
        for transport in list(self.transports):
            transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = _Place(writer)
        if not self.table.admit(place, str(writer.get_extra_info("peername")[0])):
            writer.transport.abort()
            return
        self.table.work(place)
        try:
            await _Http2(self._wrapped, self._loop, self._http2, self._context, LifespanState(), reader, writer)
        finally:
            self.transports.discard(writer.transport)
            self.table.release(place)

    def call_later(self, seconds: float, what: Callable[[], None]) -> TimerHandle:
        return self._loop.call_later(seconds, what)


class _Place:
    """That of a connection of HTTP/2, which has any number of requests at a time and never rests."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def give_up(self) -> None:
        self._writer.transport.abort()


class _Beginning(asyncio.Protocol):
    """Reads until it is clear which protocol is spoken."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._connections.table.admit(self, str(self._transport.get_extra_info("peername")[0])):
            self._transport.abort()
        self._connections.transports.add(self._transport)
        self._overdue = self._connections.call_later(HEAD_S, self._transport.abort)

    def give_up(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._head += data
        if len(self._head) < len(PREFACE) and PREFACE.startswith(self._head):
            return
        self._overdue.cancel()
        self._connections.table.release(self)
        http2 = self._head.startswith(PREFACE)
        protocol = self._connections.http2() if http2 else self._connections.http1()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._head)

    def connection_lost(self, exc: Exception | None) -> None:
        self._overdue.cancel()
        self._connections.table.release(self)
        self._connections.transports.discard(self._transport)


class _Streams(H2Protocol):
    """Lets an answer go on only once its client has taken what was sent: Hypercorn's own bound opens when the client's
    window is shut, and would keep all that a slow one does not take."""

    async def stream_send(self, event: StreamEvent) -> None:
        await super().stream_send(event)
        if isinstance(event, Body):
            buffer = self.stream_buffers.get(event.stream_id)
            if buffer is not None and len(buffer.buffer) >= BUFFER_HIGH_WATER:
                await buffer.drain()


class _Http2(TCPServer):
    """Begins with HTTP/2: its preface has been seen."""

    async def run(self) -> None:
        connection = self.writer.get_extra_info("socket")
        client = parse_socket_addr(connection.family, self.writer.get_extra_info("peername"))
        server = parse_socket_addr(connection.family, self.writer.get_extra_info("sockname"))
        try:
            async with TaskGroup(self.loop) as group:
                self._task_group = group
                state = ConnectionState(self.state)
                streams = _Streams(
                    self.app, self.config, self.context, group, state, False, client, server, self.protocol_send
                )
                self.protocol = cast(ProtocolWrapper, streams)
                await streams.initiate()
                await self.idle_task.restart(group, self._idle_timeout)
                await self._read_data()
        except OSError:
            pass
        finally:
            await self._close()


def _http2() -> Config:
    config = Config()
    config.errorlog = _log
    config.accesslog = None
    config.include_server_header = False
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.keep_alive_max_requests = _NO_END
    config.h2_max_concurrent_streams = STREAMS
    return config


_BACKLOG = 1024


@asynccontextmanager
async def serving(app: CatalogApp, listener: socket.socket) -> AsyncIterator[str]:
    """The URL under which the app answers on a bound socket, which is closed at the end. Leaving ends live answers at
    once and gives others a moment."""
    url = _url(listener)
    connections = Connections(app)
    server = await asyncio.get_running_loop().create_server(connections.accept, sock=listener, backlog=_BACKLOG)
    try:
        yield url
    finally:
        server.close()
        app.stop()
        with anyio.move_on_after(STOP_S, shield=True):
            await app.idle()
            await connections.stop()
        connections.abort()


def bind(listen: str) -> socket.socket:
    """`HOST:PORT`, where port 0 takes a free one. Raises `CannotStart`."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise CannotStart(f"the catalog listens on HOST:PORT, not {listen!r}: give --catalog-listen another value")
    host = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise CannotStart(f"cannot listen on {listen}: {error}; choose another with --catalog-listen") from error
    listener.setblocking(False)
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
