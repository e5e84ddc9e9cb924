"""What would become of a request, in words, without sending one: which listener, which app, which certificate, which
machines and how each stands, and what the request itself says that changes it. Pure; asked of the same routes and gates
that decide.
"""

from collections.abc import Callable, Iterable
from math import isinf

from msgspec.structs import replace

from hawker.edge.asked_request import head_of, order_of, plain_notes, request_notes, steering_notes
from hawker.edge.certificates import CertificateBook, may_show
from hawker.edge.gates import Gates, hard_limit, soft_limit
from hawker.edge.head import RequestHead
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.replay import replayed_to
from hawker.edge.replay_cache import ReplayRoutes, asked_for, rules_of, skips_cache
from hawker.edge.routes import Door, Routes, ServiceTarget
from hawker.edge.steering import Aim, Steering, meant, steering_of, tiers
from hawker.edge.visits import stands
from hawker.edge.writing import CHALLENGES
from hawker.feed import API_APP, MachineRoute
from hawker.ids import MachineId
from hawker.names import is_outside
from hawker.route_question import AskedRequest, AskRoute, ExplainedDoor, RouteCandidate
from hawker.value_object import ValueObject

SELF_SIGNED = "self-signed"


class _Way(ValueObject, frozen=True, kw_only=True):
    """What becomes of it. `taker` is the machine that gets it, where that is known here."""

    outcome: str
    taker: MachineRoute | None = None
    candidates: tuple[RouteCandidate, ...] = ()
    notes: tuple[str, ...] = ()


