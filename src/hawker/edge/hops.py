"""From the edge of one host into a machine of another: the edge asks the machine's gate, and once that lets it in,
bytes go both ways as if it had connected to the machine.

TLS 1.3 both ways, with certificates that only nodes of the cluster have. A hop begins with a question and its answer,
each four bytes of length and MessagePack. Before the answer says `let_in` not one byte has reached the machine, so what
is refused may go elsewhere. A gate believes a question only as far as its own worker's word goes: the machine must be
there, of that app, with that service. Nothing that a client sends is ever read here.
"""

import asyncio
import ssl
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from hawker.auth.node_certificate import AUTHORITIES, name_of
from hawker.clock import Clock
from hawker.edge.gates import Gate
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.splice import address_of, reset, watch_peer
from hawker.edge.tls_transport import TlsTransport
from hawker.edge.visits import WAKE_TIMEOUT_S, Visit
from hawker.feed import NODE_IDENTITY, GatePlace
from hawker.ids import AppName, MachineId
from hawker.log import bind

P = TypeVar("P", bound=asyncio.BaseProtocol)

REACH_S, ANSWER_S = 1.0, 2.0
"""How long the connection may take, and the answer of a gate that holds nobody."""
_LATE_S = 1.0
"""So much longer than a gate holds is its answer waited for."""
_FULL_S, _AVOID_S = 0.1, 1.0
_MAX_FRAME_BYTES = 4096
_MAX_HANDSHAKE_BYTES = 64 << 10
_LENGTH = struct.Struct(">I")
_log = bind("hawker.edge")


class HopQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Into which service of which machine. `hold_s`: so long may the gate hold it and start the machine; 0 is now or
    not at all. `lasting`: it has no end of its own, so a stop of the machine does not wait for it."""

    app: AppName
    machine: MachineId
    service: int
    hold_s: float = 0.0
    lasting: bool = False


class HopAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is of `Code` where it was not let in, and `why` what the app's log may say of it."""

    let_in: bool
    code: str = ""
    why: str = ""


def hop_frame(message: HopQuestion | HopAnswer) -> bytes:
    data = msgspec.msgpack.encode(message)
    assert len(data) <= _MAX_FRAME_BYTES, "questions and answers are short"
    return _LENGTH.pack(len(data)) + data


def cut_frame(buffer: bytearray) -> bytes | None:
    """The first frame, taken out of the buffer; None before it is whole. Raises `ValueError` when it is too long."""
    if len(buffer) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(buffer)
    if length > _MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes, {_MAX_FRAME_BYTES} at most")
    end = _LENGTH.size + length
    if len(buffer) < end:
        return None
    data = bytes(buffer[_LENGTH.size : end])
    del buffer[:end]
    return data


