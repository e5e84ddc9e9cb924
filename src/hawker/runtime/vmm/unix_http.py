"""One HTTP/1.1 request over a unix socket, as the API of a VMM is spoken: a connection each, bounded in time and bytes.

The socket is in a directory that the VMM can write to, and a guest may have taken the VMM over: a link is not followed,
and an answer that is endless, cut or no HTTP is an error like any other.
"""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httptools

from hawker.errors import Unavailable

ANSWER_MAX = 1 << 20
"""Bytes of an answer, its headers too."""
_READ_MAX = 64 << 10


class Absent(Unavailable):
    """Nobody listens, or not yet."""


class HungUp(Unavailable):
    """The connection ended before an answer was complete: the VMM has ended, or closed it."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


async def exchange(path: Path, method: str, target: str, body: bytes | None, *, timeout_s: float) -> Answer:
    """What the server at `path` says. Raises `Absent`, `HungUp`, and `Unavailable` for all else that is no answer."""
    with _connected(path) as joined:
        try:
            with anyio.fail_after(timeout_s):
                await _send(joined, _request(method, target, body))
                return await _receive(joined)
        except TimeoutError as error:
            raise Unavailable(f"no answer to {method} {target} within {timeout_s:g} s") from error
        except httptools.HttpParserError as error:
            raise Unavailable(f"what answers {method} {target} is no HTTP: {error}") from error


def _request(method: str, target: str, body: bytes | None) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Accept: application/json"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join((*lines, "", "")).encode("ascii") + (body or b"")


class _Reading:
    """Told by the parser, once for each part of an answer."""

    def __init__(self) -> None:
        self.complete = False
        self.body = bytearray()

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


async def _receive(joined: socket.socket) -> Answer:
    reading = _Reading()
    parser = httptools.HttpResponseParser(reading)
    left = ANSWER_MAX
    while not reading.complete:
        data = await _read(joined)
        left -= len(data)
        if left < 0:
            raise Unavailable(f"an answer of more than {ANSWER_MAX} bytes")
        parser.feed_data(data)
    return Answer(parser.get_status_code(), bytes(reading.body))


async def _read(joined: socket.socket) -> bytes:
    while True:
        await anyio.wait_readable(joined)
        try:
            data = joined.recv(_READ_MAX)
        except BlockingIOError:
            continue
        except OSError as error:
            raise HungUp(f"the connection broke: {error.strerror}") from error
        if not data:
            raise HungUp("the connection ended before an answer was complete")
        return data


async def _send(joined: socket.socket, data: bytes) -> None:
    while data:
        await anyio.wait_writable(joined)
        try:
            data = data[joined.send(data) :]
        except BlockingIOError:
            continue
        except OSError as error:
            raise HungUp(f"the connection broke: {error.strerror}") from error


@contextmanager
def _connected(path: Path) -> Iterator[socket.socket]:
    """By the socket's own descriptor: its path may be longer than an address, and is no link to another's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as joined:
        joined.setblocking(False)
        try:
            place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if not stat.S_ISSOCK(os.fstat(place).st_mode):
                    raise Unavailable(f"{path.name} is no socket: the directory of the VMM was tampered with")
                joined.connect(f"/proc/self/fd/{place}")
            finally:
                os.close(place)
        except OSError as error:
            raise Absent(f"nobody listens at {path.name}: {error.strerror}") from error
        yield joined
