"""Where the edges of other hosts come in: the gate's end of a hop. What a stranger holds before it has shown a
certificate of the cluster, and asked, is bounded in bytes and time.
"""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from typing import TypeVar, cast

import anyio
from msgspec.structs import replace

from hawker.clock import Clock
from hawker.edge.datagram_hops import DatagramGate
from hawker.edge.dialing import Dialer
from hawker.edge.hop_frames import HopAnswer, HopFrame, HopQuestion, read_word
from hawker.edge.hop_line import HeardOut, HopLine
from hawker.edge.hops import MOST_TRIES
from hawker.edge.machine_connection import MachinePool
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.routes import Door
from hawker.edge.splice import Side, address_of
from hawker.edge.steering import Aim, Steering
from hawker.edge.visits import WAKE_TIMEOUT_S, Counters, Spawn, Visit, Visits
from hawker.fair.connections import ConnectionTable, key_of
from hawker.feed import GatePlace
from hawker.http.mutual_tls import Handshake, MutualTls
from hawker.ids import MachineId
from hawker.log import bind
from hawker.token_bucket import Allowance, TokenBuckets

P = TypeVar("P", bound=asyncio.BaseProtocol)

ASK_S, REST_S = 10.0, 60.0
"""Seconds that a stranger has to ask, and that a host that was answered has to ask again."""
NEIGHBOR_S = 3600.0
"""Seconds that another process of this host has to ask. It is as free as we are: its connection ends when it does."""
NEWCOMERS = Allowance(100.0, 500.0)
"""Connections of one IPv4 address, or /64 of IPv6: 100 a second, and 500 at once. Hosts of a cluster are often of one
network, and a stranger in it must not keep the others out."""
_BACKLOG = 4096
_BIND_AGAIN_S = 5.0
_LET_READ_S = 10.0
_WHY_CHARS = 1000
_log = bind("hawker.edge")


class _Guest(Side, HeardOut):
    """One conversation of another host's edge with a machine. `kept` gets the machine's connection when that may be
    used again; one that has yet to read ends once it has, or reads no more, and with it its visit. Keeps `HeardOut`."""

    def __init__(self, kept: Callable[[Side], None]) -> None:
        super().__init__()
        self._kept = kept

    def heard_out(self) -> None:
        side, self.peer, self.transport = self.peer, None, None
        if side is not None:
            side.peer = None
            self._kept(side)

    def connection_lost(self, error: Exception | None) -> None:
        side = self.peer
        super().connection_lost(error)
        if side is not None:
            _let_read(side)


def _let_read(side: Side) -> None:
    """Until the machine has read all, as long as it reads."""
    unsent, later = side.unsent, asyncio.get_running_loop().call_later
    if unsent:
        later(_LET_READ_S, lambda: _let_read(side) if side.unsent < unsent else side.give_up())


class _Host:
    """A connection of another host's edge. Keeps `Closable`."""

    def __init__(self, door: "HopDoor", *, beside: bool = False) -> None:
        self._door = door
        self.beside = beside  # of this host
        self.address = ""
        self.line = HopLine(self._hear, self._rest, self._lose)
        self.handshake: Handshake | None = None
        self.scope: anyio.CancelScope | None = None  # of the task that asks for the machine
        self._asked = False
        self.lasting = False  # what goes over it now has no end of its own
        self._loop = asyncio.get_running_loop()
        asks_within_s = NEIGHBOR_S if beside else ASK_S
        self._deadline = self._loop.time() + asks_within_s
        self._late = self._loop.call_later(asks_within_s, self._look)

    def give_up(self) -> None:
        if self.line.transport is not None:
            self.line.give_up()
        elif self.handshake is not None:
            self.handshake.abort()

    def refuse(self, error: ProxyError) -> None:
        answer = HopAnswer(let_in=False, code=error.code.name, why=(error.known or error.told)[:_WHY_CHARS])
        self.line.say(HopFrame.ANSWER, answer)
        self._rest()

    def let_in(self, protocol: P, answer: HopAnswer, *, soon: bool = False) -> P:
        """With `soon` the answer may go with what the machine says first."""
        self.scope = None
        self.line.say(HopFrame.ANSWER, answer, soon=soon)
        return self.line.open(protocol)

    def _hear(self, kind: HopFrame, data: bytes) -> None:
        try:
            question = read_word(data, HopQuestion)
        except ValueError:
            self.line.give_up()
            return
        if kind is not HopFrame.QUESTION or self._asked:
            self.line.give_up()
            return
        self._asked, self._deadline = True, inf
        self._door.begin(self, question)

    def _rest(self) -> None:
        """It may ask again."""
        self._asked, self.lasting = False, False
        self._deadline = self._loop.time() + (NEIGHBOR_S if self.beside else REST_S)
        self._door.rest(self)

    def _lose(self, error: Exception) -> None:
        self._late.cancel()
        if self.scope is not None:
            self.scope.cancel()
        self._door.lose(self)

    def _look(self) -> None:
        """One timer for all of its rests."""
        left_s = min(self._deadline - self._loop.time(), REST_S)
        if left_s > 0:
            self._late = self._loop.call_later(left_s, self._look)
        else:
            self.give_up()