class NodeIdentity:
    """What this node shows others, and whom it trusts: read again when the worker has written it anew."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / NODE_IDENTITY
        self._seen = 0
        self._contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None

    def client(self) -> ssl.SSLContext:
        """Raises `OSError` where there is none."""
        return self._read()[0]

    def server(self) -> ssl.SSLContext:
        """Raises `OSError` where there is none."""
        return self._read()[1]

    def _read(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        written = self._file.stat().st_mtime_ns
        if self._contexts is None or written != self._seen:
            authorities = self._file.read_text().partition(AUTHORITIES)[2]
            client, server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            for context in (client, server):
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_cert_chain(self._file)
                context.load_verify_locations(cadata=authorities)
            self._contexts, self._seen = (client, server), written
        return self._contexts


class Handshake(asyncio.Protocol):
    """Either end of a hop, until TLS is done: then `inner` is what the bytes go to."""

    def __init__(self, context: ssl.SSLContext, inner: asyncio.Protocol, *, name: str | None = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=name is None, server_hostname=name)
        self._inner = inner
        self._raw: asyncio.Transport | None = None
        self._bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        watch_peer(transport)
        self._shake()

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        self._incoming.write(data)
        self._shake()

    def connection_lost(self, error: Exception | None) -> None:
        self._raw = None
        self._inner.connection_lost(error or ConnectionResetError("the connection ended in its handshake"))

    def abort(self) -> None:
        if self._raw is not None:
            self._raw.abort()

    def _shake(self) -> None:
        raw = self._raw
        if raw is None or raw.is_closing():
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            raw.write(self._outgoing.read())
            if self._bytes > _MAX_HANDSHAKE_BYTES:
                raw.abort()
        except ssl.SSLError as error:
            raw.write(self._outgoing.read())
            raw.close()
            _log.warning("a hop is refused", extra={"peer": address_of(raw, "peername"), "reason": str(error)})
        else:
            raw.write(self._outgoing.read())
            transport = TlsTransport(raw, self._tls, self._incoming, self._outgoing, self._inner)
            raw.set_protocol(transport)
            transport.begin()


class _Asker(asyncio.Protocol):
    """Says its question and waits for the answer; what comes after that is for the protocol that follows it."""

    def __init__(self, question: HopQuestion) -> None:
        self._question = question
        self.transport: asyncio.Transport | None = None
        self.answer: asyncio.Future[HopAnswer] = asyncio.get_running_loop().create_future()
        self.early = bytearray()
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(hop_frame(self._question))

    def data_received(self, data: bytes) -> None:
        self.early += data
        if self.answer.done():
            return
        try:
            found = cut_frame(self.early)
            if found is not None:
                self.answer.set_result(msgspec.msgpack.decode(found, type=HopAnswer))
        except (ValueError, msgspec.DecodeError) as error:
            self.answer.set_exception(ConnectionResetError(f"the gate is not understood: {error}"))
        if self.answer.done() and self.transport is not None:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.ended = True
        return self.answer.done()

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if not self.answer.done():
            self.answer.set_exception(error or ConnectionResetError("the gate closed the connection"))


class HopDialer:
    """For one event loop."""

    def __init__(self, identity: NodeIdentity, clock: Clock) -> None:
        self._identity = identity
        self._now = clock.monotonic

    async def dial(self, visit: Visit, began: float, make: Callable[[], P], *, lasting: bool) -> P:
        """The protocol that `make` makes is at the machine's service then. Raises `ProxyError`; the gate is avoided
        for a while."""
        gate, target, place = visit.gate, visit.target, visit.target.machine.gate
        assert place is not None, "a machine of this host has its gate here"
        hold_s = max(0.0, began + WAKE_TIMEOUT_S - self._now()) if visit.held else 0.0
        question = HopQuestion(
            app=target.machine.app, machine=target.machine.id, service=target.number, hold_s=hold_s, lasting=lasting
        )
        try:
            asker, answer = await self._ask(place, question)
        except (OSError, ssl.SSLError) as error:  # a timeout, too
            gate.failed(target.number, self._now())
            known = (
                f"host {place.node} of machine {gate.route.id} is not reached at {place.host}:{place.port} ({error})"
            )
            raise ProxyError(Code.PC01, known=known) from error
        if not answer.let_in:
            if asker.transport is not None:
                asker.transport.close()
            raise _refused(gate, answer, self._now())
        gate.answered(target.number)
        return _handed_over(asker, make())

    async def _ask(self, place: GatePlace, question: HopQuestion) -> tuple[_Asker, HopAnswer]:
        """Raises `OSError`."""
        asker = _Asker(question)
        make = partial(Handshake, self._identity.client(), asker, name=name_of(place.node))
        loop = asyncio.get_running_loop()
        _, handshake = await asyncio.wait_for(loop.create_connection(make, place.host, place.port), REACH_S)
        within = question.hold_s + _LATE_S if question.hold_s else ANSWER_S
        try:
            return asker, await asyncio.wait_for(asker.answer, within)
        except BaseException:
            if asker.transport is not None:
                reset(asker.transport)
            else:
                handshake.abort()
            raise


def _refused(gate: Gate, answer: HopAnswer, now: float) -> ProxyError:
    full = answer.code == Code.HQ01.name
    gate.avoid(now + (_FULL_S if full else _AVOID_S))
    try:
        code = Code[answer.code]
    except KeyError:
        code = Code.PR01
    return ProxyError(code, known=answer.why)


def _handed_over(asker: _Asker, protocol: P) -> P:
    """Raises `ProxyError` where the connection has ended meanwhile."""
    transport = cast(TlsTransport | None, asker.transport)
    if transport is None:
        raise ProxyError(Code.PC01, known="the gate closed the connection")
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    reader = cast(asyncio.Protocol, protocol)
    if asker.early:
        reader.data_received(bytes(asker.early))
    if asker.ended and not reader.eof_received():
        transport.close()
    transport.resume_reading()
    return protocol
