"""HTTP/1.1 connections of clients: a head at a time, one request under way, bodies streamed both ways.

What a client can hold of this process is bounded: a head, 256 KiB of a body, one task; and how long it may take for
each is bounded, too. Control flow is in one task for each connection; bytes go through callbacks.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import cast

import anyio

from hawker.clock import Clock
from hawker.config.machine import HttpOptions
from hawker.edge.body import BadBody, MessageBody, NoBody, request_body
from hawker.edge.dialing import Dialer, Joined
from hawker.edge.head import (
    HEAD_BYTES,
    IDEMPOTENT,
    LINE_BYTES,
    RequestHead,
    ResponseHead,
    bare_end_since,
    parse_request,
)
from hawker.edge.machine_connection import MachineConnection, MachinePool
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.routes import Door, Routes, ServiceTarget
from hawker.edge.splice import UNSENT_MAX, Side, address_of, reset, watch_peer
from hawker.edge.steering import UNAVAILABLE, Steering, steering_of
from hawker.edge.visits import Counters, Spawn, Visits
from hawker.edge.writing import (
    CHALLENGES,
    Origin,
    answer_to_client,
    challenge_answer,
    own_answer,
    redirect_to_https,
    request_to_machine,
)
from hawker.fair.connections import ConnectionTable
from hawker.feed import EdgeLogLine
from hawker.ids import AppName, new_ulid

HEAD_S, IDLE_S, BODY_S, LINGER_S = 10.0, 75.0, 60.0, 1.0
_LEFT_S = 0.2
"""After its end of the connection a client has no place in a queue for longer."""
_MAX_INTERIM, _CONTINUE = 8, b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServices:
    """What connections share. `say` tells the app's log what could not be done; `claimer` is whose host name it
    is; `challenge` answers a certificate authority that asks for this token at this host."""

    routes: Routes
    visits: Visits
    dialer: Dialer
    pool: MachinePool
    table: ConnectionTable
    clock: Clock
    counters: Counters
    spawn: Spawn
    say: Callable[[EdgeLogLine], None]
    claimer: Callable[[str], AppName | None]
    challenge: Callable[[str, str], str | None]
    region: Callable[[], str]


class HttpConnection(asyncio.Protocol):
    """One client; `tls` is the app that its TLS is for. Keeps `AnswerSink` and `Closable`."""

    def __init__(
        self, services: HttpServices, door: Door, live: "set[HttpConnection]", *, tls: AppName | None = None
    ) -> None:
        self._services = services
        self._live = live
        self._door = door
        self._tls = tls
        self._now = services.clock.monotonic
        self._transport: asyncio.Transport | None = None
        self._scope: anyio.CancelScope | None = None
        self._buffer = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self._machine: MachineConnection | None = None
        self._body: MessageBody = NoBody()
        self._ended = False
        self._paused = False
        self._held = False  # it waits for a machine
        self._answered = False  # the head of an answer to the request under way is written
        self._overdue: ProxyError | None = None
        self.deadline = inf
        self._idle_s = 0.0
        self._why_late = Code.HB04

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(UNSENT_MAX)
        watch_peer(self._transport)
        self._services.counters.add("connects")
        if not self._services.table.admit(self, address_of(self._transport, "peername")):
            error = ProxyError(Code.HC01)
            self._transport.write(own_answer(error, self._request_id()))
            self._transport.close()
            return
        self._live.add(self)
        self._services.spawn(self._serve_all)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._machine is not None and not self._body.done:
            self._pump()
        elif len(self._buffer) > HEAD_BYTES:
            self._pause()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def eof_received(self) -> bool:
        """It may have said all that it has to say. One that waits for a machine all the same has left, most likely:
        its place is given back in a moment."""
        self._ended = True
        if self._held:
            self.deadline = self._now() + _LEFT_S
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._ended = True
        self._services.table.release(self)
        self._live.discard(self)
        if self._scope is not None:
            self._scope.cancel()

    def pause_writing(self) -> None:
        if self._machine is not None:
            self._machine.may_read(reading=False)

    def resume_writing(self) -> None:
        if self._machine is not None:
            self._machine.may_read(reading=True)

    def give_up(self) -> None:
        if self._transport is not None:
            reset(self._transport)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
            self._services.counters.add("bytes_out", len(data))
            if self._idle_s:
                self.deadline = self._now() + self._idle_s

    def may_read(self, *, reading: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if reading:
                self._resume()
            else:
                self._pause()

    def check_time(self, now: float) -> None:
        """To be called now and then."""
        if now < self.deadline or self._scope is None:
            return
        if self._paused and self._machine is not None:
            self.deadline = now + BODY_S  # it is the machine that takes no more of the body
        else:
            self.deadline = inf
            self._overdue = None if self._held else ProxyError(self._why_late)
            self._scope.cancel()

    async def _serve_all(self) -> None:
        transport = self._transport
        if transport is None:
            return
        sock = transport.get_extra_info("sockname")
        origin = Origin(
            client=address_of(transport, "peername"),
            address=str(sock[0]).removeprefix("::ffff:"),
            port=self._door.port,
            tls=self._tls is not None,
            region=self._services.region(),
        )
        with anyio.CancelScope() as self._scope:
            await self._converse(origin, origin.lines)
        if self._overdue is not None:
            self._refuse(self._overdue, None, None)
        if self._transport is not None:
            self._transport.close()

    async def _converse(self, origin: Origin, lines: bytes) -> None:
        """Requests in a row, until one of the two ends has enough."""
        first = True
        while self._transport is not None:
            try:
                data = await self._next_head(first=first)
                if data is None:
                    return
                self._services.table.work(self)
                head = parse_request(data)
            except ProxyError as error:
                self._refuse(error, None, None)
                await self._linger()
                return
            if not await self._request(head, origin, lines):
                await self._linger()
                return
            self._services.table.rest(self)
            first = False

    async def _next_head(self, *, first: bool) -> bytes | None:
        """None when the client has nothing more to ask. Raises `ProxyError`."""
        began, looked = False, 0
        self._why_late, self.deadline = Code.HB04, self._now() + (HEAD_S if first else IDLE_S)
        while True:
            if self._buffer and not began:
                began, self.deadline = True, self._now() + HEAD_S
            while self._buffer[:2] == b"\r\n":  # RFC 9112, 2.2: an empty line before a request is passed over
                del self._buffer[:2]
            end = self._buffer.find(b"\r\n\r\n", max(0, looked - 3))
            head = self._buffer[: end + 4] if end >= 0 else self._buffer
            if bare_end_since(head, looked):
                raise ProxyError(Code.HB01, "the request is malformed: a line ends with CR or LF alone")
            if end >= 0 and len(head) <= HEAD_BYTES:
                data = bytes(head)
                del self._buffer[: end + 4]
                self.deadline = inf
                return data
            looked = len(self._buffer)
            if len(head) > LINE_BYTES and b"\r\n" not in head:
                raise ProxyError(Code.HB03)
            if len(head) > HEAD_BYTES:
                raise ProxyError(Code.HB02)
            if self._ended or (not first and not self._buffer and self._transport is None):
                return None
            if self._paused:
                self._resume()
            await self._wait(first=first, began=began)

    async def _wait(self, *, first: bool, began: bool) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            if self._overdue is not None and not began:
                self._overdue = None  # nobody asked for anything: it is closed without a word
                if self._transport is not None:
                    self._transport.close()
            raise
        finally:
            self._waiter = None

    async def _request(self, head: RequestHead, origin: Origin, lines: bytes) -> bool:
        """Whether another request may follow on this connection."""
        began, request_id = self._now(), self._request_id()
        self._answered = False
        app: AppName | None = None
        try:
            proof = self._challenge(head)
            if proof is not None:
                self.write(challenge_answer(head, proof, request_id))
                return False
            app = self._find(head)
            target = self._services.routes.newest(self._door, app)
            if target is not None and target.port.force_https and self._tls is None:
                port = self._services.routes.https_port(self._door.address, app)
                self.write(redirect_to_https(head, port, request_id))
                return False
            return await self._serve(head, app, origin, lines, request_id, began)
        except ProxyError as error:
            self._refuse(error, app, head, request_id)
            return False
        finally:
            self._machine = None
            self._idle_s, self.deadline = 0.0, inf

    def _challenge(self, head: RequestHead) -> str | None:
        """Before any redirect, in plain HTTP, whatever app's door it is; other tokens are the machine's matter."""
        if self._tls is not None or head.method not in (b"GET", b"HEAD") or not head.target.startswith(CHALLENGES):
            return None
        token = head.target.removeprefix(CHALLENGES).decode("latin-1")
        return self._services.challenge(head.host.lower().rstrip("."), token)

    def _find(self, head: RequestHead) -> AppName:
        """The app that is asked for. Raises `ProxyError`, also where TLS was for another one."""
        host, tls = head.host.lower().rstrip("."), self._tls
        app = self._services.routes.app_named(self._door, host, self._services.claimer(host), tls=tls is not None)
        if tls is not None and app != tls:
            raise ProxyError(Code.HB05)
        if app is None:
            raise ProxyError(Code.HB06)
        return app

    async def _serve(
        self, head: RequestHead, app: AppName, origin: Origin, lines: bytes, request_id: bytes, began: float
    ) -> bool:
        self._body = request_body(chunked=head.chunked, length=head.length)
        steering = steering_of(head.fields)
        if not steering.allows_region(self._services.region()):
            raise ProxyError(Code.PR02)
        joined = await self._reach(app, began, steering)
        if steering.prefer not in (None, joined.visit.target.machine.id):
            lines += b"%b: %b\r\n" % (UNAVAILABLE, str(steering.prefer).encode("latin-1"))
        try:
            try:
                return await self._exchange(head, joined, origin, lines, request_id)
            except ProxyError:
                if not self._may_repeat(head, joined):
                    raise
                self._services.counters.add("retries")
                joined.protocol.abort()
                again = await self._services.dialer.dial(joined.visit, began, MachineConnection)
                return await self._exchange(head, Joined(joined.visit, again), origin, lines, request_id)
        except BaseException:
            if self._machine is not None:
                self._machine.abort()
            raise
        finally:
            self._services.visits.end(joined.visit)

    async def _reach(self, app: AppName, began: float, steering: Steering) -> Joined[MachineConnection]:
        self._held, self.deadline = True, self._now() + _LEFT_S if self._ended else inf
        try:
            return await self._services.dialer.reach(
                self._door, app, began, MachineConnection, rested=self._services.pool.take, steering=steering
            )
        finally:
            self._held, self.deadline = False, inf

    def _may_repeat(self, head: RequestHead, joined: Joined[MachineConnection]) -> bool:
        """A connection that rested may have been closed by the machine just as it was used again. What has reached the
        machine may be done there: only what may be done twice is sent twice, and only once more."""
        rested, silent = joined.rested, joined.protocol.silent and not self._answered
        return rested and silent and head.method in IDEMPOTENT and not head.has_body and self._transport is not None

    async def _exchange(
        self, head: RequestHead, joined: Joined[MachineConnection], origin: Origin, lines: bytes, request_id: bytes
    ) -> bool:
        machine, target = joined.protocol, joined.visit.target
        concurrency = target.service.concurrency
        pooled = target.is_near and concurrency is not None and concurrency.type == "requests"
        machine.begin(self)
        self._machine = machine
        options = target.port.http_options or HttpOptions()
        self._idle_s = float(options.idle_timeout or 0)
        self._why_late = Code.PU03
        machine.write(request_to_machine(head, origin, lines, request_id, pooled=pooled))
        if head.expects_continue and head.has_body and not self._buffer:
            self.write(_CONTINUE)
        if self._idle_s:
            self.deadline = self._now() + self._idle_s
        if head.has_body:
            self._resume()
            self._pump()
            if not self._body.done:
                self._why_late, self.deadline = Code.HB04, self._now() + BODY_S
        answer = await self._final_head(head, machine, target, request_id)
        if answer.status == 101:
            await self._upgraded(head, answer, joined, request_id)
            return False
        keep = head.keep_alive and not answer.until_close and (head.minor == 1 or not answer.chunked)
        keep = keep and self._body.done and not self._ended
        self._answered = True
        self.write(answer_to_client(answer, head, request_id, target.port, keep_alive=keep))
        self._services.counters.add(f"answers_{answer.status // 100}xx")
        await machine.answer_body(answer, bare=head.minor == 0)
        if pooled and answer.keep_alive and not answer.until_close and self._body.done:
            self._services.pool.keep(target, machine)
        else:
            machine.close()
        return keep and self._body.done

    async def _final_head(
        self, head: RequestHead, machine: MachineConnection, target: ServiceTarget, request_id: bytes
    ) -> ResponseHead:
        """Interim answers are passed on, but not to a client that does not know them; 100 we have said ourselves."""
        for _ in range(_MAX_INTERIM + 1):
            answer = await machine.answer_head(head.method)
            if not answer.interim:
                if answer.status == 101 and not head.upgrade:
                    raise ProxyError(Code.PU02, known="the machine changes protocols, and nobody asked for it")
                return answer
            if head.minor == 1 and answer.status != 100:
                self.write(answer_to_client(answer, head, request_id, target.port, keep_alive=True))
        raise ProxyError(Code.PU02, known="the machine sends interim answers without an end")

    async def _upgraded(
        self,
        head: RequestHead,
        answer: ResponseHead,
        joined: Joined[MachineConnection],
        request_id: bytes,
    ) -> None:
        """From now on bytes both ways. It counts in the machine until it ends."""
        machine, port = joined.protocol, joined.visit.target.port
        self._answered = True
        joined.visit.last()
        self.write(answer_to_client(answer, head, request_id, port, keep_alive=True))
        self._services.counters.add("upgrades")
        self.deadline = inf
        over = asyncio.Event()
        client, server = Side(over.set), Side()
        client.early, server.early = bytearray(self._buffer), bytearray(machine.taken_over())
        if self._transport is None or machine.transport is None:
            return
        for side, transport in ((client, self._transport), (server, machine.transport)):
            side.transport = transport
            transport.set_protocol(side)
        client.join(server)
        try:
            await over.wait()
        finally:
            self._services.table.release(self)
            self._live.discard(self)
            self._transport = None
            for side in (client, server):
                if side.transport is not None:
                    side.transport.close()

    def _pump(self) -> None:
        """Pass on what has come of the request's body."""
        assert self._machine is not None
        data, self._buffer = bytes(self._buffer), bytearray()
        try:
            mine, rest = self._body.feed(data)
        except BadBody as error:
            self._overdue = ProxyError(Code.HB01, f"the request is malformed: {error}")
            if self._scope is not None:
                self._scope.cancel()
            return
        if mine:
            self._machine.write(mine)
            self._services.counters.add("bytes_in", len(mine))
        self._buffer += rest
        if self._body.done:
            self._why_late, self.deadline = Code.PU03, self._now() + self._idle_s if self._idle_s else inf
        elif self._why_late is Code.HB04 or self._idle_s:
            self.deadline = self._now() + (self._idle_s or BODY_S)

    def _refuse(
        self, error: ProxyError, app: AppName | None, head: RequestHead | None, request_id: bytes | None = None
    ) -> None:
        """Say so, unless an answer is under way: then the connection ends without its end."""
        self._services.counters.add(f"errors_{error.code.name}")
        if app is not None:
            self._services.say(EdgeLogLine(app=app, code=error.code.name, text=error.whole))
        if self._answered:
            self.give_up()
        else:
            head_only = head is not None and head.method == b"HEAD"
            self.write(own_answer(error, request_id or self._request_id(), head_only=head_only))
            self._answered = True

    async def _linger(self) -> None:
        """Read on for a moment after the last answer: a reset for bytes that nobody read could destroy it."""
        if self._transport is None or self._ended or not (self._buffer or not self._body.done):
            return
        self._buffer.clear()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._body = NoBody()
        with anyio.move_on_after(LINGER_S):
            while not self._ended and self._transport is not None:
                self._resume()
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
                self._buffer.clear()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _request_id(self) -> bytes:
        return f"{new_ulid(self._services.clock)}-{self._services.region()}".encode()


class HttpConnections:
    """All of a process: where they begin, and who watches their time."""

    def __init__(self, services: HttpServices) -> None:
        self._services = services
        self._live: set[HttpConnection] = set()

    def accept(self, door: Door, *, tls: AppName | None = None) -> HttpConnection:
        return HttpConnection(self._services, door, self._live, tls=tls)

    def check_time(self) -> None:
        """To be called a few times a second."""
        now = self._services.clock.monotonic()
        for connection in list(self._live):
            connection.check_time(now)
