"""Sockets: the only place in gossip that has any. Datagrams over UDP, streams over TCP, both on one port."""

import asyncio
import errno
import socket
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketListener, SocketStream, TaskGroup, TaskStatus
from anyio.streams.stapled import MultiListener

from hawker.clock import Clock
from hawker.errors import CannotStart, Unavailable
from hawker.log import bind

_BURST = 64
_QUEUE = 1024
_BUFFER_BYTES = 1 << 20
_NAMES = 1024
_NAME_S = 60.0
_TRIES = 16
_ACCEPT_AGAIN_S = 0.2
_ENDPOINT = tuple[str, int]
_log = bind("hawker.gossip")


class SocketTransport:
    """`bind` is HOST:PORT; port 0 takes one that is free for both."""

    def __init__(self, bind: str, clock: Clock) -> None:
        self._host, self._port = split(bind)
        self._clock = clock
        self._waiting: deque[tuple[bytes, _ENDPOINT]] = deque(maxlen=_QUEUE)  # the oldest goes
        self._literals: dict[str, _ENDPOINT] = {}
        self._names: OrderedDict[str, tuple[_ENDPOINT, float]] = OrderedDict()
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: TaskGroup | None = None
        self._asked: set[str] = set()

    @property
    def address(self) -> str:
        return joined(self._host, self._port)

    # Datagrams.

    def send(self, address: str, datagram: bytes) -> None:
        if self._socket is None or self._loop is None:
            return
        endpoint = self._literals.get(address) or self._endpoint(address)
        if endpoint is None:
            return
        if self._waiting:
            self._waiting.append((datagram, endpoint))
        elif not self._sent(datagram, endpoint):
            self._waiting.append((datagram, endpoint))
            self._loop.add_writer(self._socket, self._flush)

    def _sent(self, datagram: bytes, endpoint: _ENDPOINT) -> bool:
        """False when the kernel's buffer is full. What the network refuses is lost, as on its way."""
        assert self._socket is not None
        try:
            self._socket.sendto(datagram, endpoint)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _flush(self) -> None:
        while self._waiting:
            if not self._sent(*self._waiting[0]):
                return
            self._waiting.popleft()
        if self._loop is not None and self._socket is not None:
            self._loop.remove_writer(self._socket)

    def _read(self, on_datagram: Callable[[str, bytes], None]) -> None:
        """Some at a time, so that the loop turns."""
        assert self._socket is not None
        for _ in range(_BURST):
            try:
                datagram, source = self._socket.recvfrom(2048)
            except BlockingIOError:
                return
            except OSError:
                continue  # what an earlier datagram met on its way
            on_datagram(joined(_unmapped(source[0]), source[1]), datagram)

    # Names.

    def _endpoint(self, address: str) -> _ENDPOINT | None:
        """None while a name is being looked up: the datagram is lost, the next one is not."""
        try:
            host, port = split(address)
        except ValueError:
            return None
        if is_literal(host):
            if len(self._literals) >= _NAMES:
                self._literals.clear()
            self._literals[address] = found = (self._mapped(host), port)
            return found
        now = asyncio.get_running_loop().time()
        known, until = self._names.get(address, (None, 0.0))
        if until < now and self._tasks is not None and len(self._asked) < _BURST and address not in self._asked:
            self._asked.add(address)
            self._tasks.start_soon(self._look_up, address, host, port)
        return known

    async def _look_up(self, address: str, host: str, port: int) -> None:
        try:
            found = await anyio.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        except (OSError, UnicodeError):
            return
        finally:
            self._asked.discard(address)
        family = self._socket.family if self._socket is not None else socket.AF_INET
        fitting = [each[4] for each in found if each[0] == family] or [each[4] for each in found]
        if fitting:
            until = asyncio.get_running_loop().time() + _NAME_S
            self._names[address] = ((self._mapped(str(fitting[0][0])), int(fitting[0][1])), until)
            while len(self._names) > _NAMES:
                self._names.popitem(last=False)

    def _mapped(self, host: str) -> str:
        """IPv4 over a socket of IPv6."""
        is_six = self._socket is not None and self._socket.family == socket.AF_INET6
        return f"::ffff:{host}" if is_six and ":" not in host else host

    # Streams.

    async def dial(self, address: str) -> ByteStream:
        try:
            host, port = split(address)
            return await anyio.connect_tcp(host, port)
        except (OSError, ValueError) as error:
            raise Unavailable(f"cannot connect to {address}: {error}") from error

    # Both.

    async def serve(
        self,
        on_datagram: Callable[[str, bytes], None],
        on_stream: Callable[[ByteStream], Awaitable[None]],
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        listener = await self._bound()
        assert self._socket is not None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._read, on_datagram)
        try:
            async with listener, anyio.create_task_group() as self._tasks:
                for each in listener.listeners:
                    assert isinstance(each, SocketListener)
                    self._tasks.start_soon(_accept, self._tasks, self._clock, each, on_stream)
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._socket = self._tasks = None

    async def _bound(self) -> MultiListener[SocketStream]:
        for _ in range(_TRIES):
            try:
                listener = await anyio.create_tcp_listener(local_host=self._host, local_port=self._port, backlog=128)
            except OSError as error:
                raise CannotStart(f"cannot listen on {self.address} for peers: {error}") from error
            first = listener.listeners[0]
            port = int(first.extra(SocketAttribute.local_port))
            try:
                self._socket = _datagram_socket(self._host, port)
            except OSError as error:
                await listener.aclose()
                if self._port == 0 and error.errno == errno.EADDRINUSE:
                    continue
                raise CannotStart(f"cannot receive datagrams on {joined(self._host, port)}: {error}") from error
            self._port = port
            return listener
        raise CannotStart(f"found no port that is free for both UDP and TCP on {self._host}")


async def _accept(
    tasks: TaskGroup, clock: Clock, listener: SocketListener, on_stream: Callable[[ByteStream], Awaitable[None]]
) -> None:
    """Until cancelled. A process without descriptors or buffers takes no stream for a moment: the others of its node
    have theirs, and datagrams go on."""

    async def hear(stream: ByteStream) -> None:
        await on_stream(stream)

    scarce = False
    while True:
        try:
            stream = await listener.accept()
        except OSError as error:
            if not scarce:
                _log.warning("cannot take streams of peers", extra={"error": str(error)})
            scarce = True
            await clock.sleep(_ACCEPT_AGAIN_S)
            continue
        scarce = False
        tasks.start_soon(hear, stream)


def _datagram_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        with suppress(OSError):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made


def split(address: str) -> tuple[str, int]:
    """HOST:PORT or [HOST]:PORT. Raises `ValueError`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 <= int(port) < 65536:
        raise ValueError(f"{address!r} is no HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_literal(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, host)
            return True
    return False


def _unmapped(host: str) -> str:
    return host.removeprefix("::ffff:") if "." in host else host
