"""From the edge of one host into a machine of another: the edge asks the machine's gate, and once that lets it in,
bytes go both ways as if it had connected to the machine.

TLS 1.3, with certificates that only nodes of the cluster have. Before the gate's answer says `let_in` not one byte has
reached the machine, so what is refused may go elsewhere. A gate believes a question only as far as its own worker's
word goes: the machine must be there, of that app, with that service. Nothing that a client sends is ever read here.

A host that is lost says nothing. Its kernel is asked each second over every connection that waits for it, so that two
seconds of silence on all of them are the host's and not a program's.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from hawker.clock import Clock
from hawker.edge.dialing import LET_IN
from hawker.edge.gates import Gate
from hawker.edge.hop_frames import HopAnswer, HopFrame, HopQuestion, read_word
from hawker.edge.hop_line import HopLine
from hawker.edge.machine_connection import MachineConnection
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.routes import ServiceTarget, spoken_of
from hawker.edge.splice import UNSENT_MAX, probe_host
from hawker.edge.visits import WAKE_TIMEOUT_S, Visit
from hawker.feed import NODE_IDENTITY, GatePlace
from hawker.http.mutual_tls import Handshake, MutualTls, name_of
from hawker.ids import AppName, MachineId
from hawker.value_object import ValueObject

P = TypeVar("P", bound=asyncio.BaseProtocol)

REACH_S, ANSWER_S = 0.5, 2.0
"""Seconds that the connection may take, and the answer of a gate that holds no request."""
LATE_S = 1.0
"""Seconds that an answer is waited for beyond the time that the gate may hold the request."""
_FULL_S, _AVOID_S = 0.1, 1.0
_STAY_AGAIN_S = 0.1
FREE_S = 15.0
"""Seconds that a connection is kept that no conversation uses."""
_FREE_OF_GATE = 64
_UNSENT_BYTES = UNSENT_MAX // 4  # of a connection that has room: who writes is told below that
_ID_CHARS, _MOST_APART = 32, 32
MOST_TRIES = 3
"""The most machines that a host asks for one request of another region."""
LOST_S, GONE_S = 1.3, 4.0
"""Seconds of silence, the probe that followed one second included, after which a host is avoided, and a request that
may be repeated goes elsewhere; after the longer time, and three probes more, everything that waits for the host
ends."""
_PROBED_AFTER_S, _PROBED_LATER_S = 1, 5


def identity_in(folder: Path) -> MutualTls:
    """The certificate of this node, with its key, and the authorities that it trusts: read again when the worker has
    written them anew."""
    file, read = folder / NODE_IDENTITY, dict[int, str]()

    def papers() -> str:
        written = file.stat().st_mtime_ns
        if written not in read:
            read.clear()
            read[written] = file.read_text()
        return read[written]

    return MutualTls(papers)


class _FirstAsked(ValueObject, frozen=True):
    """A question that the first bytes of a conversation asked. `told` gets the gate's answer, or None when there was
    none by `until`."""

    until: float
    told: Callable[[HopAnswer | None], None]


class HostUnheardError(OSError):
    """Another host does not say that it hears. Asking it over another connection is of no use."""


class _Caller:
    """A connection to a gate, as who asks has it: one question at a time. `lasting`: what goes over it now has no end
    of its own, and little is known by its silence."""

    def __init__(
        self,
        identity: MutualTls,
        place: GatePlace,
        freed: Callable[["_Caller"], None],
        ended: Callable[["_Caller"], None],
    ) -> None:
        self._identity = identity
        self._place = place
        self._ended = ended
        self.line = HopLine(self._hear, lambda: freed(self), self._lose)
        self._answer: asyncio.Future[HopAnswer] | None = None
        self._first: _FirstAsked | None = None
        self._question: HopQuestion | None = None
        self._handshake: Handshake | None = None
        self.free_since = 0.0
        self.lasting = False

    async def connect(self) -> None:
        """TLS is not done yet; in the host there is none. Raises `OSError`."""
        loop, place = asyncio.get_running_loop(), self._place
        if place.is_beside:
            await asyncio.wait_for(loop.create_unix_connection(lambda: self.line, place.host), REACH_S)
            return
        make = partial(Handshake, self._identity.client(), self.line, name=name_of(place.node), made=self._begin)
        _, self._handshake = await asyncio.wait_for(loop.create_connection(make, place.host, place.port), REACH_S)

    async def ask(self, question: HopQuestion, within_s: float) -> HopAnswer:
        """Raises `OSError`."""
        self._question, self._answer = question, asyncio.get_running_loop().create_future()
        if self.line.transport is not None:
            self._ask()
        try:
            return await asyncio.wait_for(self._answer, within_s)
        except BaseException:
            self.give_up()
            raise
        finally:
            self._answer = None

    def ask_first(self, question: HopQuestion, connection: MachineConnection, asked: _FirstAsked) -> None:
        """As soon as the connection writes."""
        self._first = asked
        self.line.open(connection, question)

    def look(self, now: float) -> None:
        """To be called now and then: a gate that does not answer is waited for no longer."""
        asked = self._first
        if asked is not None and now >= asked.until:
            asked.told(None)
            self.line.give_up(TimeoutError("its gate does not answer"))

    def give_up(self) -> None:
        if self.line.transport is not None:
            self.line.give_up()
        elif self._handshake is not None:
            self._handshake.abort()

    def probe(self, *, lasting: bool) -> None:
        if self.line.transport is not None:
            probe_host(self.line.transport, _PROBED_LATER_S if lasting else _PROBED_AFTER_S)
        self.lasting = lasting

    def host_unheard(self, error: HostUnheardError, *, gone: bool) -> None:
        """Who still asks has reached no machine, and may go elsewhere."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        elif gone:
            self.line.give_up(error)
        else:
            self.line.host_unheard()

    def _begin(self) -> None:
        self.probe(lasting=False)
        self._ask()

    def _ask(self) -> None:
        if self._question is not None:
            self.line.say(HopFrame.QUESTION, self._question)

    def _hear(self, kind: HopFrame, data: bytes) -> None:
        answer, first = self._answer, self._first
        if (first is None and (answer is None or answer.done())) or kind is not HopFrame.ANSWER:
            self.line.give_up()
            return
        try:
            said = read_word(data, HopAnswer)
        except ValueError as error:
            why = ConnectionResetError(f"the gate is not understood: {error}")
            if answer is None:
                self.line.give_up(why)
            else:
                answer.set_exception(why)
            return
        self.line.keeps = said.keeps
        if first is not None:
            self._first = None
            first.told(said)
        elif answer is not None:
            answer.set_result(said)

    def _lose(self, error: Exception) -> None:
        self._first = None
        self._ended(self)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


