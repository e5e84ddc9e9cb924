"""Flows of datagrams from the edge of one host into machines of another. All of them go over one conversation between
the two edges, and each asks the machine's gate by itself: so each is counted, held and refused there as a connection
is, and thousands of them cost no more handshakes than one.

A frame is a kind, the flow's number, a length and so many bytes. What the line has no room for is dropped, as networks
do; a datagram that is lost is nobody's error.
"""

import asyncio
import ssl
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from typing import ClassVar, cast

import anyio
import msgspec

from hawker.clock import Clock
from hawker.edge.hop_frames import HopAnswer, read_word
from hawker.edge.hops import (
    ANSWER_S,
    FREE_S,
    LATE_S,
    MOST_TRIES,
    HopDialer,
    chosen_in,
    hold_s_of,
    refused,
    unreached,
)
from hawker.edge.machine_socket import FlowListener, MachineEnd, MachineSocket
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.routes import Door, Routes
from hawker.edge.steering import Aim, Steering
from hawker.edge.visits import WAKE_TIMEOUT_S, Counters, Spawn, Visit, Visits
from hawker.fair.occupancy import Occupancy
from hawker.fair.table import EDGE_FLOWS
from hawker.feed import EdgeLogLine, GatePlace
from hawker.ids import AppName, MachineId
from hawker.keyed_locks import KeyedLocks

_HEAD = struct.Struct(">BIH")
_MOST_UNSENT_BYTES = 1 << 20
"""The most unsent bytes of one line to another host. A datagram that comes then is dropped."""
_WHY_CHARS = 1000
_MOST_NUMBERS = 1 << 32


class FlowFrame(IntEnum):
    ASK = 1
    ANSWER = 2
    DATA = 3
    END = 4


class FlowQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question for a gate: whether a flow may enter this service of this machine. `hold_s`: so many seconds may the
    gate hold the flow and start the machine; 0 is now or not at all."""

    app: AppName
    machine: MachineId
    service: int
    """The service's place in the machine's config, from 0."""
    hold_s: float = 0.0
    port: int = 0
    """The app's port, as in `HopQuestion`: the flow comes from another region, for any machine that the asked host
    chooses; 0 otherwise."""


class _FlowLine(asyncio.Protocol, ABC):
    """One end of a conversation of many flows."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= _HEAD.size and self._transport is not None:
            kind, number, length = _HEAD.unpack_from(self._buffer, start)
            end = start + _HEAD.size + length
            if len(self._buffer) < end:
                break
            content, start = bytes(self._buffer[end - length : end]), end
            try:
                self._hear(FlowFrame(kind), number, content)
            except ValueError:  # it is no edge that speaks
                self._transport.abort()
        del self._buffer[:start]

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def say(self, kind: FlowFrame, number: int, content: bytes = b"") -> bool:
        """Whether it was sent: of data there may be too much."""
        transport = self._transport
        if transport is None or (kind is FlowFrame.DATA and transport.get_write_buffer_size() > _MOST_UNSENT_BYTES):
            return False
        transport.write(_HEAD.pack(kind, number, len(content)) + content)
        return True

    @abstractmethod
    def _hear(self, kind: FlowFrame, number: int, content: bytes) -> None:
        """Raises `ValueError`."""


class _FarEnd:
    """Of one flow, as the edge of its client has it. Keeps `MachineEnd`."""

    def __init__(self, line: "_Asking", number: int, listener: FlowListener) -> None:
        self.listener = listener
        self.answer: asyncio.Future[HopAnswer] = asyncio.get_running_loop().create_future()
        self._line = line
        self._number = number

    def send(self, data: bytes) -> bool:
        return self._line.say(FlowFrame.DATA, self._number, data)

    def close(self) -> None:
        self._line.forget(self._number)


