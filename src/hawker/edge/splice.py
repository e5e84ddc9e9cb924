"""Raw TCP: bytes both ways between a client and a machine. One side's end is passed on and the other side goes on; a
side whose peer has much unsent is not read.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import cast

import anyio

from hawker.clock import Clock
from hawker.edge.app_figures import AppFigures
from hawker.edge.dialing import Dialer, Joined
from hawker.edge.refusal import ProxyError
from hawker.edge.routes import Door, Routes
from hawker.edge.steering import Aim
from hawker.edge.visits import Counters, Spawn, Visits
from hawker.edge.writing import TcpEnds, proxy_head
from hawker.fair.connections import ConnectionTable
from hawker.feed import EdgeLogLine
from hawker.http.untaken import Untaken
from hawker.ids import AppName, new_ulid

UNSENT_MAX = 256 << 10
"""Bytes that may wait for one side before the other side is not read any more."""
ROOM_AT = UNSENT_MAX // 4
"""Bytes that may be left when a transport says that there is room again: what asyncio and uvloop choose."""
_LOOK_S = 31.0  # `Untaken` looks anew then
_LINGER_NOTHING = struct.pack("ii", 1, 0)
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 30), (socket.TCP_KEEPCNT, 4))
_HOP_PROBES = ((socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 6), (socket.TCP_USER_TIMEOUT, 10_000))
_TCP_INFO_BYTES = 60
_HEARD_AT = struct.Struct("=52xII")  # of `tcp_info`: milliseconds since data came, and since anything was acknowledged


class Side(asyncio.Protocol):
    """One end of a spliced connection. Bytes that come before it is joined wait in `early`, which has a bound."""

    def __init__(
        self, lost: Callable[[], None] | None = None, heard: Callable[[int], None] = lambda size: None
    ) -> None:
        """`heard` is called with the number of bytes that come."""
        self.transport: asyncio.Transport | None = None
        self.peer: Side | None = None
        self.early = bytearray()
        self.heard = heard
        self._ended = False
        self._lost = lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(UNSENT_MAX)
        watch_peer(self.transport)

    def data_received(self, data: bytes) -> None:
        self.heard(len(data))
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.write(data)
            return
        self.early += data
        if len(self.early) >= UNSENT_MAX and self.transport is not None:
            self.transport.pause_reading()

    def begin(self, early: bytes) -> None:
        """Take the bytes that came before this side was made."""
        self.early += early
        self.heard(len(early))

    def eof_received(self) -> bool:
        """Pass the end on. The other direction goes on, until it ends, too."""
        self._ended = True
        if self.peer is not None:
            self._pass_end(self.peer)
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self.peer is not None and self.peer.transport is not None:
            if error is None:
                self.peer.transport.close()
            else:
                reset(self.peer.transport)
        self.peer = None
        if self._lost is not None:
            self._lost()

    def pause_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def join(self, peer: "Side") -> None:
        """Join two sides: bytes that come at one go to the other from now on, both ways."""
        self.peer, peer.peer = peer, self
        for side, other in ((self, peer), (peer, self)):
            if other.transport is None:
                side.give_up()
                continue
            if side.early:
                data, side.early = bytes(side.early), bytearray()
                other.transport.write(data)
            if side.transport is not None:
                side.transport.resume_reading()
            if side._ended:
                side._pass_end(other)

    def when_lost(self, lost: Callable[[], None]) -> None:
        """Call `lost` when the connection is lost; now, if it is."""
        self._lost = lost
        if self.transport is None:
            lost()

    @property
    def reusable(self) -> bool:
        """Whether the side can be joined again: no bytes came that nobody has heard, nor its end, and all that was
        written has gone."""
        open_still = self.transport is not None and not self.transport.is_closing()
        return open_still and not (self.unsent or self._ended or self.early)

    @property
    def unsent(self) -> int:
        """Bytes that wait for the other end to read."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def rest(self) -> None:
        """Part from the other side, and be joined with none."""
        self.peer = self._lost = None
        if self.transport is not None:
            self.transport.resume_reading()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def give_up(self) -> None:
        if self.transport is not None:
            reset(self.transport)

    def _pass_end(self, peer: "Side") -> None:
        if peer.transport is None or peer.transport.is_closing():
            return
        if peer._ended:
            peer.transport.close()
            if self.transport is not None:
                self.transport.close()
        else:
            peer.transport.write_eof()


async def pass_both_ways(
    client: tuple[asyncio.Transport, bytes],
    server: tuple[asyncio.Transport, bytes],
    received: Callable[[int], None],
    sent: Callable[[int], None],
) -> None:
    """Splice two connections that had another protocol, with the bytes that came of each: until the client's is lost,
    then both are closed. `received` and `sent` are called with the number of bytes that come of the client and of the
    machine. A client whose kernel has sent nothing for a minute, though bytes are on their way to it, is lost."""
    over = asyncio.Event()
    sides = Side(over.set, received), Side(heard=sent)
    for side, (_, early) in zip(sides, (client, server), strict=True):
        side.begin(early)
    for side, (end, _) in zip(sides, (client, server), strict=True):
        side.transport = end
        end.set_protocol(side)
    sides[0].join(sides[1])
    try:
        untaken, now = Untaken(), asyncio.get_running_loop().time
        while not over.is_set():
            with anyio.move_on_after(_LOOK_S):
                await over.wait()
            if sides[0].transport is not None and untaken.is_gone(sides[0].transport, now()):
                sides[0].give_up()  # else TCP tries for a quarter of an hour
    finally:
        for side in sides:
            if side.transport is not None:
                side.transport.close()


