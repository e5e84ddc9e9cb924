"""Where the edges of other hosts come in: the gate's end of a hop. What a stranger holds before it has shown a
certificate of the cluster, and asked, is bounded in bytes and time.
"""

import asyncio
import socket
from functools import partial

import anyio
import msgspec

from hawker.clock import Clock
from hawker.edge.dialing import Dialer
from hawker.edge.hops import Handshake, HopAnswer, HopQuestion, NodeIdentity, cut_frame, hop_frame
from hawker.edge.refusal import ProxyError
from hawker.edge.splice import Side, address_of, reset
from hawker.edge.visits import WAKE_TIMEOUT_S, Counters, Spawn, Visits
from hawker.fair.connections import ConnectionTable
from hawker.feed import GatePlace
from hawker.log import bind

ASK_S = 10.0
"""A stranger has so long to ask."""
_BACKLOG = 4096
_BIND_AGAIN_S = 5.0
_log = bind("hawker.edge")


class _Guest(Side):
    """An edge of another host. Keeps `Closable`."""

    def __init__(self, door: "HopDoor") -> None:
        super().__init__()
        self._door = door
        self.scope = anyio.CancelScope()
        self.handshake: Handshake | None = None
        self._asked = False
        self.inside = False
        self._late = asyncio.get_running_loop().call_later(ASK_S, self.give_up)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._asked or self.transport is None:
            return
        try:
            found = cut_frame(self.early)
            if found is None:
                return
            question = msgspec.msgpack.decode(found, type=HopQuestion)
        except (ValueError, msgspec.DecodeError):
            self.give_up()
            return
        self._asked = True
        self._late.cancel()
        self._door.begin(self, question)

    def eof_received(self) -> bool:
        """Who says its last before it is let in has left."""
        if self.inside:
            return super().eof_received()
        self.give_up()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._late.cancel()
        self.scope.cancel()
        self._door.release(self)
        super().connection_lost(error)

    def give_up(self) -> None:
        if self.transport is not None:
            reset(self.transport)
        elif self.handshake is not None:
            self.handshake.abort()


class _GuestHandshake(Handshake):
    """There is room for it, or it is closed."""

    def __init__(self, door: "HopDoor", guest: _Guest) -> None:
        super().__init__(door.identity.server(), guest)
        self._door = door
        self._guest = guest
        guest.handshake = self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._door.table.admit(self._guest, address_of(transport, "peername")):
            self.abort()


class HopDoor:
    """For one event loop."""

    def __init__(
        self,
        identity: NodeIdentity,
        visits: Visits,
        dialer: Dialer,
        spawn: Spawn,
        clock: Clock,
        counters: Counters,
        table: ConnectionTable,
    ) -> None:
        self.identity = identity
        self.table = table
        self._visits = visits
        self._dialer = dialer
        self._spawn = spawn
        self._clock = clock
        self._counters = counters
        self._place: GatePlace | None = None
        self._moved = asyncio.Event()

    def move(self, place: GatePlace | None) -> None:
        """Where to answer from now on."""
        if place != self._place:
            self._place = place
            self._moved.set()

    async def serve(self) -> None:
        """Until cancelled."""
        while True:
            self._moved.clear()
            place = self._place
            if place is None:
                await self._moved.wait()
                continue
            try:
                server = await asyncio.get_running_loop().create_server(self._accept, sock=_bound(place))
            except OSError as error:
                _log.error(
                    "other hosts cannot come in", extra={"at": f"{place.host}:{place.port}", "error": str(error)}
                )
                await self._clock.sleep(_BIND_AGAIN_S)
                continue
            try:
                await self._moved.wait()
            finally:
                server.close()

    def begin(self, guest: _Guest, question: HopQuestion) -> None:
        self.table.work(guest)
        self._spawn(self._carry, guest, question)

    def release(self, guest: _Guest) -> None:
        self.table.release(guest)

    def _accept(self) -> asyncio.Protocol:
        """Nobody is let in before the worker has said who this node is."""
        try:
            return _GuestHandshake(self, _Guest(self))
        except OSError as error:
            _log.error("this node has no certificate", extra={"error": str(error)})
            return _Closed()

    async def _carry(self, guest: _Guest, question: HopQuestion) -> None:
        with guest.scope:
            try:
                await self._let_in(guest, question)
            except ProxyError as error:
                self._counters.add(f"hops_refused_{error.code.name}")
                self._answer(
                    guest, HopAnswer(let_in=False, code=error.code.name, why=(error.known or error.told)[:1000])
                )
                if guest.transport is not None:
                    guest.transport.close()
            except Exception:
                guest.give_up()
                raise

    async def _let_in(self, guest: _Guest, question: HopQuestion) -> None:
        """Counted in the machine until both ends are done. Raises `ProxyError`."""
        hold_s = min(max(question.hold_s, 0.0), WAKE_TIMEOUT_S)
        began, over = self._clock.monotonic() - WAKE_TIMEOUT_S + hold_s, asyncio.Event()
        visit = await self._visits.admit(question.app, question.machine, question.service, began, hold=hold_s > 0)
        try:
            side = await self._dialer.dial(visit, began, partial(Side, over.set))
            if guest.transport is None:
                side.give_up()
                return
            if question.lasting:
                visit.last()
            self._counters.add("hops")
            guest.inside = True
            self._answer(guest, HopAnswer(let_in=True))
            guest.join(side)
            with anyio.CancelScope(shield=True):  # the guest's end is passed on by its side
                await over.wait()
        finally:
            self._visits.end(visit)

    def _answer(self, guest: _Guest, answer: HopAnswer) -> None:
        if guest.transport is not None:
            guest.transport.write(hop_frame(answer))


class _Closed(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _bound(place: GatePlace) -> socket.socket:
    """Raises `OSError`."""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((place.host, place.port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