class Explainer:
    """Explains what would become of a request. `believes` says whether an address is a balancer's, `challenge` what the
    edge answers a certificate authority that asks for a token at a host, at a door."""

    def __init__(
        self,
        routes: Routes,
        gates: Gates,
        book: CertificateBook,
        replays: ReplayRoutes,
        believes: Callable[[str], bool],
        challenge: Callable[[Door, str, str], str | None],
    ) -> None:
        self._routes = routes
        self._gates = gates
        self._book = book
        self._replays = replays
        self._believes = believes
        self._challenge = challenge

    def explain(self, asked: AskRoute, now: float) -> tuple[ExplainedDoor, ...]:
        """One explanation for each address where any app publishes the port. Of other apps it says only that they are
        meant."""
        doors = sorted(door for door in self._routes.doors if door.port == asked.port and door.udp is asked.udp)
        return tuple(self._explained(asked, door, now) for door in doors)

    def _explained(self, asked: AskRoute, door: Door, now: float) -> ExplainedDoor:
        first = self._routes.first_app(door)
        shown = None if first is None else self._routes.newest(door, first)
        speaks = "" if shown is None else _speaks(shown)
        certificate = ""
        try:
            target = self._target(asked, door, shown)
            speaks = _speaks(target)
            if asked.tls:
                certificate = self._certificate(asked, target)
            way = self._way(asked, door, target, now)
        except _NowhereError as error:
            way = _Way(outcome=str(error))
        except ProxyError as error:
            way = _Way(outcome=_refused(error))
        return ExplainedDoor(
            address=door.address,
            port=door.port,
            speaks=speaks,
            outcome=way.outcome,
            certificate=certificate,
            candidates=way.candidates,
            notes=way.notes,
        )

    def _target(self, asked: AskRoute, door: Door, shown: ServiceTarget | None) -> ServiceTarget:
        """Of the asked app, which decides how it is spoken to. Raises `_NowhereError` where another one is meant, or
        nobody, and `ProxyError`."""
        target = shown
        if shown is not None and shown.ends_tls is not asked.tls:
            raise _NowhereError(f"the port speaks {'' if shown.ends_tls else 'no '}TLS: ask for {_speaks(shown)}://")
        if asked.tls or (shown is not None and shown.serves_http):
            target = self._named(door, asked.host if asked.tls else head_of(asked).host, tls=asked.tls)
        if target is None:
            raise _NowhereError("nobody here has the name")
        if target.machine.app == API_APP:
            raise _NowhereError("the Machines API is meant: the host name is the node's own")
        if target.machine.app != asked.app:
            raise _NowhereError("another app is meant")
        if asked.request.source and is_outside(door.address, asked.request.source):
            raise _NowhereError("the host drops it: only the address's own private network reaches it")
        return target

    def _named(self, door: Door, host: str, *, tls: bool) -> ServiceTarget | None:
        app = self._routes.app_named(door, host, self._book.app_of(host), tls=tls)
        return None if app is None else self._routes.newest(door, app)

    def _certificate(self, asked: AskRoute, target: ServiceTarget) -> str:
        """Raises `_NowhereError`."""
        found, options = self._book.find(asked.host), target.port.tls_options
        if found is not None and not may_show(found, target.machine.app, asked.host):
            raise _NowhereError(f"PT05: the certificate for {found.hostname} is not this app's to show")
        if found is not None:
            return found.hostname
        if options and options.default_self_signed:
            return SELF_SIGNED
        raise _NowhereError(f"PT05: there is no certificate for {asked.host}: import one, or set default_self_signed")

    def _way(self, asked: AskRoute, door: Door, target: ServiceTarget, now: float) -> _Way:
        """Raises `ProxyError`."""
        request, aim = asked.request, Aim(door, asked.app)
        if target.serves_http:
            way = self._of_request(asked, door, target, now)
        else:
            way = self._chosen(aim, now)
            way = replace(way, notes=tuple(plain_notes(request, target, _speaks(target))))
        if request.source and not asked.udp and self._believes(request.source):
            head = f"{request.source}: a balancer's, so a PROXY head comes first, and its client is meant"
            way = replace(way, notes=(head, *way.notes))
        return way

    def _of_request(self, asked: AskRoute, door: Door, target: ServiceTarget, now: float) -> _Way:
        head, routes, app = head_of(asked), self._routes, asked.app
        named = self._named(door, head.host, tls=asked.tls)
        if named is None or named.machine.app != app:
            raise ProxyError(Code.HB05)
        if not asked.tls and self._proves(door, head):
            return _Way(outcome="the edge answers it: a certificate authority asks for a host name's proof")
        client = steering_of(head.fields)
        aim, kept = self._as_kept(Aim(door, app, client), head, target, now)
        way = self._onward(aim, target.machine, now)
        notes = (*request_notes(asked.request, head), *self._steered(aim, client, way), *kept)
        if target.port.force_https and not asked.tls:
            outcome = f"301 to https://{head.host}:{routes.https_port(door.address, app)}"
            return _Way(outcome=outcome, candidates=way.candidates, notes=notes)
        if asked.request.replay:
            way = self._replayed(asked.request, aim, way, now)
        return replace(way, notes=(*notes, *way.notes))

    def _proves(self, door: Door, head: RequestHead) -> bool:
        if head.method not in (b"GET", b"HEAD") or not head.target.startswith(CHALLENGES):
            return False
        return self._challenge(door, head.host, head.target.removeprefix(CHALLENGES).decode("latin-1")) is not None

    def _steered(self, aim: Aim, client: Steering, way: _Way) -> Iterable[str]:
        """A replay that is kept comes before what the client says."""
        if aim.inside:
            return ()
        there = self._routes.apps(aim.door).get(aim.app, {}).values()
        regions = {each.machine.region or self._routes.region for each in there}
        return steering_notes(client, way.taker.id if way.taker is not None else None, regions)

    def _as_kept(self, aim: Aim, head: RequestHead, target: ServiceTarget, now: float) -> tuple[Aim, tuple[str, ...]]:
        """Where such a request was replayed to before."""
        skips = skips_cache(head.fields)
        question = asked_for(aim.app, head.host, head.target, head.fields, rules_of(target))
        found = self._replays.find(question, now)
        if found is None or not self._routes.are_joined(aim.app, found.order.app or aim.app):
            return aim, ("fly-replay-cache-control: no replay is kept for such requests",) if skips else ()
        if skips and found.bypass:
            return aim, ("fly-replay-cache-control: the replay that is kept is passed over",)
        note = f"machine {found.origin} has had such a request replayed: that is kept for {found.until - now:.0f} s"
        notes = (note, "fly-replay-cache-control: the app does not let clients pass over it") if skips else (note,)
        order = found.order
        return Aim(aim.door, order.app or aim.app, replayed_to(order, {found.origin}), inside=True), notes

    def _replayed(self, asked: AskedRequest, aim: Aim, way: _Way, now: float) -> _Way:
        """As if the machine that gets it answered with this order. Raises `ProxyError`."""
        order = order_of(asked)
        if way.taker is None:
            return replace(way, notes=(*way.notes, "fly-replay: not followed, since no machine here gets the request"))
        machine, app = way.taker, order.app or way.taker.app
        had = aim.steering.apart | {machine.id}
        onward = Aim(aim.door, app, replayed_to(order, had), inside=True)
        ordered = f"machine {machine.id} has it replayed"
        if app != machine.app and not self._routes.is_on(app, machine.network):
            return replace(way, outcome=f"{ordered}: {_refused(ProxyError(Code.PA04))}")
        if order.instance is not None and not meant(self._routes, onward):
            return replace(way, outcome=f"{ordered}: {_refused(ProxyError(Code.PA03, known='no machine of the app'))}")
        found = self._onward(onward, machine, now)
        notes = () if order.fallback is None else (f"fallback: {machine.id} gets it again where nobody takes it",)
        return replace(found, outcome=f"{ordered}: {found.outcome}", notes=notes)

    def _onward(self, aim: Aim, machine: MachineRoute, now: float) -> _Way:
        """Of another app of the machine's network only its name is told."""
        if aim.app != machine.app:
            return _Way(outcome=f"goes to app {aim.app} of its network")
        return self._chosen(aim, now)

    def _chosen(self, aim: Aim, now: float) -> _Way:
        routes, gates, steering = self._routes, self._gates, aim.steering
        targets = meant(routes, aim)
        chosen, waking = self._first(targets, steering, now)
        if (steering.force or steering.regions) and not targets:
            outcome = _refused(ProxyError(Code.PR02))
        elif chosen is not None:
            outcome = _goes_to(chosen, steering, routes.region)
        elif waking is not None:
            outcome = f"waits until machine {waking.id} is started for it"
        elif gates.may_open(targets):
            outcome = "waits for a machine that has room, or comes up"
        else:
            outcome = "PR01: no machine of the app can take it"
        there = routes.inside(aim.app, aim.door.port) if aim.inside else routes.apps(aim.door).get(aim.app, {})
        taker = waking if chosen is None else None if chosen.machine.region else chosen.machine
        chosen_id, asked = None if chosen is None else chosen.machine.id, {each.machine.id for each in targets}
        candidates = tuple(self._candidate(there[each], chosen_id, each in asked, now) for each in sorted(there))
        return _Way(outcome=outcome, taker=taker, candidates=candidates)

    def _first(
        self, targets: list[ServiceTarget], steering: Steering, now: float
    ) -> tuple[ServiceTarget | None, MachineRoute | None]:
        """Who takes it now, or who is started for it."""
        preferred = [each for each in targets if each.machine.id == steering.prefer and not each.machine.region]
        chosen = self._gates.choose(preferred, now)
        if chosen is not None:
            return chosen, None
        for tier in tiers(targets, self._routes.region, steering):
            chosen, waking = self._gates.choose(tier, now), self._gates.to_wake(tier, 1, now)
            if chosen is not None or waking or self._gates.to_hold(tier, now) is not None:
                return chosen, waking[0].route if waking else None
        return None, None

    def _candidate(self, target: ServiceTarget, chosen: MachineId | None, asked: bool, now: float) -> RouteCandidate:
        gate, hard = self._gates.of.get(target.machine.id), hard_limit(target)
        stand = "unknown" if gate is None else stands(gate, now)
        return RouteCandidate(
            machine=target.machine.id,
            state=str(target.machine.state),
            stands=stand if asked else f"{stand}; the request is for others",
            internal_port=target.service.internal_port or 0,
            in_flight=0 if gate is None else gate.in_flight.get(target.number, 0),
            soft_limit=soft_limit(target),
            hard_limit=0 if isinf(hard) else int(hard),
            chosen=target.machine.id == chosen,
        )


class _NowhereError(Exception):
    """It comes to no machine of the app, and why."""


def _refused(error: ProxyError) -> str:
    return f"{error.code.name}: {error.whole}"


def _speaks(target: ServiceTarget) -> str:
    if target.ends_tls:
        return "https" if target.serves_http else "tls"
    if target.is_udp:
        return "udp"
    return "http" if target.serves_http else "tcp"


def _goes_to(chosen: ServiceTarget, steering: Steering, here: str) -> str:
    machine = chosen.machine
    if machine.gate is None or not machine.region:
        return f"goes to machine {machine.id}"
    if steering.force is not None:
        return f"goes to region {machine.region}, where host {machine.gate.node} knows of machine {steering.force}"
    place = f"region {machine.region}, where host {machine.gate.node} chooses"
    if steering.regions or steering.preferred:
        return f"goes to {place}"
    return f"nobody in region {here} can take it: goes to {place}"
