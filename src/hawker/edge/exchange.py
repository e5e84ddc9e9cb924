"""One request, from its head to the end of its answer: which app, which machine, where a machine has it replayed. The
same for each way in which clients speak; how a request is framed is the client's matter.

What a request can hold of this process is bounded: what its two ends have not read (256 KiB each), and what is kept of
its body to be sent again.
"""

from collections.abc import Callable
from functools import partial
from math import inf

import anyio
from msgspec.structs import replace

from hawker.config.machine import HttpOptions, ReplayCache
from hawker.edge.body import BODY_S, KEPT_BYTES, BodyPace, KeptBody, Trailer
from hawker.edge.compression import Packer, packed
from hawker.edge.dialing import Joined
from hawker.edge.head import IDEMPOTENT, Field, RequestHead, ResponseHead
from hawker.edge.machine_connection import MachineConnection
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.replay import (
    MAX_JSON_BYTES,
    MAX_REPLAYS,
    Fallback,
    Replay,
    is_replay,
    read_replay,
    replay_failed,
    replay_source,
    replayed_to,
    wants_body,
)
from hawker.edge.replay_cache import ReplayQuestion, asked_for, cache_status, rules_of, skips_cache
from hawker.edge.requester import HttpServices, Requester
from hawker.edge.routes import Door, ServiceTarget
from hawker.edge.splice import pass_both_ways
from hawker.edge.steering import UNAVAILABLE, Aim, Steering, steering_of
from hawker.edge.visits import Visit
from hawker.edge.writing import (
    CHALLENGES,
    GRPC,
    Origin,
    OwnAnswer,
    answer_fields,
    challenge_answer,
    redirect_to_https,
    refusal,
    request_to_machine,
)
from hawker.fair.connections import key_of
from hawker.feed import EdgeLogLine
from hawker.ids import AppName
from hawker.value_object import ValueObject

_LEFT_S = 0.2
"""Seconds that a client keeps its place in a queue after its end of the connection."""
_MAX_INTERIM = 8
_NO_OPTIONS, _SILENT = HttpOptions(), Code.PU03
_ANSWERS = tuple(f"answers_{digit}xx" for digit in range(10))


class _Leg(ValueObject, frozen=True, kw_only=True):
    """A way of the request to a machine. `order` is the replay that led to it, `source` the machine that gave it, at
    `came_from`; `lines` are fields that say so. A `last` one may not be replayed."""

    aim: Aim
    head: RequestHead
    lines: bytes = b""
    order: Replay | None = None
    source: ServiceTarget | None = None
    came_from: Aim | None = None
    cached: bool = False
    last: bool = False


