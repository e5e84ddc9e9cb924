"""A server on a TCP port, run by uvicorn inside the caller's event loop, stopped when the context is left.

Connections and heads are bounded before anything is kept of them (`http.incoming`), bodies by who reads them, answers
by the calls themselves.
"""

import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeAlias

import anyio
import uvicorn

from hawker.api.codec import Receive, Scope, Send
from hawker.api.server import Server
from hawker.deferred import deferred
from hawker.errors import CannotStart
from hawker.fair.connections import ConnectionTable, DescriptorCount, key_of_caller
from hawker.fair.table import CONNECTIONS
from hawker.http.incoming import conversations, incoming
from hawker.names import API_PORT, RESOLVER

if TYPE_CHECKING:
    from hawker.http import mutual_tls
    from hawker.http.mutual_tls import MutualTls
else:
    mutual_tls = deferred("hawker.http.mutual_tls")

WAITING = 2048
"""So many connections may wait to be accepted at a listener."""
_CLIENT = b"fly-client-ip"
_IPV6_FREEBIND = 78  # ipv6(7); the socket module has no name for it
STOP_GRACE_S = 2
DRAIN_S = 0.25
START_DEADLINE_S = 10.0


class _Uvicorn(uvicorn.Server):
    """Says when it has started. Signals belong to the process's `main`."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = anyio.Event()
        self._ticking = anyio.CancelScope()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    async def main_loop(self) -> None:
        with self._ticking:
            await super().main_loop()

    def stop(self) -> None:
        """Now, not at the next tick."""
        self.should_exit = True
        self._ticking.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """No new connections. Those that are open get `DRAIN_S` for what is on its way to us, and each answer tells its
        client to open another one: a connection that was closed at once could cut off a call that had just been sent.
        """
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        closing = (b"connection", b"close")
        self.config.encoded_headers.append(closing)  # what headers are made of every second
        self.server_state.default_headers = [*self.server_state.default_headers, closing]
        if self.server_state.connections:
            with anyio.move_on_after(DRAIN_S):
                await anyio.sleep_forever()
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


Served: TypeAlias = "Server | BehindEdge"


@asynccontextmanager
async def listening(server: Server, host: str, port: int, tls: "MutualTls | None" = None) -> AsyncIterator[str]:
    """`bind`, then `serving`."""
    async with serving(server, bind(host, port), tls) as url:
        yield url


@asynccontextmanager
async def serving(server: Served, listener: socket.socket, tls: "MutualTls | None" = None) -> AsyncIterator[str]:
    """The URL under which the server answers on a bound socket, which is closed at the end; with `tls`, nodes of the
    cluster alone. Leaving ends waits and streams at once and gives other calls `STOP_GRACE_S` to finish."""
    uvicorn_server = _Uvicorn(_config(server, tls))
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(uvicorn_server.serve, [listener])
            with anyio.fail_after(START_DEADLINE_S):
                await uvicorn_server.up.wait()
            try:
                yield url_of(listener, secured=tls is not None)
            finally:
                server.stop()
                uvicorn_server.stop()
    finally:
        listener.close()


def bind(host: str, port: int) -> socket.socket:
    """Port 0 takes a free one. Raises `CannotStart` when the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # unnamed, asyncio leaves Nagle's delay on
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(WAITING)
    except (OSError, OverflowError) as error:
        listener.close()
        raise CannotStart(f"cannot listen on {host}:{port}: {_reason(error)}; choose another with --listen") from error
    listener.setblocking(False)
    return listener


def bind_for_machines() -> socket.socket:
    """Where machines of this host reach the API. The address is on the bridges of their networks, which come and go, so
    it is bound before it is there. Raises `CannotStart`."""
    place = f"[{RESOLVER}]:{API_PORT}"
    try:
        listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise CannotStart(f"--machine-api needs IPv6 on this host: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
        listener.bind((str(RESOLVER), API_PORT))
        listener.listen(WAITING)
    except OSError as error:
        listener.close()
        text = f"cannot listen on {place}: {_reason(error)}; of the nodes of one host, one answers --machine-api"
        raise CannotStart(text) from error
    listener.setblocking(False)
    return listener


class BehindEdge:
    """A server that the edge of its host alone reaches, over connections that are all the edge's own: a call comes from
    where the edge says."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def stop(self) -> None:
        self._server.stop()

    def is_proxy(self, address: str) -> bool:
        return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        told = next((value for name, value in scope["headers"] if name == _CLIENT), b"").decode("latin-1")
        await self._server({**scope, "client": (told, 0)}, receive, send)


def _reason(error: OSError | OverflowError) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return "another program of this host listens there; if it is a node, `hawker node show` shows it"
    return str(error)


def url_of(listener: socket.socket, *, secured: bool = False) -> str:
    if listener.family == socket.AF_UNIX:
        return "unix:"
    host, port = listener.getsockname()[:2]
    return f"{'https' if secured else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _config(server: Served, tls: "MutualTls | None") -> uvicorn.Config:
    table = ConnectionTable(CONNECTIONS, DescriptorCount(anyio.current_time).scarce, server.is_proxy, key_of_caller)
    http = incoming(table)
    return uvicorn.Config(
        server,
        http=http if tls is None else mutual_tls.secured(http, tls, table),  # type: ignore[arg-type]  # it is only called
        ws=conversations(),  # type: ignore[arg-type]  # it is only called
        proxy_headers=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=STOP_GRACE_S,
        ws_max_size=1024 * 1024,
        ws_per_message_deflate=False,
    )
