"""Where a request would go, in words."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from hawker.clock import SystemClock
from hawker.config.machine import Port, TlsOptions
from hawker.edge.certificates import CertificateBook
from hawker.edge.explaining import Explainer
from hawker.edge.gates import Gates
from hawker.edge.replay import CacheOrder, Replay
from hawker.edge.replay_cache import ReplayQuestion, ReplayRoutes
from hawker.edge.routes import Door, Routes
from hawker.feed import (
    API_APP,
    AppAddress,
    GatePlace,
    MachineRoute,
    RouteHealth,
    SealedCertificate,
)
from hawker.ids import AppName, NodeId
from hawker.machine import State
from hawker.route_question import AskedRequest, AskRoute, ExplainedDoor
from hawker.secret.certificates import PLATFORM
from tests.edge.edge_kit import HOST, route, seen_from_abroad

WEB = ("http",)
BALANCER = "10.0.0.9"
NOTHING_SAID = AskedRequest()
PR02 = "PR02: the machine or region that was asked for is not there"
ABROAD = GatePlace(node=NodeId("b" * 8), host="10.0.0.2", port=4291)


def said(
    host: str,
    port: int,
    *machines: MachineRoute,
    tls: bool = False,
    app: str = "shop",
    hostname: str = "",
    udp: bool = False,
    request: AskedRequest = NOTHING_SAID,
    replays: ReplayRoutes | None = None,
    owned: tuple[AppAddress, ...] = (),
    api_hostname: str = "",
    certified: str = "shop",
    domain: str = "",
) -> tuple[ExplainedDoor, ...]:
    routes = Routes()
    gates = Gates(lambda: 0.5, routes.machines)
    routes.replace(machines, (HOST,), owned, api_hostname, domain=domain)
    for each in machines:
        gates.update(each, 0.0)
    book = CertificateBook(Path("/nowhere"), SystemClock())
    if hostname:
        book.replace([SealedCertificate(hostname=hostname, app=AppName(certified), sealed=b"")])
    asked = AskRoute(call=1, app=AppName(app), host=host, port=port, tls=tls, udp=udp, request=request)
    explainer = Explainer(routes, gates, book, replays or ReplayRoutes(), lambda at: at == BALANCER, proof)
    return explainer.explain(asked, 0.0)


def proof(door: Door, host: str, token: str) -> str | None:
    return "proof" if (host, token) == ("shop.localhost", "token") else None


def answer(
    *machines: MachineRoute,
    fields: Sequence[tuple[str, str]] = (),
    method: str = "",
    target: str = "/",
    source: str = "",
    replay: str = "",
    replays: ReplayRoutes | None = None,
) -> ExplainedDoor:
    """To a request at the one door of shop, by plain HTTP."""
    request = AskedRequest(method=method, target=target, fields=tuple(fields), source=source, replay=replay)
    (door,) = said("shop.localhost", 80, *machines, request=request, replays=replays)
    return door


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


def test_a_certificate_that_is_not_shown_for_a_name_is_said_not_to_be() -> None:
    """One of another app for APP.DOMAIN, which is that app's whoever has claimed it; and the platform's for a name that
    is no app's."""
    secure, name = route(443, 1, handlers=("tls", "http")), "shop.example.com"
    (door,) = said(name, 443, secure, tls=True, hostname=name, certified="blog", domain="example.com")
    assert door.outcome == "PT05: the certificate for shop.example.com is not this app's to show"
    assert door.certificate == "" and door.candidates == ()
    (door,) = said("a.example.net", 443, secure, tls=True, hostname="*.example.net", certified=PLATFORM)
    assert door.outcome == "PT05: the certificate for *.example.net is not this app's to show"
    (door,) = said(name, 443, secure, tls=True, hostname="*.example.com", certified=PLATFORM, domain="example.com")
    assert door.certificate == "*.example.com" and door.candidates


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


def two() -> tuple[MachineRoute, MachineRoute]:
    return route(80, 8080, handlers=WEB), route(80, 8080, handlers=WEB)


def test_a_machine_that_a_request_forces_is_the_only_one_and_the_others_say_so() -> None:
    one, other = two()
    door = answer(one, other, fields=[("Fly-Force-Instance-Id", other.id)])
    assert door.outcome == f"goes to machine {other.id}"
    assert door.notes == (f"fly-force-instance-id: machine {other.id} or none",)
    assert "the request is for others" in door.candidates[0].stands and door.candidates[1].chosen
    gone = answer(one, other, fields=[("fly-force-instance-id", "0" * 14)])
    assert gone.outcome.startswith("PR02") and not any(each.chosen for each in gone.candidates)


