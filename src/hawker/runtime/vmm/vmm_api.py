"""The HTTP API of one VMM over its unix socket: values in, values out, and errors in the VMM's own words.

The socket is in a directory that the VMM can write to, and a guest may have taken the VMM over: a link is not followed,
an answer is bounded in time and bytes, one that is endless, cut or no HTTP is an error like any other, and its text is
cut and cleaned before it is passed on.
"""

import asyncio
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.lowlevel
import httptools
import msgspec

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.http.http1 import Http1Connection, HttpResponse, connect_unix, encode_request
from hawker.runtime.vmm.contract import Vm

REQUEST_TIMEOUT_S = 20.0
ANSWER_MAX = 1 << 20
"""Bytes of an answer, its headers too."""
_APPEARS_S = 20.0  # from the launch to an API that listens
_LOOK_EVERY_S = 0.01
_MEMORY_S, _MIB_PER_S = 30.0, 20
_SAID_MAX = 400  # characters
_T = TypeVar("_T")


class VmmAbsent(Unavailable):
    """Nobody listens, or not yet."""


class VmmHungUp(Unavailable):
    """The connection ended before an answer was complete: the VMM has ended, or closed it."""


class VmmRefused(Unavailable):
    """The VMM understood a request, and did not do it. `said` is why, in its words."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


@dataclass(frozen=True, slots=True)
class VmmRequest:
    """One call of an API. `body` is what msgspec makes JSON of; None for none."""

    method: str
    target: str
    body: msgspec.Struct | None = None


@dataclass(frozen=True, slots=True)
class VmmApi:
    """`name` is the VMM's, for errors; `complaint` finds what an error's body says."""

    name: str
    socket: Path
    complaint: Callable[[bytes], str]

    async def appeared(self, first: VmmRequest, alive: Callable[[], bool], clock: Clock) -> None:
        """Return once `first` is answered, which must change nothing. Raises `Unavailable` when the VMM has ended, or
        takes too long."""
        with anyio.move_on_after(_APPEARS_S):
            while True:
                try:
                    return await self.send(first)
                except VmmAbsent as error:
                    if not alive():
                        raise Unavailable(f"{self.name} ended before it listened: see the machine's console") from error
                await clock.sleep(_LOOK_EVERY_S)
        raise Unavailable(f"{self.name} does not listen within {_APPEARS_S:g} s")

    async def send(self, request: VmmRequest, *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """A request whose answer says nothing more."""
        await self._asked(request, timeout_s)

    async def try_send(self, request: VmmRequest) -> None:
        """Where it does not matter whether it is done."""
        with suppress(Unavailable):
            await self.send(request)

    async def ask(self, request: VmmRequest, shape: type[_T]) -> _T:
        """The answer to a request as a value of `shape`. Raises `VmmRefused`, and `Unavailable` for what is no such
        answer."""
        answer = await self._asked(request, REQUEST_TIMEOUT_S)
        try:
            return msgspec.json.decode(answer, type=shape)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Unavailable(f"{self.name} answers {_named(request)} with what cannot be read: {error}") from error

    async def _asked(self, request: VmmRequest, timeout_s: float) -> bytes:
        """Raises `VmmRefused`; `VmmAbsent` and `VmmHungUp` as they are, for what they tell of the VMM's life."""
        body = None if request.body is None else msgspec.json.encode(request.body)
        try:
            answer = await exchange(self.socket, request.method, request.target, body, timeout_s=timeout_s)
        except Unavailable as error:
            raise type(error)(f"{self.name}: {error}") from error
        if 200 <= answer.status < 300:
            return answer.body
        said = readable(self.complaint(answer.body)) or f"status {answer.status}"
        raise VmmRefused(f"{self.name} refuses {_named(request)}: {said}", said)


def patience_s(vm: Vm) -> float:
    """How long the slowest disk that is waited for takes to write or read a machine's memory."""
    return _MEMORY_S + vm.max_memory_mib / _MIB_PER_S


def readable(text: str) -> str:
    """One line of what can be printed, of bounded length."""
    plain = "".join(char if char.isprintable() else " " for char in text[: 2 * _SAID_MAX])
    return " ".join(plain.split())[:_SAID_MAX]


def _named(request: VmmRequest) -> str:
    return f"{request.method} {request.target}"


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
