"""How a pilot is reached: which files it or its VMM inherits, and how a connection to it begins.

Three kinds: a unix socket that the pilot itself listens on; virtio serial ports, a socket each; vsock through the
socket that a VMM makes for it. What differs is in a `PilotChannel`; everything after is frames. The first kind is here.
"""

import contextlib
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from hawker.errors import Unavailable
from hawker.host.local_socket import short_path
from hawker.runtime.driver import OutputChunk
from hawker.runtime.pilot.connection import ByteStream, Connection
from hawker.runtime.pilot.output import OutputReader, Segment
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import InstanceSpec

# The descriptors of a pilot, whatever starts it: a socket that is listening before it runs, its journal, its output.
PILOT_OPTIONS = ("--listen", "3", "--journal", "4", "--output", "5", "--output", "6")
_BACKLOG = 32


class PilotChannel(Protocol):
    """Remembers nothing. Kept by `UnixSocketChannel`, `SerialPorts` and `Vsock`."""

    def files(
        self, run: RunDir, spec: InstanceSpec, *, resumed: bool = False
    ) -> AbstractContextManager[tuple[int, ...]]:
        """Fresh files for a pilot that never ran; the descriptors are inherited as 3, 4, ... by what is launched. One
        of them holds the journal's lock, and goes on to hold it there. A pilot that is `resumed` from a snapshot goes
        on with the journal and the output that it has."""

    def connect(self, run: RunDir, *, kept: bool = False) -> Connection:
        """Raises `Unavailable` when nobody listens, or every way in is taken; `kept` are ways that are the daemon's
        own, where they are few. One that has not come up yet will find the connection waiting."""

    async def pid(self, run: RunDir) -> int | None:
        """The process of this host that holds the journal's lock, pilot or keeper, where the daemon that started it
        died before it wrote that down. Raises `Unavailable` when it has to be asked and does not answer."""

    def output(self, run: RunDir, *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
        """Read recorded output: see `Driver.output`."""


@contextmanager
def pilot_files(run: RunDir) -> Iterator[tuple[int, ...]]:
    """Fresh files for a pilot that never ran, as (socket, journal, output, output). The journal's lock is taken, and
    goes on to be held by whoever inherits the descriptors."""
    with contextlib.ExitStack() as stack:
        run.socket.unlink(missing_ok=True)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        with short_path(run.socket) as path:
            listener.bind(path)
        run.socket.chmod(0o600)
        listener.listen(_BACKLOG)
        journal = stack.enter_context(_fresh(run.journal))
        fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        run.forget_pid()
        outputs = [stack.enter_context(_fresh(path)) for path in run.outputs]
        yield (listener.fileno(), journal, *outputs)


@contextmanager
def _fresh(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


class UnixSocketChannel:
    """Keeps `PilotChannel` for a pilot that is a process under this host's kernel: the socket that it listens on."""

    def __init__(self) -> None:
        self._reader = OutputReader()

    def files(
        self, run: RunDir, spec: InstanceSpec, *, resumed: bool = False
    ) -> AbstractContextManager[tuple[int, ...]]:
        assert not resumed, "what is frozen stays in memory: it is never launched again"
        return pilot_files(run)

    def connect(self, run: RunDir, *, kept: bool = False) -> Connection:
        return connect(run)

    async def pid(self, run: RunDir) -> int | None:
        """The pilot listens anew once it runs, and only then is the socket known as its own: hence the greeting."""
        async with connect(run) as pilot:
            await pilot.hello()
        return pilot_pid(run)

    def output(self, run: RunDir, *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
        older, newer = run.outputs
        return self._reader.read((Segment(older), Segment(newer)), after=after, tail=tail)


def connect(run: RunDir) -> Connection:
    """Raises `Unavailable` when no pilot listens. One that has not yet come up will find the connection waiting."""
    return Connection(partial(ByteStream, endpoint(run.socket)))


def pilot_pid(run: RunDir) -> int | None:
    """The process id, as this host has it, of whoever listens: the pilot, once it has said hello to anyone."""
    try:
        with endpoint(run.socket) as joined:
            pid, _, _ = struct.unpack("3i", joined.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except Unavailable:
        return None
    return int(pid)


def endpoint(path: Path) -> socket.socket:
    """A connection to the socket at `path`, and to no other that a link in its place leads to. Raises `Unavailable`."""
    joined = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    joined.setblocking(False)
    try:
        _connect(joined, path)
    except OSError as error:
        joined.close()
        raise Unavailable(f"the machine does not answer: {error.strerror}") from error
    return joined


def _connect(joined: socket.socket, path: Path) -> None:
    """By its descriptor: a socket's address holds 107 bytes and a path may be longer."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            raise OSError(0, "it is no socket")
        joined.connect(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
