"""The channel through virtio serial ports: each is a unix socket that the host listens on before the VMM runs, so that
a run spec may wait in one, and that the VMM inherits. A client has a port to itself while it holds the port's lock.

The sockets are beside the VMM's own directory, not in it: whatever becomes of the VMM, it cannot put another machine's
socket in their place. How a port, which has no connections, carries one: guest/PROTOCOL.md, "Serial ports".
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.host.local_socket import short_path
from hawker.runtime.driver import OutputChunk
from hawker.runtime.pilot.channel import endpoint
from hawker.runtime.pilot.connection import ByteStream, Connection, OnData, OnEnd
from hawker.runtime.pilot.journal_disk import journal_disk_file, journal_disk_output
from hawker.runtime.pilot.orphans import holder_of
from hawker.runtime.pilot.output import OutputReader
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import InstanceSpec

_ESCAPE = b"\xfe"
_ESCAPED = b"\xfe\x00"
_BEGIN = b"\xfe\x01"
END = b"\xfe\x02"
NONCE_BYTES = 8
PORTS = 12  # conversations at a time; a port costs a VMM nothing while it is idle
KEPT = 3  # of them for stops and upkeep: whatever runs in the machine, it can be ended in order
_BACKLOG = 2  # a client may come before the VMM has seen the last one go


class SerialPortsChannel:
    """Keeps `Channel`. What is launched inherits the ledger as 3 and the ports as 4 and on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reader = OutputReader()

    @contextmanager
    def files(self, run: RunDir, spec: InstanceSpec, *, resumed: bool = False) -> Iterator[tuple[int, ...]]:
        run.ports.mkdir(mode=0o700, exist_ok=True)
        with ExitStack() as stack:
            ledger = stack.enter_context(journal_disk_file(run, spec, resumed=resumed))
            listeners = [stack.enter_context(_listener(_socket_of(run, port))) for port in range(PORTS)]
            yield (ledger, *(listener.fileno() for listener in listeners))

    def connect(self, run: RunDir, *, kept: bool = False) -> Connection:
        port, lock = _free_port(run, PORTS if kept else PORTS - KEPT)
        try:
            joined = endpoint(_socket_of(run, port))
        except BaseException:
            os.close(lock)
            raise
        nonce = nonce_of(self._clock.token_bytes(NONCE_BYTES))
        return Connection(partial(PortStream, joined, lock, nonce))

    async def pid(self, run: RunDir) -> int | None:
        return await holder_of(run)

    def output(self, run: RunDir, *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
        return journal_disk_output(run, self._reader, self._clock.now(), after=after, tail=tail)


class PortStream:
    """Keeps `Stream`, over `joined`, which is the client's own while it holds `lock`. It owns both."""

    def __init__(self, joined: socket.socket, lock: int, nonce: bytes, on_data: OnData, on_end: OnEnd) -> None:
        self._on_data = on_data
        self._on_end = on_end
        self._unescape = Unescape(nonce)
        self._below = ByteStream(joined, self._arrived, on_end, on_closed=partial(os.close, lock))
        self._below.write(begin(nonce))

    def write(self, data: bytes) -> None:
        self._below.write(escape(data))

    def close(self) -> None:
        self._below.write(END)
        self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def _arrived(self, data: bytes) -> None:
        said = self._unescape.feed(data)
        if said:
            self._on_data(said)
        if self._unescape.over:
            self._below.abort()
            self._on_end(self._unescape.over)


def _socket_of(run: RunDir, port: int) -> Path:
    return run.ports / f"{port}.sock"


def _listener(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(path) as short:
        listener.bind(short)
    path.chmod(0o600)
    listener.listen(_BACKLOG)
    return listener


def _free_port(run: RunDir, ports: int) -> tuple[int, int]:
    """One of the first `ports`, and the descriptor that holds its lock."""
    for port in range(ports):
        try:
            lock = os.open(run.ports / f"{port}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError as error:
            raise Unavailable("the machine does not answer: it was never launched") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return port, lock
    raise Unavailable(f"all {ports} ways into the machine are taken: end a command that runs in it, or try again soon")


def nonce_of(random: bytes) -> bytes:
    """A nonce of `NONCE_BYTES` random bytes, none of which looks like an escape."""
    assert len(random) == NONCE_BYTES
    return bytes(byte & 0x7F for byte in random)


def begin(nonce: bytes) -> bytes:
    return _BEGIN + nonce


def escape(data: bytes) -> bytes:
    return data.replace(_ESCAPE, _ESCAPED)


class Unescape:
    """Reads a connection out of a port. Feed it what arrives after `begin`: what came before the answer to that is
    passed over."""

    def __init__(self, nonce: bytes) -> None:
        self._mark = begin(nonce)
        self._rest = b""
        self._begun = False
        self.over = ""  # why, once there is no more to come

    def feed(self, data: bytes) -> bytes:
        """What is said in `data`, up to where the connection is over."""
        if self.over:
            return b""
        data = self._rest + data
        if not self._begun:
            before, mark, data = data.partition(self._mark)
            if not mark:
                self._rest = before[1 - len(self._mark) :]
                return b""
            self._begun = True
        self._rest = data[-1:] if data.endswith(_ESCAPE) else b""
        return self._said(data[: len(data) - len(self._rest)])

    def _said(self, data: bytes) -> bytes:
        """`data` ends in no half an escape."""
        if data.count(_ESCAPE) == data.count(_ESCAPED):
            return data.replace(_ESCAPED, _ESCAPE)
        at = data.index(_ESCAPE)
        while data.startswith(_ESCAPED, at):
            at = data.index(_ESCAPE, at + 1)
        ended = data.startswith(END, at)
        self.over = "contact with the machine was lost" if ended else "the pilot broke the framing of its serial port"
        return data[:at].replace(_ESCAPED, _ESCAPE)