class HopDialer:
    """Asks gates of other hosts, and of other processes of this host, and uses connections again. For one event loop.
    `lost` is told the place of a host that is silent, and until when to avoid it."""

    def __init__(self, identity: MutualTls, clock: Clock, lost: Callable[[GatePlace, float], None]) -> None:
        self._identity = identity
        self._lost = lost
        self._now = clock.monotonic
        self._free: dict[GatePlace, list[_Caller]] = {}
        self._busy: dict[GatePlace, dict[_Caller, None]] = {}
        self._done = False

    def __len__(self) -> int:
        """The number of gates to which there are connections."""
        return len(self._busy.keys() | self._free.keys())

    async def dial(self, visit: Visit, began: float, make: Callable[[], P], *, lasting: bool) -> P:
        """Connect with the visit's machine through its gate: the protocol that `make` makes is at the machine's service
        then. Raises `ProxyError`; the gate is avoided for a while."""
        gate, target, place = visit.gate, visit.target, visit.target.machine.gate
        assert place is not None, "a machine of this host has its gate here"
        hold_s = hold_s_of(visit, began, self._now())
        question = question_of(visit, hold_s, lasting=lasting)
        try:
            caller, answer = await self._ask(place, question)
        except (OSError, ssl.SSLError) as error:  # a timeout, too
            raise unreached(gate, target, place, error, self._now()) from error
        if not answer.let_in:
            self._keep(place, caller)
            raise refused(gate, answer, self._now())
        gate.answered(target.number)
        visit.machine = chosen_in(answer)
        if lasting:
            caller.probe(lasting=True)
        return caller.line.open(make())

    def ask_first(self, visit: Visit, connection: MachineConnection, verdict: Callable[[str], None]) -> bool:
        """Whether `connection` leads into the machine from now on, once its gate lets it in: the bytes that it writes
        first go with the question. It is lost or refused like any other connection. There must be a kept connection to
        a gate that knows how. A request that asks so must be one that may be repeated: when the hop is lost nobody
        knows how far it came."""
        place, target = visit.target.machine.gate, visit.target
        if place is None or visit.held or target.machine.region:
            return False
        caller = self._take(place)
        if caller is None or not caller.line.keeps:
            if caller is not None:
                self._free.setdefault(place, []).append(caller)
            return False
        self._busy.setdefault(place, {})[caller] = None
        connection.rested = True  # for all that is known before it is answered
        told = partial(self._first_told, visit, place, caller, connection, verdict)
        asked = _FirstAsked(self._now() + ANSWER_S, told)
        caller.ask_first(question_of(visit, 0.0, lasting=False), connection, asked)
        return True

    def _first_told(
        self,
        visit: Visit,
        place: GatePlace,
        caller: _Caller,
        connection: MachineConnection,
        verdict: Callable[[str], None],
        answer: HopAnswer | None,
    ) -> None:
        gate, target = visit.gate, visit.target
        if answer is None:
            verdict(unreached(gate, target, place, TimeoutError(), self._now()).code.name)
        elif answer.let_in:
            verdict(LET_IN)
            gate.answered(target.number)
            connection.rested = answer.rested
            caller.line.let_in()
        else:
            error = refused(gate, answer, self._now())
            verdict(error.code.name)
            caller.line.refuse()
            connection.refuse(error)
            self._keep(place, caller)

    async def dial_edge(self, place: GatePlace, make: Callable[[], P]) -> P:
        """Begin a conversation with the other edge that is for no machine: each flow of datagrams in it asks by itself.
        Raises `OSError`."""
        question = HopQuestion(app=AppName(""), machine=MachineId(""), service=0, lasting=True, datagrams=True)
        caller, answer = await self._ask(place, question)
        if not answer.let_in:
            self._keep(place, caller)
            raise ConnectionRefusedError(f"its edge takes no datagrams of others: {answer.why}")
        caller.probe(lasting=True)
        return caller.line.open(make())

    def sweep(self) -> None:
        """To be called ten times a second: find the hosts that are lost, and close the connections that were not used
        for long."""
        for place, callers in list(self._busy.items()):
            for caller in callers:
                caller.look(self._now())
            self._listen(place, [each for each in callers if each.line.transport is not None])
        oldest = self._now() - FREE_S
        for place, rested in list(self._free.items()):
            kept = [each for each in rested if each.free_since > oldest and each.line.is_free]
            for caller in rested:
                if caller not in kept:
                    caller.line.close()
            self._free[place] = kept
            if not kept:
                del self._free[place]

    def end_free(self) -> None:
        """Close the kept connections to other processes of this host: they are asked nothing any more."""
        self._done = True
        for place in [place for place in self._free if place.is_beside]:
            for caller in self._free.pop(place):
                caller.give_up()

    def _listen(self, place: GatePlace, callers: list[_Caller]) -> None:
        """One of them that is heard is enough."""
        waiting = [each for each in callers if not each.lasting]
        if not waiting or any(each.line.unheard_s < LOST_S for each in waiting):
            return
        silent_s = min(each.line.unheard_s for each in waiting)
        self._lost(place, self._now() + _AVOID_S)
        for kept in self._free.pop(place, ()):
            kept.give_up()
        error = HostUnheardError(f"host {place.node} has not been heard for {silent_s:.1f} s")
        for caller in callers:
            caller.host_unheard(error, gone=silent_s >= GONE_S)

    async def _ask(self, place: GatePlace, question: HopQuestion) -> tuple[_Caller, HopAnswer]:
        """What a kept connection does not bring over is asked again by a new one, for what is left of its time. Raises
        `OSError`."""
        until = self._now() + question.hold_s
        while (kept := self._take(place)) is not None:
            with suppress(ConnectionError):
                return kept, await self._watched(place, kept, question)
            question = self._again(question, until)
        caller = _Caller(self._identity, place, partial(self._keep, place), partial(self._forget, place))
        try:
            await caller.connect()
        except TimeoutError:  # nobody is at home: other machines of the host need not be tried
            self._lost(place, self._now() + _AVOID_S)
            raise
        return caller, await self._watched(place, caller, question)

    def _again(self, question: HopQuestion, until: float) -> HopQuestion:
        """The same for what is left of its time, if it is to be held at all. Raises `OSError`."""
        if not question.hold_s:
            return question
        if self._now() >= until:
            raise TimeoutError("its time was over when it could be asked again")
        return replace(question, hold_s=until - self._now())

    async def _watched(self, place: GatePlace, caller: _Caller, question: HopQuestion) -> HopAnswer:
        self._busy.setdefault(place, {})[caller] = None
        try:
            return await caller.ask(question, question.hold_s + LATE_S if question.hold_s else ANSWER_S)
        except BaseException:
            self._forget(place, caller)
            raise

    def _forget(self, place: GatePlace, caller: _Caller) -> None:
        """Nobody waits for it any more."""
        callers = self._busy.get(place, {})
        callers.pop(caller, None)
        if not callers:
            self._busy.pop(place, None)

    def _take(self, place: GatePlace) -> _Caller | None:
        callers = self._free.get(place)
        while callers:
            caller = callers.pop()
            if caller.line.is_free:
                return caller
        return None

    def _keep(self, place: GatePlace, caller: _Caller) -> None:
        self._forget(place, caller)
        if caller.lasting:
            caller.probe(lasting=False)
        callers, transport = self._free.setdefault(place, []), caller.line.transport
        if transport is not None and transport.get_write_buffer_size() > _UNSENT_BYTES:
            caller.line.close()  # once all has gone: whoever had it next would not be told that it is full
        elif len(callers) < _FREE_OF_GATE and caller.line.is_free and not (self._done and place.is_beside):
            caller.free_since = self._now()
            callers.append(caller)
        else:
            caller.line.close()