class _Asking(_FlowLine):
    """The end of the clients' edge."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self._ends: dict[int, _FarEnd] = {}
        self._last = 0
        self.free_since = now()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_free(self) -> bool:
        return not self._ends

    async def ask(self, question: FlowQuestion, within_s: float, listener: FlowListener) -> tuple[_FarEnd, HopAnswer]:
        """Raises `OSError`."""
        self._last = (self._last + 1) % _MOST_NUMBERS
        end = self._ends[self._last] = _FarEnd(self, self._last, listener)
        try:
            if not self.say(FlowFrame.ASK, self._last, msgspec.msgpack.encode(question)):
                raise ConnectionResetError("the other edge has closed the connection")
            answer = await asyncio.wait_for(end.answer, within_s)
        except BaseException:
            end.close()
            raise
        if not answer.let_in:
            end.close()
        return end, answer

    def forget(self, number: int) -> None:
        if self._ends.pop(number, None) is not None:
            self.say(FlowFrame.END, number)
            self.free_since = self._now()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        for end in list(self._ends.values()):
            self._lose(end, error or ConnectionResetError("the other edge has closed the connection"))

    def _hear(self, kind: FlowFrame, number: int, content: bytes) -> None:
        end = self._ends.get(number)
        if kind is FlowFrame.ASK:
            raise ValueError("a gate asks nobody")
        if end is None:
            return  # it has ended here meanwhile
        if kind is FlowFrame.ANSWER:
            if end.answer.done():
                raise ValueError("it was answered")
            end.answer.set_result(read_word(content, HopAnswer))
        elif kind is FlowFrame.DATA:
            end.listener.hear(content)
        else:
            self._ends.pop(number, None)
            self._lose(end, ConnectionResetError("the gate has ended it"))

    @staticmethod
    def _lose(end: _FarEnd, error: Exception) -> None:
        if end.answer.done():
            end.listener.lose(None)
        else:
            end.answer.set_exception(error)


def _question_of(visit: Visit, hold_s: float) -> FlowQuestion:
    """Of another region no machine is named."""
    machine, aim = visit.target.machine, visit.aim
    if machine.region and aim is not None:
        return FlowQuestion(app=machine.app, machine=MachineId(""), service=0, hold_s=hold_s, port=aim.door.port)
    return FlowQuestion(app=machine.app, machine=machine.id, service=visit.target.number, hold_s=hold_s)


class DatagramHops:
    """Leads flows to machines of other hosts. Keeps `FarFlows`. For one event loop."""

    def __init__(self, dialer: HopDialer, clock: Clock) -> None:
        self._dialer = dialer
        self._now = clock.monotonic
        self._lines: dict[GatePlace, _Asking] = {}
        self._making = KeyedLocks[GatePlace]()

    async def open(self, visit: Visit, began: float, listener: FlowListener) -> _FarEnd:
        """Open the way of a flow to the visit's machine. Raises `ProxyError`; the gate is avoided for a while."""
        gate, target, place = visit.gate, visit.target, visit.target.machine.gate
        assert place is not None, "a machine of this host has its gate here"
        hold_s = hold_s_of(visit, began, self._now())
        question = _question_of(visit, hold_s)
        try:
            line = await self._line(place)
            end, answer = await line.ask(question, hold_s + LATE_S if hold_s else ANSWER_S, listener)
        except (OSError, ssl.SSLError) as error:  # a timeout, too
            raise unreached(gate, target, place, error, self._now()) from error
        if not answer.let_in:
            raise refused(gate, answer, self._now())
        gate.answered(target.number)
        visit.machine = chosen_in(answer)
        return end

    def sweep(self) -> None:
        """Close lines that no flow has used for long."""
        oldest = self._now() - FREE_S
        for place, line in list(self._lines.items()):
            if not line.is_open or (line.is_free and line.free_since < oldest):
                del self._lines[place]
                line.close()

    def close(self) -> None:
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    async def _line(self, place: GatePlace) -> _Asking:
        """Raises `OSError`."""
        async with self._making.hold(place):
            line = self._lines.get(place)
            if line is None or not line.is_open:
                line = self._lines[place] = await self._dialer.dial_edge(place, lambda: _Asking(self._now))
            line.free_since = self._now()
            return line


class _Guest:
    """One flow of another host's edge in a machine of this one. Keeps `FlowListener`."""

    def __init__(self, line: "AskedLine", number: int, app: AppName, org: str) -> None:
        self.number, self.app, self.org = number, app, org
        self.scope = anyio.CancelScope()
        self.visit: Visit | None = None
        self.machine: MachineEnd | None = None
        self._line = line

    def hear(self, data: bytes) -> None:
        self._line.say(FlowFrame.DATA, self.number, data)

    def lose(self, why: ProxyError | None) -> None:
        self._line.end(self, why)

    @property
    def goes_on(self) -> bool:
        """Whether the machine that it leads to is still the one; a third host's gate says so when it is not."""
        return not isinstance(self.machine, MachineSocket) or self.machine.goes_on


class AskedLine(_FlowLine):
    """The end of a line at the machines' edge."""

    def __init__(self, gate: "DatagramGate") -> None:
        super().__init__()
        self._gate = gate
        self._guests: dict[int, _Guest] = {}

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        for guest in list(self._guests.values()):
            self._release(guest)
        self._gate.lines.discard(self)

    def end(self, guest: _Guest, why: ProxyError | None) -> None:
        """End a flow whose end at the machine has ended; a client that sends on makes its edge ask again."""
        if self._release(guest):
            self.say(FlowFrame.END, guest.number)
            if why is not None:
                self._gate.tell(guest.app, why)

    def answer(self, number: int, answer: HopAnswer) -> None:
        self.say(FlowFrame.ANSWER, number, msgspec.msgpack.encode(answer))

    def refuse(self, guest: _Guest, error: ProxyError) -> None:
        if self._release(guest):
            self._refuse(guest.number, error)

    def has(self, guest: _Guest) -> bool:
        return self._guests.get(guest.number) is guest

    def _refuse(self, number: int, error: ProxyError) -> None:
        why = (error.known or error.told)[:_WHY_CHARS]
        self.answer(number, HopAnswer(let_in=False, code=error.code.name, why=why))

    def _release(self, guest: _Guest) -> bool:
        if self._guests.pop(guest.number, None) is None:
            return False
        guest.scope.cancel()
        if guest.machine is not None:
            guest.machine.close()
        self._gate.leave(guest)
        return True

    def _hear(self, kind: FlowFrame, number: int, content: bytes) -> None:
        guest = self._guests.get(number)
        if kind is FlowFrame.ASK:
            if guest is not None:
                raise ValueError("the flow is there")
            self._ask(number, read_word(content, FlowQuestion))
        elif kind is FlowFrame.ANSWER:
            raise ValueError("it was asked nothing")
        elif guest is None:
            return  # it has ended here meanwhile
        elif kind is FlowFrame.END:
            self._release(guest)
        elif guest.machine is not None:
            if guest.goes_on:
                guest.machine.send(content)
            else:
                self.end(guest, None)

    def _ask(self, number: int, question: FlowQuestion) -> None:
        guest = _Guest(self, number, question.app, self._gate.owner(question.app))
        if self._gate.enter(guest):
            self._guests[number] = guest
            self._gate.begin(self, guest, question)
        else:
            self._refuse(number, ProxyError(Code.HQ01, known="its organization has as many flows as it may have"))


