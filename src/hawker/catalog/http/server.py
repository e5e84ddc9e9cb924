"""The listener within the caller's event loop: HTTP/1.1 and HTTP/2 without TLS on one port."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from hawker.catalog.http.app import CatalogApp
from hawker.catalog.http.connection import STOP_S, Connections
from hawker.errors import CannotStart

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