class _Presence(asyncio.Protocol):
    """Says nothing."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()


async def stay_at(place: Path, clock: Clock) -> None:
    """Be connected with another edge process of this host until cancelled: it stays as long, for requests that came
    here and are for its machines."""
    loop = asyncio.get_running_loop()
    while True:
        with suppress(OSError):
            transport, presence = await loop.create_unix_connection(_Presence, str(place))
            try:
                await presence.lost.wait()
            finally:
                transport.abort()
        await clock.sleep(_STAY_AGAIN_S)


def chosen_in(answer: HopAnswer) -> MachineId | None:
    """The machine that the gate has chosen, None without one. Its id goes into headers, so a text that can be no id is
    none."""
    said = answer.machine or ""
    return MachineId(said) if said.isascii() and said.isalnum() and len(said) <= _ID_CHARS else None


def question_of(visit: Visit, hold_s: float, *, lasting: bool) -> HopQuestion:
    """The question for the gate of the visit's machine. For another region it names no machine."""
    machine, aim = visit.target.machine, visit.aim
    if not machine.region or aim is None:
        return HopQuestion(
            app=machine.app, machine=machine.id, service=visit.target.number, hold_s=hold_s, lasting=lasting
        )
    apart = sorted(each for each in aim.steering.apart if each.isalnum() and len(each) <= _ID_CHARS)
    return HopQuestion(
        app=machine.app,
        machine=MachineId(""),
        service=0,
        hold_s=hold_s,
        lasting=lasting,
        port=aim.door.port,
        inside=aim.inside,
        spoken=spoken_of(visit.target.port),
        force=aim.steering.force or "",
        prefer=aim.steering.prefer or "",
        apart=tuple(apart[:_MOST_APART]),
    )