class HttpExchange:
    """One request and its answer. `tls` is the app that the connection's TLS is for. Keeps `RequestSource`."""

    __slots__ = ("_app", "_asked_at", "_began", "_client", "_door", "_head", "_held", "_idle_s", "_kept", "_lines",
                 "_machine", "_now", "_origin", "_pace", "_packer", "_repeated", "_services", "_tls", "_way", "_whole",
                 "_why_late", "answered", "deadline", "done", "overdue", "request_id")  # fmt: skip

    def __init__(
        self,
        services: HttpServices,
        client: Requester,
        door: Door,
        tls: AppName | None,
        origin: Origin,
        lines: bytes,
        head: RequestHead,
    ) -> None:
        self._services = services
        self._client = client
        self._door = door
        self._tls = tls
        self._origin = origin
        self._lines = lines
        self._head = head
        self._now = services.clock.monotonic
        self._began = self._now()
        self._machine: MachineConnection | None = None
        self._app: AppName | None = None
        self._held = False  # it waits for a machine
        self._repeated = False
        self._way: tuple[_Leg, Joined[MachineConnection]] | None = None  # that it goes
        self._kept = KeptBody(services.kept)
        self._asked_at = 0.0  # when the machine was
        self._whole: tuple[Trailer, ...] | None = None if head.has_body else ()
        self._idle_s = 0.0
        self._pace: BodyPace | None = None  # while more of the body must come
        self._packer: Packer | None = None
        self._why_late = _SILENT
        self.answered = False  # the head of an answer is written
        self.done = False  # the answer is whole
        self.deadline = inf
        self.overdue: ProxyError | None = None
        self.request_id = services.new_request_id()

    async def run(self) -> None:
        """Serve the request. Whatever goes wrong is answered. Addresses take turns."""
        try:
            key, entrance = key_of(self._origin.client), self._services.entrance
            if not entrance.comes_in(key):
                await entrance.wait(key)
            found = self._first_leg()
            if found is not None:
                await self._follow(*found)
        except ProxyError as error:
            self.refuse(error)
        finally:
            self._machine = self._way = None  # no circle is left: who collects those stops everybody
            self._kept.drop()
            self.deadline = inf

    @property
    def takes_body(self) -> bool:
        return self._machine is not None and self._whole is None

    @property
    def heard_all(self) -> bool:
        """Whether the request's body is whole."""
        return self._whole is not None

    def take(self, content: bytes) -> None:
        """Pass bytes of the request's body on to the machine."""
        if self._machine is None:
            return
        if self._app is not None:
            self._kept.keep(self._services.routes.owner(self._app), content)
        self._machine.send(content)
        self._services.counters.add("bytes_in", len(content))
        self._services.figures.received(self._app, len(content))
        if self._pace is not None:
            self._pace.took(len(content))
            self.deadline = self._pace.deadline(self._now(), answered=self.answered)

    def take_end(self, trailers: tuple[Trailer, ...]) -> None:
        self._whole, self._pace = trailers, None
        if self._machine is not None:
            self._machine.finish(trailers)
        self._why_late, self.deadline = _SILENT, self._now() + self._idle_s if self._idle_s else inf

    def may_read(self, *, reading: bool) -> None:
        self._client.may_read(reading=reading)

    def host_unheard(self) -> None:
        """A request that may be repeated goes elsewhere at once: the machine's host is probably gone."""
        if self._machine is not None and self._way is not None and self._elsewhere(*self._way) is not None:
            self._machine.abort()

    def client_may_read(self, *, reading: bool) -> None:
        """Note whether the client takes more of the answer now."""
        if self._machine is not None:
            self._machine.may_read(reading=reading)

    def client_left(self) -> None:
        """The client has said its last. If it waits for a machine its place is given back in a moment."""
        if self._held:
            self.deadline = self._now() + _LEFT_S

    def is_late(self, now: float, *, blocked: bool) -> bool:
        """To be called now and then: whether the request's time is over, and `overdue` says why. `blocked`: the machine
        takes no more of the body, so the client is not late."""
        if now < self.deadline:
            return False
        if blocked and self._machine is not None:
            self.deadline = now + BODY_S
            if self._pace is not None:
                self._pace.excuse(now)
            return False
        self.deadline = inf
        self.overdue = None if self._held else ProxyError(self._why_late)
        return True

    def refuse(self, error: ProxyError) -> None:
        """Answer with this error, unless an answer is under way: that is broken off then."""
        self._services.counters.add(f"errors_{error.code.name}", app=self._app)
        if self._app is not None:
            self._services.say(EdgeLogLine(app=self._app, code=error.code.name, text=error.whole))
        if self.answered:
            self._client.break_off()
        else:
            grpc = any(name == b"content-type" and value.startswith(GRPC) for name, value in self._head.fields)
            self._say(refusal(error, self.request_id, grpc=grpc))

    def _say(self, answer: OwnAnswer) -> None:
        self._client.say(answer)
        self._services.figures.answered(self._app, answer.status, self._now() - self._began)
        self._services.figures.sent(self._app, len(answer.body))
        self.answered = True

    def _first_leg(self) -> tuple[_Leg, tuple[ReplayCache, ...]] | None:
        """The way to the app, and what its config says of replays; None where an answer of our own was enough. Raises
        `ProxyError`."""
        head = self._head
        if self._tls is None and head.target.startswith(CHALLENGES):
            proof = self._challenge(head)
            if proof is not None:
                self._say(challenge_answer(proof, self.request_id))
                return None
        self._app = app = self._find(head)
        target = self._services.routes.newest(self._door, app)
        if target is not None and target.port.force_https and self._tls is None:
            port = self._services.routes.https_port(self._door.address, app)
            self._say(redirect_to_https(head, port, self.request_id))
            return None
        return _Leg(aim=Aim(self._door, app, steering_of(head.fields)), head=head), rules_of(target)

    def _challenge(self, head: RequestHead) -> str | None:
        """Before any redirect, in plain HTTP, whatever app's door it is; other tokens are the machine's matter."""
        if head.method not in (b"GET", b"HEAD"):
            return None
        token = head.target.removeprefix(CHALLENGES).decode("latin-1")
        return self._services.challenge(self._door, head.host, token)

    def _find(self, head: RequestHead) -> AppName:
        """The app that is asked for. Raises `ProxyError`, also where TLS was for another one."""
        host, tls = head.host, self._tls
        app = self._services.routes.app_named(self._door, host, self._services.claimer(host), tls=tls is not None)
        if tls is not None and app != tls:
            raise ProxyError(Code.HB05)
        if app is None:
            raise ProxyError(Code.HB06)
        return app

    async def _follow(self, first: _Leg, rules: tuple[ReplayCache, ...]) -> None:
        """To a machine, and on to others for as long as machines say so."""
        asked = partial(asked_for, first.aim.app, first.head.host, first.head.target, first.head.fields, rules)
        leg, skipped = self._from_cache(first, asked)
        replays = 0
        while True:
            try:
                found = await self._send(leg)
            except ProxyError as error:
                if not leg.cached or self.answered or error.code in (Code.PU02, Code.PU03):
                    raise
                self._services.replays.forget(asked())  # its target is not reached: the app is asked again
                leg = first
                continue
            if found is None:
                return
            order, source, leg = found
            if order.cache is not None and order.cache.forget:
                self._services.replays.forget(asked())
            replays += 1
            if leg.last or replays > MAX_REPLAYS:
                raise ProxyError(Code.PA02)
            self._services.counters.add("replays", app=self._app)
            if not self._may_reach(source, app := order.app or source.machine.app):
                raise ProxyError(Code.PA04, known=f"app {app} is not on the network of app {source.machine.app}")
            kept = not replays > 1 and self._services.replays.keep(asked(), order, source.machine.id, self._now())
            leg = self._next(leg, order, source, status=b"bypass" if skipped else b"miss" if kept else b"")

    def _from_cache(self, leg: _Leg, asked: Callable[[], ReplayQuestion]) -> tuple[_Leg, bool]:
        """The leg that was ordered for such a request before, if one is known; whether the client skips it."""
        found = self._services.replays.find(asked(), self._now()) if len(self._services.replays) else None
        if found is None:
            return leg, False
        if found.bypass and skips_cache(leg.head.fields):
            return leg, True
        app, routes = found.order.app or leg.aim.app, self._services.routes
        if not routes.are_joined(leg.aim.app, app):  # any more
            self._services.replays.forget(asked())
            return leg, False
        self._services.counters.add("replays_cached", app=self._app)
        aim = Aim(self._door, app, replayed_to(found.order, {found.origin}), inside=True)
        return replace(leg, aim=aim, lines=cache_status(b"hit"), order=found.order, cached=True), False

    def _next(self, leg: _Leg, order: Replay, source: ServiceTarget, status: bytes) -> _Leg:
        """Where a machine sends its request. Raises `ProxyError` where it may not."""
        app, region = order.app or source.machine.app, source.machine.region or self._services.region()
        if self._kept.pieces is None:
            raise ProxyError(Code.PA01, known=f"more than {KEPT_BYTES >> 10} KiB of its body have come")
        had = leg.aim.steering.apart | {source.machine.id}
        aim = Aim(self._door, app, replayed_to(order, had), inside=True)
        if order.instance is not None and not self._services.visits.found(aim):
            raise ProxyError(Code.PA03, known=f"fly-replay: machine {order.instance} is none of app {app}")
        lines = replay_source(source.machine.id, region, self._services.clock.now(), order.state) + cache_status(status)
        head = leg.head if order.transform is None else order.transform.apply(leg.head)
        return _Leg(aim=aim, head=head, lines=lines, order=order, source=source, came_from=leg.aim)

    def _may_reach(self, source: ServiceTarget, app: AppName) -> bool:
        """Its own, or one of the same organization and network: no number of a network is two organizations'."""
        return app == source.machine.app or self._services.routes.is_on(app, source.machine.network)

    async def _send(self, leg: _Leg) -> tuple[Replay, ServiceTarget, _Leg] | None:
        """What a machine has said instead of an answer, which one, and how the request came there. A request that no
        machine is known to have had goes to another one, if it may be done twice: once."""
        began, cause = self._now(), None
        while True:
            if leg.order is None:
                visit = self._services.visits.begin_at_once(leg.aim)
                kept = None if visit is None or self._repeated else self._services.machines.take(leg.head, visit)
                if visit is not None and kept is not None:
                    joined = Joined(visit, kept)
                else:
                    joined = await self._reach(leg.aim, began, cause, leg.head, visit)
            else:
                joined, leg = await self._reach_or_return(leg, leg.order)
            self._way = leg, joined
            try:
                order = await self._converse(leg, joined)
                return None if order is None else (order, joined.visit.reached, leg)
            except ProxyError:
                cause = joined.protocol.refusal
                if cause is not None:
                    continue  # its gate did not let it in
                again = self._elsewhere(leg, joined)
                if again is None:
                    raise
                began, leg, self._repeated = self._now(), again, True
                self._services.counters.add("retries", app=self._app)
            finally:
                if self._machine is not None:
                    self._machine.abort()
                    self._machine = None
                self._services.visits.end(joined.visit)

    def _elsewhere(self, leg: _Leg, joined: Joined[MachineConnection]) -> _Leg | None:
        """A connection that rested may have been closed by the machine just as it was used again; of one that is new,
        nobody knows how far the machine came, so the request goes to another one."""
        silent = joined.protocol.silent and not self.answered and not self._repeated
        if not silent or self._head.method not in IDEMPOTENT or self._kept.pieces is None or self._client.gone:
            return None
        if joined.protocol.rested:
            return leg
        visit, steering = joined.visit, leg.aim.steering
        aim = replace(leg.aim, steering=steering.without(visit.target.machine.id, visit.reached.machine.id))
        others = steering.force is None and self._services.visits.found(aim)
        return replace(leg, aim=aim) if others else None

    async def _reach_or_return(self, leg: _Leg, order: Replay) -> tuple[Joined[MachineConnection], _Leg]:
        """A replay that finds nobody goes back to where it came from, if the app has said so."""
        began = self._now()
        try:
            with anyio.fail_after(order.timeout_s):
                return await self._reach(leg.aim, began), leg
        except TimeoutError:
            reason, cause = "timeout", ProxyError(Code.PR04)
        except ProxyError as error:
            reason = "no_candidate" if error.code in (Code.PR01, Code.PR02) else "retries_exhausted"
            cause = error
        if order.fallback is None or leg.source is None or leg.came_from is None:
            raise cause
        self._services.counters.add("replays_failed", app=self._app)
        origin = leg.source.machine.id
        failed = replay_failed(order, leg.aim.app, origin, reason, self._now() - began)
        back = Steering(force=origin) if order.fallback is Fallback.FORCE_SELF else Steering(prefer=origin)
        leg = _Leg(aim=replace(leg.came_from, steering=back), head=self._head, lines=failed, last=True)
        return await self._reach(leg.aim, self._now()), leg

    async def _reach(
        self,
        aim: Aim,
        began: float,
        cause: ProxyError | None = None,
        first: RequestHead | None = None,
        visit: Visit | None = None,
    ) -> Joined[MachineConnection]:
        """`first`: the request may ask the gate of another host itself, if it can be done twice. `visit`: it has begun,
        and found no connection to use again."""
        self._held, self.deadline = True, self._now() + _LEFT_S if self._client.leaving else inf
        machines = self._services.machines
        rested = (lambda visit: None) if self._repeated else partial(machines.take, first)
        try:
            return await self._services.dialer.reach(aim, began, machines.make, rested=rested, cause=cause, visit=visit)
        finally:
            self._held, self.deadline = False, inf

    async def _converse(self, leg: _Leg, joined: Joined[MachineConnection]) -> Replay | None:
        machine, target, machines = joined.protocol, joined.visit.reached, self._services.machines
        pooled = machines.may_keep(machine, target)
        options = target.port.http_options or _NO_OPTIONS
        self._idle_s, self._why_late = float(options.idle_timeout or 0), _SILENT
        self._begin(leg, joined, pooled=pooled)
        answer = await machine.answer_head(self._head.method)
        if answer.status < 200:
            answer = await self._final_head(answer, machine, target)
        self._services.figures.machine_answered(target.machine, answer.status, self._now() - self._asked_at)
        if answer.status != 101 and is_replay(answer):
            body = await machine.small_body(answer, MAX_JSON_BYTES) if wants_body(answer) else b""
            order = read_replay(answer, body)
            if wants_body(answer) and pooled and self.heard_all:
                machines.keep(machine, target)
            else:
                machine.close()
            self._machine = None
            return order
        self._kept.drop()
        shown, self._packer = packed(answer, leg.head.fields) if options.compress else (answer, None)
        fields = answer_fields(shown, self.request_id, target.port)
        self._services.figures.answered(self._app, answer.status, self._now() - self._began)
        if answer.status == 101:
            await self._upgraded(answer, fields, joined)
            return None
        self.answered = True
        if self._pace is not None:
            self.deadline = self._pace.deadline(self._now(), answered=True)
        self._client.answer(shown, fields)
        self._services.counters.add(_ANSWERS[answer.status // 100])
        if not machine.begin_body(answer, self._pass):
            await machine.rest_of_body()
        if self._packer is not None:
            self._write(self._packer.end())
        self._client.finish(machine.trailers)
        self.done = True
        if pooled and answer.keep_alive and not answer.until_close and self.heard_all:
            machines.keep(machine, target)
        else:
            machine.close()
        self._machine = None
        return None

    def _begin(self, leg: _Leg, joined: Joined[MachineConnection], *, pooled: bool) -> None:
        """The request goes to the machine: with what was kept of its body, and on with what comes."""
        head, machine = leg.head, joined.protocol
        lines, steering = self._lines + leg.lines, leg.aim.steering
        if steering.prefer not in (None, joined.visit.reached.machine.id):
            lines += b"%b: %b\r\n" % (UNAVAILABLE, str(steering.prefer).encode("latin-1"))
        self._machine, self._asked_at = machine, self._now()
        written = request_to_machine(head, self._origin, lines, self.request_id, pooled=pooled)
        machine.ask(self, written, chunked=head.chunked)
        if self._client.choked:
            machine.may_read(reading=False)
        if self._idle_s:
            self.deadline = self._now() + self._idle_s
        if not head.has_body:
            return
        for content in self._kept.pieces or ():
            machine.send(content)
        if self._whole is not None:
            machine.finish(self._whole)
            return
        now = self._now()
        self._why_late, self._pace = Code.HB04, BodyPace(now, self._idle_s or BODY_S)
        self.deadline = self._pace.deadline(now, answered=False)
        if head.expects_continue and not self._kept.size:
            self._client.proceed()
        self._client.begin_body()

    def _pass(self, content: bytes) -> None:
        self._write(content if self._packer is None else self._packer.pack(content))
        if self._idle_s:
            self.deadline = self._now() + self._idle_s

    def _write(self, content: bytes) -> None:
        self._client.write(content)
        self._services.figures.sent(self._app, len(content))

    async def _final_head(
        self, answer: ResponseHead, machine: MachineConnection, target: ServiceTarget
    ) -> ResponseHead:
        """Interim answers are passed on; 100 we have said ourselves."""
        for _ in range(_MAX_INTERIM + 1):
            if not answer.interim:
                if answer.status == 101 and not self._head.upgrade:
                    raise ProxyError(Code.PU02, known="the machine changes protocols, and nobody asked for it")
                return answer
            if answer.status != 100:
                self._client.interim(answer, answer_fields(answer, self.request_id, target.port))
            answer = await machine.answer_head(self._head.method)
        raise ProxyError(Code.PU02, known="the machine sends interim answers without an end")

    async def _upgraded(self, answer: ResponseHead, fields: list[Field], joined: Joined[MachineConnection]) -> None:
        """From now on bytes both ways. It counts in the machine until it ends."""
        machine = joined.protocol
        self.answered, self.deadline, self._machine = True, inf, None
        joined.visit.last()
        self._services.counters.add("upgrades", app=self._app)
        taken = self._client.hand_over(answer, fields)
        if taken is None or machine.transport is None:
            machine.abort()
            return
        figures, app = self._services.figures, self._app
        heard = partial(figures.received, app), partial(figures.sent, app)
        transport, early = taken
        await pass_both_ways((transport, early), (machine.transport, machine.taken_over()), *heard)