def watch_peer(transport: asyncio.BaseTransport) -> None:
    """Watch the other end of a connection that we opened, as `watch_socket` does. An accepted connection has the
    options of its listener."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):  # it has ended already
            watch_socket(connection)


def watch_socket(connection: socket.socket) -> None:
    """Let TCP find out in two and a half minutes that the other end is gone, and hold back no small writes. A
    listener's options are those of each connection that it accepts."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def probe_host(transport: asyncio.BaseTransport, idle_s: int) -> None:
    """Probe the host at the other end of a connection between hosts: after `idle_s` seconds of silence its kernel is
    asked each second, and after six probes that it does not answer the connection has ended. Sent bytes have ten
    seconds to be acknowledged."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):  # it has ended already
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in ((socket.TCP_KEEPIDLE, idle_s), *_HOP_PROBES):
                connection.setsockopt(socket.IPPROTO_TCP, option, value)


def unheard_s(transport: asyncio.BaseTransport) -> float:
    """Seconds for which the other host's kernel has sent nothing, not even an acknowledgement: how busy a process is
    there, or here, says nothing of it."""
    connection = transport.get_extra_info("socket")
    if connection is None:  # of a simulated network, which knows
        return float(transport.get_extra_info("unheard_s", 0.0))
    try:
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return 0.0
    return 0.001 * min(_HEARD_AT.unpack(told)) if len(told) == _TCP_INFO_BYTES else 0.0


def reset(transport: asyncio.Transport) -> None:
    """End a connection so that the other end sees that something went wrong: RST, not FIN."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOTHING)
    transport.abort()


def address_of(transport: asyncio.BaseTransport, which: str) -> str:
    """The IP address of one end of the connection: `which` is peername or sockname. Empty when it is gone."""
    found = transport.get_extra_info(which)
    return str(found[0]).removeprefix("::ffff:") if found else ""


def ends_of(transport: asyncio.BaseTransport) -> TcpEnds:
    """Both ends of a client's connection."""
    peer, own = (transport.get_extra_info(which) or ("", 0) for which in ("peername", "sockname"))
    return TcpEnds(address_of(transport, "peername"), int(peer[1]), address_of(transport, "sockname"), int(own[1]))


# Raw connections of clients, from the accept to the splice with a machine.


class RawConnections:
    """The raw connections of clients, for one event loop."""

    def __init__(
        self,
        routes: Routes,
        visits: Visits,
        dialer: Dialer,
        spawn: Spawn,
        clock: Clock,
        counters: Counters,
        figures: AppFigures,
        table: ConnectionTable,
        say: Callable[[EdgeLogLine], None],
    ) -> None:
        self._table = table
        self._say = say
        self._routes = routes
        self._visits = visits
        self._dialer = dialer
        self._spawn = spawn
        self._clock = clock
        self._counters = counters
        self._figures = figures

    def accept(self, door: Door, app: AppName | None = None) -> asyncio.Protocol:
        """The protocol of a new connection for the app that TLS has named; without one, for the first app at the
        door."""
        return _Client(self, door, app)

    def begin(self, client: "_Client", door: Door, app: AppName | None) -> None:
        """Serve a client, or reset its connection when there is no room."""
        if client.transport is not None and self._table.admit(client, address_of(client.transport, "peername")):
            self._spawn(self._serve, client, door, app)
        else:
            client.give_up()

    def end(self, client: "_Client") -> None:
        self._table.release(client)

    async def _serve(self, client: "_Client", door: Door, named: AppName | None) -> None:
        try:
            await self._carry(client, door, named)
        except Exception:
            client.give_up()  # a mistake of ours, and nobody else would end it
            raise

    async def _carry(self, client: "_Client", door: Door, named: AppName | None) -> None:
        """Counted in the machine until both ends are done."""
        self._table.work(client)
        app, began = named or self._routes.first_app(door), self._clock.monotonic()
        self._counters.add("tcp_connects")
        if app is None:
            client.give_up()
            return
        figures, over = self._figures, asyncio.Event()
        figures.connected(app)
        try:
            await self._join(client, Aim(door, app), began, over)
        finally:
            figures.disconnected(app)

    async def _join(self, client: "_Client", aim: Aim, began: float, over: asyncio.Event) -> None:
        app, figures = aim.app, self._figures
        client.known_as(partial(figures.received, app))
        sent = partial(figures.sent, app)
        try:
            joined = await self._dialer.reach(aim, began, lambda _: Side(over.set, sent), lasting=True)
        except ProxyError as error:
            self._counters.add(f"errors_{error.code.name}", app=app)
            self._say(EdgeLogLine(app=app, code=error.code.name, text=error.whole))
            client.give_up()
            return
        figures.machine_connected(joined.visit.target.machine)
        try:
            joined.visit.last()
            self._introduce(client, joined)
            client.join(joined.protocol)
            await over.wait()
        except Exception:
            joined.protocol.give_up()
            raise
        finally:
            figures.machine_disconnected(joined.visit.target.machine)
            self._visits.end(joined.visit)

    def _introduce(self, client: "_Client", joined: Joined[Side]) -> None:
        """The machine's own config says whether it is told who comes: it is before the client's first byte."""
        machine = joined.protocol.transport
        if client.transport is not None and machine is not None:
            head = proxy_head(joined.visit.target.port, ends_of(client.transport), new_ulid(self._clock))
            if head:
                machine.write(head)


class _Client(Side):
    """Keeps `Closable`."""

    def __init__(self, connections: RawConnections, door: Door, app: AppName | None) -> None:
        super().__init__()
        self._connections = connections
        self._door = door
        self._app = app

    def known_as(self, heard: Callable[[int], None]) -> None:
        """Whose bytes they are is known now; some have come."""
        self.heard = heard
        heard(len(self.early))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.begin(self, self._door, self._app)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.end(self)
        super().connection_lost(error)
