"""The channel to a pilot that is a process under this host's kernel: the unix socket that it listens on."""

import os
import socket
import stat
import struct
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from hawker.errors import Unavailable
from hawker.runtime.driver import OutputChunk
from hawker.runtime.pilot.connection import Connection
from hawker.runtime.pilot.launch import pilot_files
from hawker.runtime.pilot.output import Segment, read_output
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.stream import ByteStream
from hawker.runtime.spec import InstanceSpec


class UnixSocket:
    """Keeps `Channel`."""

    def files(
        self, run: RunDir, spec: InstanceSpec, *, resumed: bool = False
    ) -> AbstractContextManager[tuple[int, ...]]:
        assert not resumed, "what is frozen stays in memory: it is never launched again"
        return pilot_files(run)

    def connect(self, run: RunDir) -> Connection:
        return connect(run)

    async def pid(self, run: RunDir) -> int | None:
        """The pilot listens anew once it runs, and only then is the socket known as its own: hence the greeting."""
        async with connect(run) as pilot:
            await pilot.hello()
        return pilot_pid(run)

    def output(self, run: RunDir, *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
        older, newer = run.outputs
        return read_output((Segment(older), Segment(newer)), after=after, tail=tail)


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
        raise Unavailable(f"the machine's pilot does not answer: {error.strerror}") from error
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
