"""The listener: Hypercorn within the caller's event loop, HTTP/1.1 and HTTP/2 without TLS on one port."""

import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
from hypercorn.asyncio import serve
from hypercorn.config import Config

from hawker.catalog.http.app import CatalogApp
from hawker.errors import CannotStart

KEEP_ALIVE_S = 75.0
STREAMS = 256
_STOP_S = 1.0
_BACKLOG = 1024
_HEAD_BYTES = 64 * 1024
_NO_END = 1 << 62

_edge = logging.getLogger("hawker.catalog.http.edge")


@asynccontextmanager
async def serving(app: CatalogApp, listener: socket.socket) -> AsyncIterator[str]:
    """The URL under which the app answers on a bound socket, which is closed at the end. Leaving ends all answers."""
    url = _url(listener)
    stop = anyio.Event()
    config = _config(os.dup(listener.fileno()))
    listener.close()
    async with anyio.create_task_group() as group:
        group.start_soon(_serve, app, config, stop)
        try:
            yield url
        finally:
            app.stop()
            stop.set()


def bind(listen: str) -> socket.socket:
    """`HOST:PORT`, where port 0 takes a free one. Raises `CannotStart`."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise CannotStart(f"the catalog listens on HOST:PORT, not {listen!r}: give --catalog-listen another value")
    host = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise CannotStart(f"cannot listen on {listen}: {error}; choose another with --catalog-listen") from error
    listener.setblocking(False)
    return listener


async def _serve(app: CatalogApp, config: Config, stop: anyio.Event) -> None:
    await serve(cast(Any, app), config, shutdown_trigger=stop.wait, mode="asgi")


def _config(descriptor: int) -> Config:
    _edge.setLevel(logging.WARNING)
    config = Config()
    config.bind = [f"fd://{descriptor}"]
    config.errorlog = _edge
    config.accesslog = None
    config.include_server_header = False
    config.backlog = _BACKLOG
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.keep_alive_max_requests = _NO_END
    config.h2_max_concurrent_streams = STREAMS
    config.h11_max_incomplete_size = _HEAD_BYTES
    config.graceful_timeout = _STOP_S
    return config


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