def hold_s_of(visit: Visit, began: float, now: float) -> float:
    """Seconds that the gate may hold this request, counted from now."""
    return max(0.0, began + WAKE_TIMEOUT_S - now) if visit.held else 0.0


def unreached(gate: Gate, target: ServiceTarget, place: GatePlace, error: Exception, now: float) -> ProxyError:
    """The error for a gate that is not reached; the gate is avoided for a while."""
    gate.failed(target.number, now)
    at, why = f"{place.host}:{place.port}", str(error) or type(error).__name__
    if place.is_beside:
        return ProxyError(Code.PC01, known=f"the edge process that lets into {gate.route.id} is not reached ({why})")
    return ProxyError(Code.PC01, known=f"host {place.node} of machine {gate.route.id} is not reached at {at} ({why})")


def refused(gate: Gate, answer: HopAnswer, now: float) -> ProxyError:
    full = answer.code == Code.HQ01.name
    if gate.route.region and answer.code == Code.PR02.name:  # of this request alone
        return ProxyError(Code.PR02, known=answer.why)
    gate.avoid(now + (_FULL_S if full else _AVOID_S))
    if full and gate.is_beside:
        gate.full_until = now + _FULL_S
    try:
        code = Code[answer.code]
    except KeyError:
        code = Code.PR01
    return ProxyError(code, known=answer.why)
