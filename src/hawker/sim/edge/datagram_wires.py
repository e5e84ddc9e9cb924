"""UDP between played hosts in virtual time, by sockets that edges and programs use as they use the kernel's. Datagrams
come late, in another order, or not at all; where nobody listens, who has connected is told.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial

from hawker.clock import Clock
from hawker.ids import NodeId

_KEPT = 64  # datagrams that wait in a socket for its reader
_LATER = 0.5  # of the way's time, at most
_PORTS_FROM = 40_000
_PKTINFO = 8

Address = tuple[str, int]


class PlayedSocket:
    """As much of a socket of UDP as is used. `own` is where it is bound, `peer` where it is connected to."""

    family = socket.AF_INET

    def __init__(self, net: "DatagramNet", node: NodeId, process: int, own: Address, peer: Address | None) -> None:
        self.node = node
        self.process = process
        self.own = own
        self.peer = peer
        self.closed = False
        self._net = net
        self._arrived: deque[tuple[bytes, Address]] = deque()
        self._refused = False
        self._read: Callable[[], object] | None = None

    def watch(self, read: Callable[[], object] | None) -> None:
        """Called whenever something has come; as an event loop does it."""
        self._read = None if read is None else partial(copy_context().run, read)

    def arrive(self, data: bytes, sender: Address) -> None:
        if not self.closed and len(self._arrived) < _KEPT:
            self._arrived.append((data, sender))
            self._look()

    def refuse(self) -> None:
        """Nobody listens where it is connected to."""
        if not self.closed:
            self._refused = True
            self._look()

    def _look(self) -> None:
        if self._read is not None:
            self._read()

    # As a socket of the kernel.

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def setsockopt(self, *option: int) -> None:
        """It always says to which address a datagram came."""

    def send(self, data: bytes) -> int:
        self._raise_refusal()
        assert self.peer is not None, "it is connected"
        return self.sendto(data, self.peer)

    def sendto(self, data: bytes, to: Address) -> int:
        self._net.send(self, data, to)
        return len(data)

    def sendmsg(self, buffers: Sequence[bytes], extra: object, flags: int, to: Address) -> int:
        return self.sendto(b"".join(buffers), to)

    def recv(self, size: int) -> bytes:
        return self.recvfrom(size)[0]

    def recvfrom(self, size: int) -> tuple[bytes, Address]:
        self._raise_refusal()
        if not self._arrived:
            raise BlockingIOError
        return self._arrived.popleft()

    def recvmsg(self, size: int, extra_size: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, Address]:
        data, sender = self.recvfrom(size)
        local = socket.inet_aton(self.own[0])
        return data, [(socket.IPPROTO_IP, _PKTINFO, bytes(4) + local + local)], 0, sender

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._net.closed(self)

    def _raise_refusal(self) -> None:
        if self._refused:
            self._refused = False
            raise ConnectionRefusedError


class DatagramNet:
    """`reach` says whether two hosts hear each other, `latency` how far they are in seconds, one way. `lost` is the
    share of datagrams between hosts that are lost."""

    def __init__(
        self, reach: Callable[[NodeId, NodeId], bool], latency: Callable[[NodeId, NodeId], float], clock: Clock
    ) -> None:
        self.lost = 0.0
        self._reach = reach
        self._latency = latency
        self._random = clock.random
        self._nodes: dict[str, NodeId] = {}
        self._bound: dict[Address, dict[int, PlayedSocket]] = {}  # by process
        self._port = _PORTS_FROM

    def bind(
        self, node: NodeId, process: int, address: str, port: int = 0, peer: Address | None = None
    ) -> PlayedSocket:
        """At a port that nobody has where it is 0. Processes that are bound to one place share out who sends."""
        if not port:
            self._port += 1
        made = PlayedSocket(self, node, process, (address, port or self._port), peer)
        self._nodes[address] = node
        self._bound.setdefault(made.own, {})[process] = made
        return made

    def connected_to(self, place: Address) -> int:
        """How many sockets are."""
        return sum(each.peer == place for sockets in self._bound.values() for each in sockets.values())

    def closed(self, which: PlayedSocket) -> None:
        sockets = self._bound.get(which.own, {})
        if sockets.get(which.process) is which:
            del sockets[which.process]
        if not sockets:
            self._bound.pop(which.own, None)

    def unbind(self, place: Address) -> None:
        for each in list(self._bound.get(place, {}).values()):
            each.close()

    def end(self, node: NodeId, process: int | None = None) -> None:
        """Of all processes with None."""
        for sockets in list(self._bound.values()):
            for each in list(sockets.values()):
                if each.node == node and process in (None, each.process):
                    each.close()

    def send(self, sender: PlayedSocket, data: bytes, to: Address) -> None:
        node = self._nodes.get(to[0])
        if node is None or sender.closed or (node != sender.node and self.lost and self._random() < self.lost):
            return
        late_s = self._latency(sender.node, node) * (1 + _LATER * self._random())
        asyncio.get_running_loop().call_later(late_s, self._deliver, sender, node, data, to)

    def _deliver(self, sender: PlayedSocket, node: NodeId, data: bytes, to: Address) -> None:
        if not self._reach(sender.node, node):
            return
        takers = self._bound.get(to)
        if takers:
            order = sorted(takers)
            takers[order[sender.own[1] % len(order)]].arrive(data, sender.own)
        elif sender.peer is not None:
            asyncio.get_running_loop().call_later(self._latency(node, sender.node), sender.refuse)
