"""Where a request would go, in words."""

from pathlib import Path

import msgspec

from hawker.clock import SystemClock
from hawker.config.machine import Port, TlsOptions
from hawker.edge.certificates import CertificateBook
from hawker.edge.explaining import explain
from hawker.edge.gates import Gates
from hawker.edge.routes import Routes
from hawker.feed import AskRoute, ExplainedDoor, GatePlace, MachineRoute, RouteHealth, SealedCertificate
from hawker.ids import AppName, NodeId
from hawker.machine import State
from tests.edge.edge_kit import HOST, route, seen_from_abroad

WEB = ("http",)


def said(
    host: str,
    port: int,
    *machines: MachineRoute,
    tls: bool = False,
    app: str = "shop",
    hostname: str = "",
    udp: bool = False,
) -> tuple[ExplainedDoor, ...]:
    routes, gates = Routes(), Gates(lambda: 0.5)
    routes.replace(machines, (HOST,))
    for each in machines:
        gates.update(each, 0.0)
    book = CertificateBook(Path("/nowhere"), SystemClock())
    if hostname:
        book.replace([SealedCertificate(hostname=hostname, app=AppName("shop"), sealed=b"")])
    asked = AskRoute(call=1, app=AppName(app), host=host, port=port, tls=tls, udp=udp)
    return explain(asked, routes, gates, book, 0.0)


def test_a_port_of_udp_is_another_one_than_that_of_tcp() -> None:
    datagrams = route(80, 53)
    datagrams = msgspec.structs.replace(
        datagrams, services=tuple(msgspec.structs.replace(each, protocol="udp") for each in datagrams.services)
    )
    (door,) = said("shop.localhost", 80, datagrams, route(80, 8080), udp=True)
    assert door.speaks == "udp" and [each.internal_port for each in door.candidates] == [53]
    (door,) = said("shop.localhost", 80, datagrams, route(80, 8080))
    assert door.speaks == "tcp" and [each.internal_port for each in door.candidates] == [8080]


def test_the_machine_that_would_be_chosen_is_named_and_the_others_say_why_not() -> None:
    up = route(80, 8080, handlers=WEB, soft=3, hard=5)
    sick = msgspec.structs.replace(route(80, 8080, handlers=WEB), health=RouteHealth.CRITICAL)
    away = msgspec.structs.replace(route(80, 8080, handlers=WEB), cordoned=True)
    (door,) = said("shop.localhost", 80, up, sick, away)
    assert (door.address, door.port, door.speaks, door.certificate) == (HOST, 80, "http", "")
    assert door.outcome == f"goes to machine {up.id}"
    first, second, third = door.candidates
    assert first.chosen and (first.soft_limit, first.hard_limit, first.internal_port) == (3, 5, 8080)
    assert not second.chosen and "critical" in second.stands
    assert "cordoned" in third.stands and third.hard_limit == 0


def test_one_that_sleeps_is_started_and_one_that_may_not_is_said_to() -> None:
    asleep = route(80, 1, state=State.STOPPED)
    assert "is started for it" in said("x", 80, asleep)[0].outcome
    assert said("x", 80, route(80, 1, state=State.STOPPED, autostart=False))[0].outcome.startswith("PR01")
    assert "comes up" in said("x", 80, route(80, 1, state=State.STARTING))[0].outcome


def test_a_port_that_nobody_publishes_has_no_listener() -> None:
    assert said("shop.localhost", 81, route(80, 1)) == ()


def test_of_another_app_nothing_is_said_but_that_it_is_meant() -> None:
    (door,) = said("shop.localhost", 80, route(80, 1, app="other"))
    assert door.outcome == "another app is meant" and door.candidates == () and door.speaks == "tcp"


def test_the_scheme_must_be_what_the_port_speaks() -> None:
    assert "ask for http://" in said("shop", 80, route(80, 1, handlers=WEB), tls=True)[0].outcome
    assert "ask for https://" in said("shop", 80, route(80, 1, handlers=("tls", "http")))[0].outcome


def test_the_certificate_that_is_shown_is_named() -> None:
    secure = route(443, 1, handlers=("tls", "http"))
    (door,) = said("a.example.com", 443, secure, tls=True, hostname="*.example.com")
    assert (door.speaks, door.certificate) == ("https", "*.example.com") and door.candidates
    (bare,) = said("a.example.net", 443, secure, tls=True, hostname="*.example.com")
    assert bare.outcome.startswith("PT05") and bare.candidates == ()
    port = Port(port=443, handlers=("tls",), tls_options=TlsOptions(default_self_signed=True))
    service = msgspec.structs.replace(secure.services[0], ports=(port,))
    (own,) = said("a.example.net", 443, msgspec.structs.replace(secure, services=(service,)), tls=True)
    assert (own.speaks, own.certificate) == ("tls", "self-signed")


def test_the_name_of_an_app_that_is_elsewhere_is_nobodys() -> None:
    (door,) = said("a.example.com", 443, route(443, 1, app="x", handlers=("tls",)), tls=True, hostname="a.example.com")
    assert door.outcome == "nobody here has the name"


def test_a_redirect_is_one() -> None:
    plain = route(80, 1, handlers=WEB)
    port = Port(port=80, handlers=WEB, force_https=True)
    plain = msgspec.structs.replace(plain, services=(msgspec.structs.replace(plain.services[0], ports=(port,)),))
    (door,) = said("shop.localhost", 80, plain, route(8443, 1, handlers=("tls", "http")))
    assert door.outcome == "301 to https://shop.localhost:8443"


def test_a_region_that_would_be_asked_is_named_with_its_host() -> None:
    gate = GatePlace(node=NodeId("b" * 8), host="10.0.0.2", port=4291)
    sick = msgspec.structs.replace(route(80, 8080, handlers=WEB), health=RouteHealth.CRITICAL)
    abroad = seen_from_abroad(route(80, 8080, handlers=WEB), gate)
    (door,) = said("shop.localhost", 80, sick, abroad)
    assert door.outcome == "nobody in region local can take it: goes to region iad, where host bbbbbbbb chooses"
    assert [each.chosen for each in door.candidates] == [False, True]
    assert door.candidates[1].stands == "region iad, 0 in flight there, by host bbbbbbbb"
    up = route(80, 8080, handlers=WEB)
    (door,) = said("shop.localhost", 80, up, abroad)
    assert door.outcome == f"goes to machine {up.id}"
    asleep = route(80, 8080, handlers=WEB, state=State.STOPPED)
    (door,) = said("shop.localhost", 80, asleep, abroad)
    assert door.outcome == f"waits until machine {asleep.id} is started for it"