def test_a_machine_that_a_request_prefers_comes_first_where_it_can_take_it() -> None:
    one, other = two()
    door = answer(one, other, fields=[("fly-prefer-instance-id", other.id)])
    assert door.outcome == f"goes to machine {other.id}"
    assert door.notes == (f"fly-prefer-instance-id: machine {other.id} first",)
    sick = msgspec.structs.replace(other, health=RouteHealth.CRITICAL)
    door = answer(one, sick, fields=[("fly-prefer-instance-id", sick.id)])
    assert door.outcome == f"goes to machine {one.id}" and "it cannot take the request now" in door.notes[0]


def test_regions_that_a_request_names_are_asked_in_its_order() -> None:
    here, abroad = route(80, 8080, handlers=WEB), seen_from_abroad(route(80, 8080, handlers=WEB), ABROAD)
    door = answer(here, abroad, fields=[("fly-prefer-region", "zrh,iad")])
    assert door.outcome == "goes to region iad, where host bbbbbbbb chooses"
    assert door.notes == ("fly-prefer-region: machines of zrh, iad before others; none of the app is in zrh",)
    door = answer(here, abroad, fields=[("fly-force-region", "iad")])
    assert door.outcome == "goes to region iad, where host bbbbbbbb chooses"
    assert door.notes == ("fly-force-region: machines of iad or none",)
    assert answer(here, abroad, fields=[("fly-force-region", "zrh")]).outcome.startswith("PR02")
    door = answer(here, abroad, fields=[("fly-force-instance-id", "0" * 14)])
    assert door.outcome == f"goes to region iad, where host bbbbbbbb knows of machine {'0' * 14}"


def test_a_method_says_whether_a_second_machine_gets_the_request() -> None:
    one, _ = two()
    assert answer(one, method="PUT").notes == ("PUT: goes to a second machine if the first is lost before it answers",)
    assert answer(one, method="POST").notes == ("POST: goes to no second machine once one has it",)
    assert answer(one, method="CONNECT").outcome == "HB07: CONNECT is not served"
    assert answer(one, method="GET", target="/a b").outcome.startswith("HB01")


def test_fields_that_only_the_edge_says_are_taken_out() -> None:
    one, _ = two()
    fields = [("Fly-Replay-Src", "instance=x"), ("fly-region", "ams"), ("x_user", "1"), ("fly-replay", "app=x")]
    door = answer(one, fields=fields)
    assert door.notes == (
        "fly-region, fly-replay-src: taken out, since the edge alone says it",
        "x_user: taken out, since programs read _ as -",
        "fly-replay: changes nothing in a request; it counts in a machine's answer",
    )
    assert door.outcome == f"goes to machine {one.id}"


def test_the_host_field_names_the_app_and_in_tls_must_name_that_of_the_certificate() -> None:
    shop, blog = route(80, 1, handlers=WEB), route(80, 1, app="blog", handlers=WEB)
    assert answer(shop, blog, fields=[("Host", "blog.localhost")]).outcome == "another app is meant"
    shop, blog = route(443, 1, handlers=("tls", "http")), route(443, 1, app="blog", handlers=("tls", "http"))
    request = AskedRequest(fields=(("host", "blog.localhost"),))
    (door,) = said("shop.localhost", 443, shop, blog, tls=True, hostname="shop.localhost", request=request)
    assert door.outcome == "HB05: this connection is for another name" and door.certificate == "shop.localhost"


def test_a_proof_that_a_certificate_authority_asks_for_is_the_edges_to_give() -> None:
    one, _ = two()
    assert "certificate authority" in answer(one, target="/.well-known/acme-challenge/token").outcome
    for method, token in (("", "other"), ("POST", "token")):
        door = answer(one, method=method, target=f"/.well-known/acme-challenge/{token}")
        assert door.outcome == f"goes to machine {one.id}"


def test_a_client_is_named_to_the_machine_and_a_balancer_speaks_for_another() -> None:
    one, raw = route(80, 1, handlers=WEB), route(80, 1)
    assert answer(one, source="203.0.113.7").notes == ("203.0.113.7: what the machine is told as fly-client-ip",)
    assert "a PROXY head comes first" in answer(one, source=BALANCER).notes[0]
    door = answer(raw, source="203.0.113.7", method="POST")
    assert door.notes == (
        "the port speaks tcp: method and headers mean nothing there",
        "203.0.113.7: the machine is not told; it sees the host as the client",
    )
    told = answer(route(80, 1, handlers=("proxy_proto",)), source="203.0.113.7")
    assert told.notes == ("203.0.113.7: what the machine is told in a PROXY head",)


