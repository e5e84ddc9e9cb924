"""TCP between played hosts in virtual time: latency, back pressure, half-close, resets. A host without power and a link
that is cut say nothing: who waits for them learns it from his own clock.

The event loop connects by it, so what speaks over connections is the product's own code.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from functools import partial
from itertools import count, takewhile
from typing import Any, TypeVar, cast

from hawker.ids import NodeId
from hawker.sim.edge.datagram_wires import DatagramNet, PlayedSocket
from hawker.sim.harness.loop import LoopClock, VirtualTimeLoop
from hawker.value_object import ValueObject

P = TypeVar("P", bound=asyncio.BaseProtocol)

OUTSIDE = NodeId("outside")
"""Where clients are."""
CLIENT = "192.0.2.7"
HERE: ContextVar[NodeId] = ContextVar("HERE", default=OUTSIDE)
"""The host whose code runs."""
NO_EDGE = -1
PROCESS: ContextVar[int] = ContextVar("PROCESS", default=NO_EDGE)
"""Which edge process of the host, from 0 on; `NO_EDGE` is anything else there: it dials nobody."""
LIFE: ContextVar[int] = ContextVar("LIFE", default=0)
"""How often a process of this number had been killed there when the one whose code runs began."""
_NEAR_S, _FAR_S, _ABROAD_S = 0.0002, 0.002, 0.03
_AGAIN_S, _GIVEN_UP_S = 0.2, 11.0  # TCP sends again; its probes end what another host does not answer
_ORDER_S = 1e-9
_UNSENT_BYTES = 64 << 10
_DIALLED = 50_000  # the port of who dials


class PlayedListener(ValueObject, frozen=True):
    """`process` is a number from 0 on, or `NO_EDGE`."""

    node: NodeId
    process: int
    accept: Callable[[], asyncio.BaseProtocol]


class Wires:
    """`nodes` says which host has an address, `addresses` where a host's own connections come from, and `regions` where
    a host is; those that are not in there are near all others."""

    def __init__(self) -> None:
        self.regions: dict[NodeId, str] = {}
        self.nodes: dict[str, NodeId] = {}
        self.addresses: dict[NodeId, str] = {OUTSIDE: CLIENT}
        self._listeners: dict[tuple[str, int], dict[int, PlayedListener]] = {}  # by process, the next one first
        self._clock = LoopClock()
        self._dark: dict[NodeId, float] = {}  # since when
        self._cuts: dict[frozenset[NodeId], float] = {}
        self._open: dict[PlayedTransport, None] = {}
        self._deaths: dict[tuple[NodeId, int | None], int] = {}  # of one process, or with None of all
        self.datagrams = DatagramNet(self.reach, self.latency, self._clock)

    def listen(
        self,
        node: NodeId,
        address: str,
        port: int,
        accept: Callable[[], asyncio.BaseProtocol],
        process: int = NO_EDGE,
    ) -> None:
        """Processes that listen at one place take turns."""
        self.nodes[address] = node
        self._listeners.setdefault((address, port), {})[process] = PlayedListener(node, process, accept)

    def unlisten(self, address: str, port: int, process: int = NO_EDGE) -> None:
        """Connections that are there stay."""
        listeners = self._listeners.get((address, port), {})
        listeners.pop(process, None)
        if not listeners:
            self._listeners.pop((address, port), None)

    def listens(self, address: str, port: int) -> bool:
        return (address, port) in self._listeners

    def cut(self, one: NodeId, other: NodeId) -> None:
        self._cuts[frozenset({one, other})] = self._clock.monotonic()
        asyncio.get_running_loop().call_later(_GIVEN_UP_S, self._probe)

    def heal(self) -> None:
        self._cuts.clear()

    def reach(self, one: NodeId, other: NodeId) -> bool:
        return one not in self._dark and other not in self._dark and frozenset({one, other}) not in self._cuts

    def latency(self, one: NodeId, other: NodeId) -> float:
        """One way, in seconds."""
        if one == other:
            return _NEAR_S
        regions = {self.regions.get(one), self.regions.get(other)} - {None}
        return _FAR_S if len(regions) < 2 else _ABROAD_S

    def unheard_s(self, one: NodeId, other: NodeId) -> float:
        """How long the one has heard nothing of the other."""
        began = [self._dark.get(other), self._cuts.get(frozenset({one, other}))]
        return max((self._clock.monotonic() - at for at in began if at is not None), default=0.0)

    def _probe(self) -> None:
        """What the kernels of hosts ask each other has not been answered for long."""
        for transport in list(self._open):
            there = OUTSIDE if transport.peer is None else transport.peer.node
            if OUTSIDE not in (transport.node, there) and self.unheard_s(transport.node, there) >= _GIVEN_UP_S:
                transport.time_out()

    def power_off(self, node: NodeId) -> None:
        """All that runs there is gone, and says nothing."""
        self._dark[node] = self._clock.monotonic()
        asyncio.get_running_loop().call_later(_GIVEN_UP_S, self._probe)
        for transport in self._of(node):
            transport.vanish()
        self.datagrams.end(node)
        self._die(node, None)

    def power_on(self, node: NodeId) -> None:
        """Who still holds a connection to what ran there before is told that there is none."""
        self._dark.pop(node, None)
        for transport in [each for each in self._open if each.peer is not None and each.peer.vanished]:
            if transport.peer is not None and transport.peer.node == node:
                transport.reset_soon()

    def end_process(self, node: NodeId, process: int) -> None:
        """The kernel of a host that lives resets the connections of an edge process that died there."""
        for transport in self._of(node):
            if transport.process == process:
                transport.abort()
        self.datagrams.end(node, process)
        self._die(node, process)

    def deaths(self, node: NodeId, process: int) -> int:
        return self._deaths.get((node, process), 0) + self._deaths.get((node, None), 0)

    def expect_life(self) -> None:
        """Raises `OSError` for what a killed process does while its tasks end."""
        if LIFE.get() != self.deaths(HERE.get(), PROCESS.get()):
            raise OSError("the process is dead")

    def _die(self, node: NodeId, process: int | None) -> None:
        self._deaths[node, process] = self._deaths.get((node, process), 0) + 1

    async def connect(
        self, make: Callable[[], P], address: str, port: int, source: str = ""
    ) -> "tuple[PlayedTransport, P]":
        """From `source`, or else from the host's own address. An address with a zone, as in `fdaa:0:7::1%HOST`, is one
        that other hosts have, too. Raises `OSError`; waits for ever for a host that does not answer."""
        here = HERE.get()
        there = self.nodes.get(address)
        if there is None:
            raise OSError(f"no route to {address}")
        for _ in takewhile(lambda again: not self.reach(here, there), count()):
            await self._clock.sleep(_AGAIN_S)  # a SYN is sent again and again
        await self._clock.sleep(2 * self.latency(here, there))
        self.expect_life()
        listener = self._next_of(address, port)
        if listener is None or not self.reach(here, there):
            raise ConnectionRefusedError(f"{address}:{port} refuses")
        context = copy_context()
        context.run(HERE.set, listener.node)
        context.run(PROCESS.set, listener.process)
        context.run(LIFE.set, self.deaths(listener.node, listener.process))
        ends = (source or self.addresses[here], _DIALLED), (address.partition("%")[0], port)
        mine = PlayedTransport(self, here, PROCESS.get(), ends[0], copy_context())
        theirs = PlayedTransport(self, listener.node, listener.process, ends[1], context)
        mine.peer, theirs.peer = theirs, mine
        protocol = make()
        theirs.begin(listener.accept)
        mine.begin(lambda: protocol)
        return mine, protocol

    def opened(self, transport: "PlayedTransport") -> None:
        self._open[transport] = None

    def closed(self, transport: "PlayedTransport") -> None:
        self._open.pop(transport, None)

    def _next_of(self, address: str, port: int) -> PlayedListener | None:
        listeners = self._listeners.get((address, port))
        if listeners is None:
            return None
        process = next(iter(listeners))
        listener = listeners[process] = listeners.pop(process)  # it is the last one now
        return listener

    def _of(self, node: NodeId) -> list["PlayedTransport"]:
        return [each for each in self._open if each.node == node]


class EdgeLoop(VirtualTimeLoop):
    """Connects over `wires`."""

    def __init__(self) -> None:
        super().__init__()
        self.wires = Wires()

    async def create_connection(  # type: ignore[override]  # the edge dials by address and port, and no other way
        self, make: Callable[[], P], host: str, port: int
    ) -> "tuple[PlayedTransport, P]":
        return await self.wires.connect(make, host, port)

    async def create_unix_connection(  # type: ignore[override]  # of the same host, by path, and no other way
        self, make: Callable[[], P], path: str
    ) -> "tuple[PlayedTransport, P]":
        return await self.wires.connect(make, path, 0)

    def add_reader(  # type: ignore[override]  # a function with its arguments, as asyncio takes them
        self, fd: Any, callback: Callable[..., Any], *given: Any
    ) -> None:
        if isinstance(fd, PlayedSocket):
            fd.watch(partial(callback, *given))
        else:
            super().add_reader(fd, callback, *given)

    def remove_reader(self, fd: Any) -> bool:
        if not isinstance(fd, PlayedSocket):
            return super().remove_reader(fd)
        fd.watch(None)
        return True


class PlayedTransport(asyncio.Transport):
    """One end of a connection. What was written is in order, and on its way until the other end's reader took it."""

    def __init__(self, wires: Wires, node: NodeId, process: int, own: tuple[str, int], context: Context) -> None:
        super().__init__()
        self.node = node
        self.process = process
        self.own = own
        self.peer: PlayedTransport | None = None
        self.vanished = False
        self._wires = wires
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._protocol: Any = None
        self._arrived: deque[bytes | None] = deque()  # None: the other end has said its last
        self._sent_at = 0.0
        self._unread = 0
        self._most = _UNSENT_BYTES
        self._held = False
        self._paused = False
        self._said_last = False
        self._closed = False

    def begin(self, make: Callable[[], asyncio.BaseProtocol]) -> None:
        self._wires.opened(self)
        self._protocol = self._context.run(make)
        self._context.run(self._protocol.connection_made, self)

    # As asyncio's transport.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sockname":
            return self.own
        if name == "unheard_s":
            return 0.0 if self.peer is None else self._wires.unheard_s(self.node, self.peer.node)
        return self.peer.own if name == "peername" and self.peer is not None else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)

    def is_closing(self) -> bool:
        return self._closed

    def is_reading(self) -> bool:
        return not self._paused

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._loop.call_soon(self._read)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._most = high or _UNSENT_BYTES

    def get_write_buffer_size(self) -> int:
        return self._unread

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closed or self._said_last or not data:
            return
        self._unread += len(data)
        self._send(bytes(data))
        if self._unread > self._most and not self._held:
            self._held = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        if not (self._closed or self._said_last):
            self._said_last = True
            self._send(None)

    def close(self) -> None:
        if not self._closed:
            self.write_eof()
            self._end(None)

    def abort(self) -> None:
        if not self._closed:
            if self.peer is not None:
                self.peer.reset_soon()
            self._end(None)

    # What the wires do with it.

    def vanish(self) -> None:
        """The other end hears nothing. What served it here goes, too."""
        self.vanished = True
        self._end(None)

    def reset_soon(self) -> None:
        self._later(self._reset)

    def time_out(self) -> None:
        if not self._closed:
            self._arrived.clear()
            self._end(TimeoutError("the other host does not answer"))

    def _reset(self) -> None:
        if not self._closed:
            self._arrived.clear()
            self._end(ConnectionResetError("reset by peer"))

    def _send(self, data: bytes | None) -> None:
        peer = self.peer
        assert peer is not None, "a connection has two ends"
        self._later(lambda: self._deliver(peer, data, self._loop.time()))

    def _deliver(self, peer: "PlayedTransport", data: bytes | None, since: float) -> None:
        if not self._wires.reach(self.node, peer.node) or peer.vanished:
            if self._loop.time() - since > _GIVEN_UP_S:
                self._reset()
            elif not self.vanished:
                self._sent_at = max(self._sent_at, self._loop.time() + _AGAIN_S)
                self._loop.call_at(self._sent_at, self._deliver, peer, data, since)
            return
        if peer._closed:
            if data is not None:
                self._reset()
            return
        peer._arrived.append(data)
        peer._read()

    def _later(self, call: Callable[[], None]) -> None:
        """After what was sent before: two of one moment have no order of their own."""
        far = self._wires.latency(self.node, self.peer.node if self.peer is not None else self.node)
        self._sent_at = max(self._loop.time() + far, self._sent_at + _ORDER_S)
        self._loop.call_at(self._sent_at, call)

    def _read(self) -> None:
        while self._arrived and not self._paused and not self._closed:
            data = self._arrived.popleft()
            if data is None:
                if not self._context.run(self._protocol.eof_received):
                    self.close()
            else:
                if self.peer is not None:
                    self.peer._taken(len(data))
                self._context.run(self._protocol.data_received, data)

    def _taken(self, count: int) -> None:
        self._unread -= count
        if self._held and self._unread <= self._most // 4 and not self._closed:
            self._held = False
            self._context.run(self._protocol.resume_writing)

    def _end(self, error: Exception | None) -> None:
        self._closed = True
        self._wires.closed(self)
        self._loop.call_soon(self._context.run, self._protocol.connection_lost, error)
