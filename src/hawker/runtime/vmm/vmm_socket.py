"""One call over the unix socket of a VMM.

The socket is in a directory that the VMM can write to, and a guest may have taken the VMM over: a link is not followed,
an answer is bounded in time and bytes, and one that is endless, cut or no HTTP is an error like any other.
"""

import asyncio
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import httptools

from hawker.errors import Unavailable
from hawker.http.http1 import Http1Connection, connect_unix
from hawker.http.message import HttpResponse, encode_request

ANSWER_MAX = 1 << 20
"""Bytes of an answer, its headers too."""


class VmmAbsent(Unavailable):
    """Nobody listens, or not yet."""


class VmmHungUp(Unavailable):
    """The connection ended before an answer was complete: the VMM has ended, or closed it."""


async def exchange(path: Path, method: str, target: str, body: bytes | None, *, timeout_s: float) -> HttpResponse:
    """What the server at `path` answers, over a connection of its own, within `timeout_s` seconds. Raises `VmmAbsent`,
    `VmmHungUp`, and `Unavailable` for all else that is no answer."""
    headers = [("Host", "localhost"), ("Accept", "application/json")]
    if body is not None:
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    deadline = asyncio.get_running_loop().time() + timeout_s
    connection = await connect_unix(_connected(path), lambda: Http1Connection(max_response_bytes=ANSWER_MAX))
    try:
        return await connection.request(encode_request(method, target, headers, body or b""), deadline)
    except TimeoutError as error:
        raise Unavailable(f"no answer to {method} {target} within {timeout_s:g} s") from error
    except OSError as error:
        raise VmmHungUp(f"the connection ended before an answer was complete: {error}") from error
    except httptools.HttpParserError as error:
        raise Unavailable(f"what answers {method} {target} is no HTTP: {error}") from error
    finally:
        connection.close()
        await anyio.lowlevel.cancel_shielded_checkpoint()  # the event loop closes the socket meanwhile


def _connected(path: Path) -> socket.socket:
    """By the socket's own descriptor: its path may be longer than an address, and is no link to another's. Raises
    `VmmAbsent`, and `Unavailable` for what is no socket."""
    joined = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    joined.setblocking(False)
    try:
        with _opened(path) as place:
            if not stat.S_ISSOCK(os.fstat(place).st_mode):
                raise Unavailable(f"{path.name} is no socket: the directory of the VMM was tampered with")
            joined.connect(f"/proc/self/fd/{place}")
        return joined
    except OSError as error:
        joined.close()
        raise VmmAbsent(f"nobody listens at {path.name}: {error.strerror}") from error
    except Unavailable:
        joined.close()
        raise


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield place
    finally:
        os.close(place)