class _HostHandshake(Handshake):
    """There is room for it, or it is closed."""

    def __init__(self, door: "HopDoor", host: _Host) -> None:
        super().__init__(door.identity.server(), host.line)
        self._door = door
        self._host = host
        host.handshake = self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        address = self._host.address = address_of(transport, "peername")
        if not (self._door.may_begin(address) and self._door.table.admit(self._host, address)):
            self.abort()


class _Neighbor(asyncio.Protocol):
    """A connection of another process of this host, in the clear: nobody else enters the folder."""

    def __init__(self, door: "HopDoor") -> None:
        self._door = door
        self._host = _Host(door, beside=True)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raw = cast(asyncio.Transport, transport)
        raw.set_protocol(self._host.line)
        self._host.line.connection_made(raw)
        self._door.neighbors.add(self._host)
        if not self._door.table.admit(self._host, ""):
            self._host.give_up()


class HopDoor:
    """The door at which edges of other hosts, and other processes of this host, ask the gates of this process. For one
    event loop."""

    def __init__(
        self,
        identity: MutualTls,
        visits: Visits,
        dialer: Dialer,
        spawn: Spawn,
        clock: Clock,
        counters: Counters,
        table: ConnectionTable,
        datagrams: DatagramGate,
        pool: MachinePool[Side],
    ) -> None:
        self.identity = identity
        self.table = table
        self._pool = pool
        self._visits = visits
        self._dialer = dialer
        self._datagrams = datagrams
        self._spawn = spawn
        self._clock = clock
        self._counters = counters
        self._newcomers = TokenBuckets(NEWCOMERS)
        self._place: GatePlace | None = None
        self._moved = asyncio.Event()
        self._closed = False
        self._busy: set[_Host] = set()
        self.neighbors: set[_Host] = set()  # connections of other processes of this host
        self._door_for_neighbors: asyncio.Server | None = None
        self._together = False

    def move(self, place: GatePlace | None) -> None:
        """Answer at this place from now on; None: nowhere."""
        if place != self._place:
            self._place = place
            self._moved.set()

    async def serve(self) -> None:
        """Accept connections of other hosts until cancelled."""
        while True:
            self._moved.clear()
            place = self._place
            if place is None or self._closed:
                await self._moved.wait()
                continue
            try:
                server = await asyncio.get_running_loop().create_server(self.accept, sock=_bound(place))
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

    def close(self, *, together: bool = False) -> None:
        """Let no new requests in, since the process goes; visits in machines may stay. When all processes of the host
        go `together`, each lets in for the others until they have no request any more."""
        self._closed, self._together = True, together
        self._moved.set()
        self._datagrams.close()

    @property
    def neighbors_come(self) -> bool:
        """Whether other processes of this host may still ask, or are still heard."""
        return any(not each.lasting for each in self.neighbors)

    def end(self, *, stays: bool = False) -> None:
        """End all conversations. With `stays` this process goes on beside the next one, and so do conversations that
        came by another process of the host, which does the same."""
        self._together = False
        if self._door_for_neighbors is not None:
            self._door_for_neighbors.close()
        for host in list(self._busy):
            if not (stays and host.beside):
                host.give_up()

    async def serve_neighbors(self, place: Path) -> None:
        """Let the other processes of this host in, at this socket."""
        await anyio.Path(place).unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        self._door_for_neighbors = await loop.create_unix_server(self.accept_neighbor, place, backlog=_BACKLOG)

    def accept_neighbor(self) -> asyncio.Protocol:
        return _Neighbor(self)

    def may_begin(self, address: str) -> bool:
        """Whether a stranger at this address may begin a handshake: beyond `NEWCOMERS` it gets no more of this
        process's time. Edges keep their connections."""
        if self._newcomers.take(key_of(address).encode(), self._clock.monotonic()):
            return True
        self._counters.add("hops_too_many")
        return False

    def sweep(self) -> None:
        """To be called ten times a second: send the answers that wait to go with the first bytes of their machines."""
        for host in self._busy:
            host.line.flush()

    def begin(self, host: _Host, question: HopQuestion) -> None:
        """Serve the question that this host has asked."""
        self.table.work(host)
        self._busy.add(host)
        if question.first and not self._refuses(host) and self._enters_at_once(host, question):
            return
        host.scope = anyio.CancelScope()
        self._spawn(self._carry, host, question, host.scope)

    def _enters_at_once(self, host: _Host, question: HopQuestion) -> bool:
        """Into a machine that has room, over a connection that rests."""
        visit = self._visits.admit_now(question.app, question.machine, question.service)
        if visit is None:
            return False
        side = self._pool.take(visit.target, host.address)
        if side is None:
            self._visits.end(visit)
            return False
        self._join(host, question, visit, side, rested=True)
        return True

    def rest(self, host: _Host) -> None:
        self._busy.discard(host)
        self.table.rest(host)

    def lose(self, host: _Host) -> None:
        self._busy.discard(host)
        self.neighbors.discard(host)
        self.table.release(host)

    def _refuses(self, host: _Host) -> bool:
        return self._closed and not (self._together and host.beside)

    def accept(self) -> asyncio.Protocol:
        """The protocol of a new connection. No connection is let in before the worker has said who this node is."""
        try:
            return _HostHandshake(self, _Host(self))
        except OSError as error:
            _log.error("this node has no certificate", extra={"error": str(error)})
            return _Closed()

    async def _carry(self, host: _Host, question: HopQuestion, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                if self._refuses(host):
                    raise ProxyError(Code.PR01, known="the edge of the machine's host is being replaced")
                await self._let_in(host, question)
            except ProxyError as error:
                self._counters.add(f"hops_refused_{error.code.name}")
                host.refuse(error)
            except Exception:
                host.give_up()
                raise

    async def _let_in(self, host: _Host, question: HopQuestion) -> None:
        """Raises `ProxyError`."""
        if question.datagrams:
            host.let_in(self._datagrams.open(), HopAnswer(let_in=True))
            return
        hold_s = min(question.hold_s, WAKE_TIMEOUT_S) if question.hold_s > 0 else 0.0
        began = self._clock.monotonic() - WAKE_TIMEOUT_S + hold_s
        visit, side = await self._enter(question, began, hold=hold_s > 0)
        self._join(host, question, visit, side)

    def _join(self, host: _Host, question: HopQuestion, visit: Visit, side: Side, *, rested: bool = False) -> None:
        """Counted in the machine until its connection has ended, or is kept for the next one."""
        end = partial(self._visits.end, visit)
        if question.lasting:
            visit.last()
            host.lasting = True
        self._counters.add("hops")
        chosen = visit.target.machine.id if question.port else None
        answer = HopAnswer(let_in=True, machine=chosen, keeps=True, rested=rested)
        guest = _Guest(partial(self._keep, host.address, visit))
        host.let_in(guest, answer, soon=bool(question.first)).join(side)
        if question.first and side.transport is not None:
            side.transport.write(question.first)
        side.when_lost(end)

    def _keep(self, address: str, visit: Visit, side: Side) -> None:
        """The conversation is over, and the machine's connection is as good as new."""
        if visit.target.is_near and side.reusable:
            side.rest()
            self._pool.keep(visit.target, side, address)
            self._visits.end(visit)
        else:
            side.close()

    async def _enter(self, question: HopQuestion, began: float, *, hold: bool) -> tuple[Visit, Side]:
        """Of an edge of another region, into the machine that this host chooses. It names one in each question of its
        own, and who is asked so asks nobody else: so no request goes round. Raises `ProxyError`."""
        aim, tries, cause = _aim_of(question), MOST_TRIES if question.port else 1, None
        while True:
            try:
                if question.port:
                    visit = await self._visits.admit_from_afar(aim, question.spoken, began)
                else:
                    machine, number = question.machine, question.service
                    visit = await self._visits.admit(question.app, machine, number, began, hold=hold)
            except ProxyError as error:
                raise cause or error from error
            try:
                lasting = question.lasting and not visit.target.is_near
                return visit, await self._dialer.dial(visit, began, lambda _: Side(), lasting=lasting)
            except ProxyError as error:
                self._visits.end(visit)
                cause, tries = error, tries - 1
                if not tries:
                    raise
                aim = replace(aim, steering=aim.steering.without(visit.target.machine.id))
            except BaseException:
                self._visits.end(visit)
                raise


def _aim_of(question: HopQuestion) -> Aim:
    steering = Steering(
        force=MachineId(question.force) if question.force else None,
        prefer=MachineId(question.prefer) if question.prefer else None,
        apart=frozenset(question.apart),
    )
    return Aim(Door("", question.port), question.app, steering, inside=question.inside)


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
