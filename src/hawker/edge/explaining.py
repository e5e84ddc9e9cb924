"""What would become of a request, in words, without sending one: which listener, which app, which certificate, which
machines and how each stands. Pure; asked of the same routes and gates that decide.
"""

from collections.abc import Sequence
from math import isinf

from hawker.edge.certificates import CertificateBook
from hawker.edge.gates import Gate, Gates, hard_limit, soft_limit
from hawker.edge.routes import Door, Routes, ServiceTarget
from hawker.edge.steering import NOWHERE_SAID, tiers
from hawker.edge.visits import stands
from hawker.feed import AskRoute, ExplainedDoor, RouteCandidate

SELF_SIGNED = "self-signed"


def explain(
    asked: AskRoute, routes: Routes, gates: Gates, book: CertificateBook, now: float
) -> tuple[ExplainedDoor, ...]:
    """One for each address where anybody publishes the port. Of other apps nothing is said but that they are meant."""
    doors = sorted(door for door in routes.doors if door.port == asked.port and door.udp is asked.udp)
    return tuple(_explained(asked, door, routes, gates, book, now) for door in doors)


def _explained(
    asked: AskRoute, door: Door, routes: Routes, gates: Gates, book: CertificateBook, now: float
) -> ExplainedDoor:
    first = routes.first_app(door)
    shown = None if first is None else routes.newest(door, first)
    speaks = "" if shown is None else _speaks(shown)
    if shown is not None and shown.ends_tls is not asked.tls:
        words = "the port speaks TLS: ask for https://" if shown.ends_tls else "the port speaks no TLS: ask for http://"
        return ExplainedDoor(address=door.address, port=door.port, speaks=speaks, outcome=words)
    app = first
    if asked.tls or (shown is not None and shown.serves_http):
        app = routes.app_named(door, asked.host, book.app_of(asked.host), tls=asked.tls)
    target = None if app is None else routes.newest(door, app)
    if app is None or target is None:
        return ExplainedDoor(address=door.address, port=door.port, speaks=speaks, outcome="nobody here has the name")
    if app != asked.app:
        return ExplainedDoor(address=door.address, port=door.port, speaks=speaks, outcome="another app is meant")
    certificate = _certificate(asked, target, book) if asked.tls else ""
    if asked.tls and not certificate:
        words = f"PT05: there is no certificate for {asked.host}: import one, or set default_self_signed"
        return ExplainedDoor(address=door.address, port=door.port, speaks=_speaks(target), outcome=words)
    targets = sorted(routes.apps(door)[app].values(), key=lambda each: each.machine.id)
    outcome, candidates = _chosen(targets, routes.region, gates, now)
    if target.port.force_https and not asked.tls:
        outcome = f"301 to https://{asked.host}:{routes.https_port(door.address, app)}"
    return ExplainedDoor(
        address=door.address,
        port=door.port,
        speaks=_speaks(target),
        outcome=outcome,
        certificate=certificate,
        candidates=candidates,
    )


def _speaks(target: ServiceTarget) -> str:
    if target.ends_tls:
        return "https" if target.serves_http else "tls"
    if target.is_udp:
        return "udp"
    return "http" if target.serves_http else "tcp"


def _certificate(asked: AskRoute, target: ServiceTarget, book: CertificateBook) -> str:
    found, options = book.find(asked.host), target.port.tls_options
    if found is not None:
        return found.hostname
    return SELF_SIGNED if options and options.default_self_signed else ""


def _chosen(
    targets: Sequence[ServiceTarget], here: str, gates: Gates, now: float
) -> tuple[str, tuple[RouteCandidate, ...]]:
    chosen, waking = None, list[Gate]()
    for tier in tiers(targets, here, NOWHERE_SAID):
        chosen, waking = gates.choose(tier, now), gates.to_wake(tier, 1, now)
        if chosen is not None or waking or gates.to_hold(tier, now) is not None:
            break
    candidates = tuple(_candidate(each, gates, now, chosen=each is chosen) for each in targets)
    if chosen is not None and chosen.machine.gate is not None and chosen.machine.region:
        place = f"region {chosen.machine.region}, where host {chosen.machine.gate.node} chooses"
        return f"nobody in region {here} can take it: goes to {place}", candidates
    if chosen is not None:
        return f"goes to machine {chosen.machine.id}", candidates
    if waking:
        return f"waits until machine {waking[0].route.id} is started for it", candidates
    if gates.may_open(targets):
        return "waits for a machine that has room, or comes up", candidates
    return "PR01: no machine of the app can take it", candidates


def _candidate(target: ServiceTarget, gates: Gates, now: float, *, chosen: bool) -> RouteCandidate:
    gate, hard = gates.of.get(target.machine.id), hard_limit(target)
    return RouteCandidate(
        machine=target.machine.id,
        state=str(target.machine.state),
        stands="unknown" if gate is None else stands(gate, now),
        internal_port=target.service.internal_port or 0,
        in_flight=0 if gate is None else gate.in_flight.get(target.number, 0),
        soft_limit=soft_limit(target),
        hard_limit=0 if isinf(hard) else int(hard),
        chosen=chosen,
    )