class DatagramGate:
    """Lets flows of other hosts' edges into machines of this one, and those of other regions into any of this region.
    For one event loop."""

    machine_end: ClassVar[type[MachineSocket]] = MachineSocket

    def __init__(
        self,
        routes: Routes,
        visits: Visits,
        hops: DatagramHops,
        spawn: Spawn,
        clock: Clock,
        counters: Counters,
        say: Callable[[EdgeLogLine], None],
    ) -> None:
        self.owner = routes.owner
        self.lines: set[AskedLine] = set()
        self._visits = visits
        self._hops = hops
        self._spawn = spawn
        self._now = clock.monotonic
        self._counters = counters
        self._say = say
        self._of_org = Occupancy(EDGE_FLOWS)

    def open(self) -> AskedLine:
        line = AskedLine(self)
        self.lines.add(line)
        return line

    def close(self) -> None:
        """End all flows: a client that sends on is served by the next process."""
        for line in list(self.lines):
            line.close()

    # What lines say.

    def enter(self, guest: _Guest) -> bool:
        if not self._of_org.fits(guest.org):
            return False
        self._of_org.enter(guest.org)
        return True

    def leave(self, guest: _Guest) -> None:
        self._of_org.leave(guest.org)
        if guest.visit is not None:
            self._visits.end(guest.visit)

    def begin(self, line: AskedLine, guest: _Guest, question: FlowQuestion) -> None:
        self._spawn(self._let_in, line, guest, question)

    def tell(self, app: AppName, error: ProxyError) -> None:
        self._counters.add(f"errors_{error.code.name}", app=app)
        self._say(EdgeLogLine(app=app, code=error.code.name, text=error.whole))

    async def _let_in(self, line: AskedLine, guest: _Guest, question: FlowQuestion) -> None:
        with guest.scope:
            try:
                visit, machine = await self._enter(guest, question)
            except ProxyError as error:
                self._counters.add(f"hops_refused_{error.code.name}")
                line.refuse(guest, error)
                return
            if not line.has(guest):
                machine.close()
                self._visits.end(visit)
                return
            visit.last()
            guest.visit, guest.machine = visit, machine
            self._counters.add("hops")
            chosen = visit.target.machine.id if question.port else None
            line.answer(guest.number, HopAnswer(let_in=True, machine=chosen))

    async def _enter(self, guest: _Guest, question: FlowQuestion) -> tuple[Visit, MachineEnd]:
        """As `HopDoor` lets a request in. Raises `ProxyError`."""
        hold_s = min(question.hold_s, WAKE_TIMEOUT_S) if question.hold_s > 0 else 0.0
        began, apart = self._now() - WAKE_TIMEOUT_S + hold_s, frozenset[MachineId]()
        tries, cause = MOST_TRIES if question.port else 1, None
        while True:
            try:
                visit = await self._admit(question, apart, began, held=hold_s > 0)
            except ProxyError as error:
                raise cause or error from error
            try:
                return visit, await self._reach(visit, began, guest)
            except ProxyError as error:
                self._visits.end(visit)
                apart, cause, tries = apart | {visit.target.machine.id}, error, tries - 1
                if not tries:
                    raise
            except BaseException:
                self._visits.end(visit)
                raise

    async def _admit(self, question: FlowQuestion, apart: frozenset[MachineId], began: float, *, held: bool) -> Visit:
        """Raises `ProxyError`."""
        if question.port:
            aim = Aim(Door("", question.port, udp=True), question.app, Steering(apart=apart))
            return await self._visits.admit_from_afar(aim, "", began)
        machine, service = question.machine, question.service
        return await self._visits.admit(question.app, machine, service, began, hold=held, udp=True)

    async def _reach(self, visit: Visit, began: float, guest: _Guest) -> MachineEnd:
        """Raises `ProxyError`."""
        if not visit.target.is_near:
            return await self._hops.open(visit, began, guest)
        try:
            return self.machine_end(visit, guest)
        except OSError as error:
            machine = visit.target.machine.id
            raise ProxyError(Code.PC01, known=f"machine {machine} has no address ({error})") from error