def test_a_private_address_is_reached_from_its_own_network_alone() -> None:
    owned = (AppAddress(app=AppName("shop"), ip="fdaa:0:7:1::3"),)
    machine = route(80, 1, handlers=WEB, publish="")

    def outcome(source: str) -> str:
        request = AskedRequest(source=source)
        (door,) = said("shop.flycast", 80, machine, request=request, owned=owned)
        return door.outcome

    assert outcome("fdaa:0:7:1::2") == outcome("") == f"goes to machine {machine.id}"
    for source in ("fdaa:0:8:1::2", "203.0.113.7"):
        assert outcome(source) == "the host drops it: only the address's own private network reaches it"


def test_a_replay_is_followed_as_if_the_machine_had_ordered_it() -> None:
    one, other = two()
    door = answer(one, other, fields=[("fly-force-instance-id", one.id)], replay="elsewhere=true")
    assert door.outcome == f"machine {one.id} has it replayed: goes to machine {other.id}"
    back = answer(one, fields=(), replay="elsewhere=true;fallback=force_self")
    assert back.outcome == f"machine {one.id} has it replayed: PR01: no machine of the app can take it"
    assert back.notes == (f"fallback: {one.id} gets it again where nobody takes it",)
    wrong = answer(one, replay=f"instance={'0' * 14}")
    assert "PA03" in wrong.outcome and "no machine of the app" in wrong.outcome
    assert answer(one, replay="instance").outcome.startswith("PA03")
    assert answer(one, replay="region=zrh").outcome == f"machine {one.id} has it replayed: " + PR02


def test_of_an_app_that_a_replay_names_only_the_name_is_told() -> None:
    one, near = route(80, 1, handlers=WEB), route(81, 1, app="blog", handlers=WEB)
    door = answer(one, near, replay="app=blog")
    assert door.outcome == f"machine {one.id} has it replayed: goes to app blog of its network"
    assert door.candidates == ()
    far = route(81, 1, app="blog", handlers=WEB, network=8)
    assert "PA04" in answer(one, far, replay="app=blog").outcome
    assert "PA04" in answer(one, replay="app=nobody").outcome, "as for one that is not there"


def test_a_replay_that_is_kept_comes_before_what_a_client_wants() -> None:
    one, other = two()
    replays = ReplayRoutes()
    cache = CacheOrder(prefix="/docs", ttl_s=60, bypass=True)
    asked = ReplayQuestion(AppName("shop"), "shop.localhost", "/docs/x")
    assert replays.keep(asked, Replay(instance=other.id, cache=cache), one.id, 0.0)
    door = answer(one, other, target="/docs/y?z", replays=replays)
    assert door.outcome == f"goes to machine {other.id}"
    assert door.notes == (f"machine {one.id} has had such a request replayed: that is kept for 60 s",)
    assert answer(one, other, target="/else", replays=replays).notes == ()
    skipping = [("fly-replay-cache-control", "skip"), ("fly-force-instance-id", one.id)]
    door = answer(one, other, target="/docs/y", fields=skipping, replays=replays)
    assert door.outcome == f"goes to machine {one.id}" and "is passed over" in door.notes[-1]
    assert "no replay is kept" in answer(one, other, fields=skipping, replays=replays).notes[-1]


def test_a_replay_that_is_kept_leads_to_no_app_of_another_network() -> None:
    one, replays = route(80, 1, handlers=WEB), ReplayRoutes()
    asked = ReplayQuestion(AppName("shop"), "shop.localhost", "/")
    assert replays.keep(asked, Replay(app=AppName("blog"), cache=CacheOrder(prefix="/")), one.id, 0.0)
    far = route(81, 1, app="blog", handlers=WEB, network=8)
    door = answer(one, far, replays=replays)
    assert door.outcome == f"goes to machine {one.id}" and not door.notes


def test_the_host_name_of_the_api_is_said_to_be_the_nodes_own() -> None:
    api = msgspec.structs.replace(route(80, 1, app=API_APP, handlers=WEB, publish=""), created_at=0.0)
    (door,) = said("api.example.com", 80, route(80, 8080, handlers=WEB), api, api_hostname="api.example.com")
    assert door.outcome == "the Machines API is meant: the host name is the node's own" and not door.candidates
