"""The doors where the edge accepts connections and takes datagrams: what routes want is asked of the warden, and what
the warden gives is served. The warden keeps the sockets, so they outlive this process.
"""

import array
import asyncio
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain

import anyio
import msgspec

from hawker.clock import Clock
from hawker.edge.datagrams import DatagramDoor
from hawker.edge.routes import Door
from hawker.edge.splice import watch_socket
from hawker.edge.warden import GivenDoor, WantedDoors
from hawker.log import bind

_DATAGRAM = 1 << 20
_BEAT_S = 1.0
_MOST_SOCKETS = 32  # of one door
_BACKLOG = 4096
_log = bind("hawker.edge")

Accept = Callable[[Door], asyncio.Protocol]
Receive = Callable[[Door, socket.socket], DatagramDoor]


class Listeners:
    """The sockets at which this process listens. `channel` leads to the warden, `wanted` gives the doors at which to
    listen now, `accept` makes the protocol of a connection and `receive` takes the socket of a door for datagrams."""

    def __init__(
        self,
        channel: socket.socket,
        wanted: Callable[[], Iterable[Door]],
        accept: Accept,
        receive: Receive,
        clock: Clock,
    ) -> None:
        self._channel = channel
        self._wanted = wanted
        self._accept = accept
        self._receive = receive
        self._clock = clock
        self._servers: dict[Door, list[asyncio.Server | DatagramDoor]] = {}
        self.refused: dict[Door, str] = {}
        self._told: frozenset[Door] = frozenset()
        self._closed = False

    @property
    def states(self) -> dict[Door, str]:
        """Each door with the reason why nothing listens there; empty where something does."""
        return {**dict.fromkeys(self._servers, ""), **self.refused}

    def close(self) -> None:
        """Accept no connections any more: those that come now wait for the next process."""
        self._closed = True
        for server in chain.from_iterable(self._servers.values()):
            server.rest() if isinstance(server, DatagramDoor) else server.close()

    def leave(self) -> None:
        """Tell the warden that we go on without it, for visits that are in machines, and that the next process may
        begin."""
        with suppress(OSError):
            self._channel.send(msgspec.msgpack.encode(WantedDoors(leaving=True)))
            self._channel.shutdown(socket.SHUT_RDWR)

    def ask(self) -> None:
        """Tell the warden which doors are wanted, if they have changed."""
        if frozenset(self._wanted()) != self._told:
            self._beat()

    async def beat(self) -> None:
        """Tell the warden each second that we live, and which doors are wanted. Until cancelled."""
        while True:
            self._beat()
            await self._clock.sleep(_BEAT_S)

    async def take(self) -> None:
        """Serve the sockets that the warden gives. Returns when the warden is gone: then we must go, too."""
        while True:
            await anyio.wait_readable(self._channel)
            data, fds = _received(self._channel)
            if not data:
                return
            given = msgspec.msgpack.decode(data, type=GivenDoor)
            await self._serve(Door(given.address, given.port, given.udp), given.refused, fds)

    def _beat(self) -> None:
        self._told = frozenset(self._wanted())
        for door in self._servers.keys() - self._told:
            for server in self._servers.pop(door):
                server.close()
        self.refused = {door: why for door, why in self.refused.items() if door in self._told}
        doors, datagrams = (
            tuple((door.address, door.port) for door in sorted(self._told) if door.udp is udp) for udp in (False, True)
        )
        try:
            self._channel.send(msgspec.msgpack.encode(WantedDoors(doors=doors, datagrams=datagrams)))
        except OSError as error:
            _log.warning("the warden does not hear", extra={"reason": str(error)})

    async def _serve(self, door: Door, refused: str, fds: list[int]) -> None:
        listeners = [socket.socket(fileno=fd) for fd in fds]
        if refused or not listeners:
            self.refused[door] = refused
            _log.warning("cannot listen", extra={"address": door.address, "port": door.port, "reason": refused})
            return
        self.refused.pop(door, None)
        if self._closed or door in self._servers or door not in self._told:
            for listener in listeners:
                listener.close()
            return
        servers = self._servers[door] = []
        loop = asyncio.get_running_loop()
        for listener in listeners:
            if door.udp:
                servers.append(self._receive(door, listener))
            else:
                watch_socket(listener)
                servers.append(await loop.create_server(lambda: self._accept(door), sock=listener, backlog=_BACKLOG))


def _received(channel: socket.socket) -> tuple[bytes, list[int]]:
    fds = array.array("i")
    try:
        data, passed, _, _ = channel.recvmsg(_DATAGRAM, socket.CMSG_SPACE(_MOST_SOCKETS * fds.itemsize))
    except OSError:
        return b"", []
    for level, kind, content in passed:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, list(fds)
