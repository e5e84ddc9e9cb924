"""The sockets of a node's resolver: for each private network of the host one of UDP and one of TCP, both tied to its
bridge, at the one address that machines know. They follow the bridges as these come and go.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from hawker.dns.answer import Question
from hawker.dns.conversation import QUESTION_BYTES, converse
from hawker.dns.resolver import AskingNetwork, NameResolver, machine_of
from hawker.fair.table import DNS_CONNECTIONS
from hawker.fair.turns import Turns
from hawker.host.address import bridge_prefix, network_of, network_resolver, peers_name
from hawker.host.own_user import WRITES
from hawker.ids import NodeId
from hawker.log import bind
from hawker.names import BOUND, RESOLVER

_PORT = 53
_IDLE_S = 10.0
_AT_ONCE = 16
"""The most questions of one network over UDP that are read before others have their turn."""
_LINKS, _ADDRESSES = 0x1, 0x100
"""Groups of rtnetlink(7): news of links, and news of IPv6 addresses."""
_LOOK_AGAIN_S = 1.0
_log = bind("hawker.dns")


class NetworkSockets:
    """The sockets of one network. Questions over UDP are read and answered here without a transport, several at each
    turn of the event loop: what is in between costs more than most answers do."""

    def __init__(self, resolver: NameResolver, asker: AskingNetwork, tasks: TaskGroup, connections: Turns) -> None:
        self._resolver = resolver
        self._asker = asker
        self._tasks = tasks
        self._connections = connections
        self._udp: socket.socket | None = None
        self._server: asyncio.Server | None = None

    async def open(self, make: Callable[[int], socket.socket]) -> None:
        """Open the sockets and answer. Raises `OSError`."""
        self._udp = make(socket.SOCK_DGRAM)
        asyncio.get_running_loop().add_reader(self._udp, self._read, self._udp)
        try:
            self._server = await asyncio.start_server(self._converse, sock=make(socket.SOCK_STREAM))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._udp is not None:
            asyncio.get_running_loop().remove_reader(self._udp)
            self._udp.close()
            self._udp = None
        if self._server is not None:
            self._server.close()

    def _read(self, udp: socket.socket) -> None:
        with suppress(OSError):  # all was read, or the link is gone, which the next look at the bridges says
            for _ in range(_AT_ONCE):
                data, address = udp.recvfrom(QUESTION_BYTES + 1)
                self._received(data, address)

    def _received(self, data: bytes, address: Any) -> None:
        if len(data) > QUESTION_BYTES or not self._resolver.admits(address[0]):
            return
        found = self._resolver.at_once(data, self._asker)
        if isinstance(found, Question):
            self._tasks.start_soon(self._forward, found, address)
        elif found is not None:
            self._send(found, address)

    async def _forward(self, asked: Question, address: Any) -> None:
        self._send(await self._resolver.forwarded(asked, self._asker.network_id, address[0]), address)

    def _send(self, data: bytes, address: Any) -> None:
        """An answer that the kernel has no room for is lost: who asked asks again."""
        if self._udp is not None:
            with suppress(OSError):
                self._udp.sendto(data, address)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        source = str(peer[0]) if peer else "::"
        answer = partial(self._answer, source)
        await converse(reader, writer, self._connections, machine_of(source), _IDLE_S, answer)

    async def _answer(self, source: str, data: bytes) -> bytes | None:
        """Over TCP; none where it asks too often."""
        if not self._resolver.admits(source):
            return None
        found = self._resolver.at_once(data, self._asker, tcp=True)
        if isinstance(found, Question):
            return await self._resolver.forwarded(found, self._asker.network_id, source, tcp=True)
        return found


class ResolverSockets:
    """Serves each network of the node until cancelled. `folder` gets a file that says which bridges are served."""

    def __init__(self, resolver: NameResolver, node_id: NodeId, folder: Path, tasks: TaskGroup) -> None:
        self._resolver = resolver
        self._prefix = bridge_prefix(node_id)
        self._folder = folder
        self._tasks = tasks
        self._connections = Turns(DNS_CONNECTIONS)
        self._open: dict[tuple[str, int], NetworkSockets] = {}
        self._peers = peers_name(node_id)

    @property
    def needed(self) -> bool:
        """Whether a private network of the node is on the host, or people's computers are in one."""
        return bool(self._bridges() or self._entrances())

    async def serve(self) -> None:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as news:
            news.bind((0, _LINKS | _ADDRESSES))
            news.setblocking(False)
            while True:
                await self._follow()
                with anyio.move_on_after(_LOOK_AGAIN_S):
                    await anyio.wait_readable(news)
                with suppress(OSError):  # all was read, or there was too much of it: either way it is looked at
                    while news.recv(65536):
                        pass

    async def _follow(self) -> None:
        """A bridge that was removed and made again is another one, by its index."""
        there = self._bridges() | self._entrances()
        before = set(self._open)
        for gone in before - there:
            self._open.pop(gone).close()
        for name, index in sorted(there - before):
            asker = AskingNetwork(network_of(name)) if name != self._peers else AskingNetwork(index, entered=True)
            sockets = NetworkSockets(self._resolver, asker, self._tasks, self._connections)
            address = network_resolver(asker.network_id) if asker.entered else RESOLVER
            try:
                await sockets.open(partial(_listening_at, name, str(address)))
            except OSError as error:  # its address is not there yet, or it is gone already: the next news says
                _log.debug("a network is not served yet", extra={"bridge": name, "reason": error.strerror})
            else:
                self._open[name, index] = sockets
        if set(self._open) != before:
            self._say()

    def _entrances(self) -> set[tuple[str, int]]:
        """The device of WireGuard peers, once for each network that has some, with its number."""
        try:
            socket.if_nametoindex(self._peers)
        except OSError:
            return set()
        return {(self._peers, network_id) for network_id in self._resolver.entered()}

    def _bridges(self) -> set[tuple[str, int]]:
        """Of this process's network namespace, which the `/sys` that it sees need not be of."""
        return {(name, index) for index, name in socket.if_nameindex() if name.startswith(self._prefix)}

    def _say(self) -> None:
        draft = self._folder / WRITES / f"{BOUND}.new"
        draft.write_text("".join(f"{name}\n" for name in sorted({name for name, _ in self._open})))
        draft.rename(self._folder / WRITES / BOUND)


def _listening_at(device: str, address: str, kind: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        made.bind((address, _PORT))
        if kind == socket.SOCK_STREAM:
            made.listen(128)
    except OSError:
        made.close()
        raise
    return made
