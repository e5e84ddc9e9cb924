"""QEMU's control protocol (QMP) over the unix socket of one machine's monitor: commands, events, descriptors. One line
is one JSON object; QEMU serves one client at a time, and a second one waits for its greeting.

The socket is in a directory that the VMM can write to, so neither what is found there nor what it says is trusted: a
link is not followed, lines and events are bounded, and every wait has an end.
"""

import os
import socket
import stat
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec

from hawker.errors import Unavailable

CONNECT_TIMEOUT_S = 10.0  # for a greeting; another client may have to finish first
COMMAND_TIMEOUT_S = 20.0
_LINE_MAX = 1 << 20
_READ_MAX = 64 << 10
_EVENTS_MAX = 256  # that nobody has looked at; the guest can cause some kinds of them
_NEWLINE = b"\n"
_NOTHING = msgspec.Raw()
_T = TypeVar("_T")


class _Failure(msgspec.Struct, frozen=True, kw_only=True):
    desc: str = "no reason given"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What QEMU says unasked: a name such as "MIGRATION", and the status that some of them have."""

    name: str
    """In upper case, as QEMU documents it."""
    status: str = ""
    """Empty for an event that has none."""


class _Details(msgspec.Struct, frozen=True, kw_only=True):
    status: str = ""


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    number: int | None = msgspec.field(default=None, name="id")
    greeting: msgspec.Raw = msgspec.field(default=_NOTHING, name="QMP")
    result: msgspec.Raw = msgspec.field(default=_NOTHING, name="return")
    error: _Failure | None = None
    event: str | None = None
    data: msgspec.Raw = _NOTHING


class QmpRefused(Unavailable):
    """QEMU understood a command and did not do it."""


class QmpAbsent(Unavailable):
    """Nobody listens: not yet, or not any more."""


class Monitor:
    """Use `async with monitor(path)`. Every error is `Unavailable`."""

    def __init__(self, endpoint: socket.socket) -> None:
        self._socket = endpoint
        self._pending = bytearray()
        self._events = deque[Event](maxlen=_EVENTS_MAX)
        self._asked = 0

    async def greeted(self) -> None:
        """Raises `Unavailable` when it is no monitor."""
        if (await self._line()).greeting == _NOTHING:
            raise Unavailable("QEMU's monitor does not speak QMP")

    async def run(
        self,
        command: str,
        arguments: Mapping[str, object] | None = None,
        *,
        fd: int | None = None,
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> None:
        """A command whose answer says nothing more. `fd` is passed with it."""
        await self.ask(command, msgspec.Raw, arguments, fd=fd, timeout_s=timeout_s)

    async def ask(
        self,
        command: str,
        answer: type[_T],
        arguments: Mapping[str, object] | None = None,
        *,
        fd: int | None = None,
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> _T:
        """Raises `QmpRefused` with QEMU's own words."""
        self._asked += 1
        request = {"execute": command, "id": self._asked, **({"arguments": arguments} if arguments else {})}
        try:
            with anyio.fail_after(timeout_s):
                await self._send(msgspec.json.encode(request) + _NEWLINE, fd)
                return _decoded(await self._answer(command), answer)
        except TimeoutError as error:
            raise Unavailable(f"QEMU does not answer {command} within {timeout_s:g} s") from error

    async def event(self, name: str) -> Event:
        """The next event of that name, also one that came during a command; others are passed over. The deadline is
        the caller's."""
        while True:
            while self._events:
                found = self._events.popleft()
                if found.name == name:
                    return found
            self._note(await self._line())

    async def _answer(self, command: str) -> msgspec.Raw:
        while True:
            line = await self._line()
            self._note(line)
            if line.number != self._asked:
                continue  # of a command that was given up
            if line.error is not None:
                raise QmpRefused(f"QEMU refuses {command}: {line.error.desc}")
            if line.result != _NOTHING:
                return line.result

    def _note(self, line: _Line) -> None:
        if line.event is not None:
            status = _decoded(line.data, _Details).status if line.data != _NOTHING else ""
            self._events.append(Event(name=line.event, status=status))

    async def _line(self) -> _Line:
        """An empty line is none."""
        while (end := self._pending.find(_NEWLINE)) < 0:
            if len(self._pending) > _LINE_MAX:
                raise Unavailable("QEMU's monitor sends a line without end")
            await self._receive()
        line = bytes(self._pending[:end])
        del self._pending[: end + 1]
        return _decoded(msgspec.Raw(line), _Line) if line.strip() else _Line()

    async def _receive(self) -> None:
        await anyio.wait_readable(self._socket)
        try:
            data = self._socket.recv(_READ_MAX)
        except BlockingIOError:
            return
        except OSError as error:
            raise _gone() from error
        if not data:
            raise _gone()
        self._pending += data

    async def _send(self, data: bytes, fd: int | None) -> None:
        """A descriptor goes with the first byte."""
        fds = [] if fd is None else [fd]
        while data:
            await anyio.wait_writable(self._socket)
            try:
                sent = socket.send_fds(self._socket, [data], fds)
            except BlockingIOError:
                continue
            except OSError as error:
                raise _gone() from error
            data, fds = data[sent:], []


@asynccontextmanager
async def monitor(path: Path, timeout_s: float = CONNECT_TIMEOUT_S) -> AsyncIterator[Monitor]:
    """Raises `Unavailable`, too when another client has not let go of the monitor within `timeout_s`."""
    with _connected(path) as endpoint:
        found = Monitor(endpoint)
        try:
            with anyio.fail_after(timeout_s):
                await found.greeted()
        except TimeoutError as error:
            text = f"QEMU's monitor does not greet within {timeout_s:g} s: it hangs, or serves another client"
            raise Unavailable(text) from error
        await found.run("qmp_capabilities")
        yield found


def _connected(path: Path) -> socket.socket:
    """By way of the socket's own descriptor, so that the path can be long and is no link to another's socket."""
    try:
        place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise QmpAbsent(f"QEMU's monitor is not there: {error.strerror}") from error
    endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if not stat.S_ISSOCK(os.fstat(place).st_mode):
            raise Unavailable("QEMU's monitor is not a socket: the machine's directory was tampered with")
        endpoint.setblocking(False)
        endpoint.connect(f"/proc/self/fd/{place}")
    except OSError as error:
        endpoint.close()
        raise QmpAbsent(f"QEMU's monitor does not answer: {error.strerror}") from error
    except Unavailable:
        endpoint.close()
        raise
    finally:
        os.close(place)
    return endpoint


def _decoded(raw: msgspec.Raw, shape: type[_T]) -> _T:
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unavailable(f"QEMU's monitor says what cannot be read: {error}") from error


def _gone() -> Unavailable:
    return Unavailable("QEMU has ended, or hung up")
