"""Which machines are found at which port of the host."""

import msgspec
import pytest

from hawker.edge import routes as routes_module
from hawker.edge.routes import MAX_PORTS_OF_APP, Door, Routes
from hawker.feed import API_APP, AppAddress, GatePlace, MachineRoute
from hawker.ids import AppName, NodeId
from hawker.machine import State
from tests.edge.edge_kit import route

HOSTS = ("127.0.0.1", "::1")
DOOR = Door("127.0.0.1", 80)


def routes_of(*machines: MachineRoute) -> Routes:
    routes = Routes()
    routes.replace(machines, HOSTS)
    return routes


def test_a_machine_is_found_at_each_address_and_nowhere_once_it_is_gone() -> None:
    machine = route(80, 8080)
    routes = routes_of(machine)
    assert routes.doors == {Door(host, 80) for host in HOSTS}
    assert list(routes.apps(DOOR)) == ["shop"]
    routes.put(msgspec.structs.replace(machine, state=State.DESTROYING))
    assert not routes.doors and not routes.apps(DOOR)


def test_an_app_that_publishes_nothing_is_found_nowhere() -> None:
    assert not routes_of(msgspec.structs.replace(route(80, 8080), publish="")).doors


def test_a_machine_may_be_published_at_one_address_alone() -> None:
    assert routes_of(msgspec.structs.replace(route(80, 8080), publish="::1")).doors == {Door("::1", 80)}


def test_a_new_config_replaces_the_ports_of_the_one_before() -> None:
    routes = routes_of(route(80, 8080, machine_id="1"))
    routes.put(route(81, 8080, machine_id="1"))
    assert {door.port for door in routes.doors} == {81}


def test_the_app_that_was_there_first_has_a_port_without_names() -> None:
    first, second = route(80, 1, app="b"), route(80, 1, app="a")
    routes = routes_of(second, first)
    assert routes.first_app(DOOR) == "b"
    routes.forget(first.id)
    assert routes.first_app(DOOR) == "a"
    routes.put(first)
    assert routes.first_app(DOOR) == "b"
    assert routes_of().first_app(DOOR) is None


def test_the_newest_version_decides_how_an_app_is_spoken_to() -> None:
    old, new = route(80, 1), route(80, 1, handlers=("http",))
    found = routes_of(new, old).newest(DOOR, AppName("shop"))
    assert found is not None and found.machine.id == new.id and found.serves_http


def test_tls_ends_here_for_clients_of_postgresql_too() -> None:
    found = routes_of(route(80, 1, handlers=("pg_tls",))).newest(DOOR, AppName("shop"))
    assert found is not None and found.ends_tls and found.speaks_postgres and not found.serves_http


def test_an_app_has_so_many_ports_and_another_one_still_has_its_own() -> None:
    routes = routes_of(*(route(port, 1) for port in range(1, MAX_PORTS_OF_APP + 2)))
    assert len(routes.doors) == MAX_PORTS_OF_APP
    assert all("an app has at most" in each.reason for each in routes.refused.values()) and routes.refused
    routes.put(route(60_000, 1, app="other"))
    assert Door("::1", 60_000) in routes.doors


def test_a_machine_whose_port_was_refused_gets_it_when_another_is_gone_and_it_asks_again() -> None:
    first, *others = (route(port, 1) for port in range(1, MAX_PORTS_OF_APP + 2))
    routes = routes_of(first, *others)
    refused = len(routes.refused)
    routes.forget(first.id)
    assert len(routes.doors) < MAX_PORTS_OF_APP
    routes.ask_again()
    assert len(routes.refused) == refused - 1 and len(routes.doors) == MAX_PORTS_OF_APP


def test_a_machine_that_is_put_twice_takes_one_place_of_its_apps_ports() -> None:
    machine, again = route(1, 1), route(2, 1)
    routes = routes_of(machine, machine, again)
    routes.put(again)
    routes.forget(machine.id)
    routes.forget(again.id)
    for port in range(1, MAX_PORTS_OF_APP // len(HOSTS) + 1):
        routes.put(route(port, 1))
    assert len(routes.doors) == MAX_PORTS_OF_APP and not routes.refused


def test_whoever_is_not_among_all_machines_is_gone() -> None:
    first, second = route(80, 1), route(81, 1)
    routes = routes_of(first, second)
    assert routes.replace([second], HOSTS) == [first.id]
    assert set(routes.machines) == {second.id}


WEB, HTTPS = ("http",), ("tls", "http")


@pytest.mark.parametrize("handlers", [WEB, HTTPS])
def test_a_claimed_name_is_its_apps_alone_and_counts_before_a_first_label(handlers: tuple[str, ...]) -> None:
    """So an app that is called `www` gets nothing of another app's www.bank.com."""
    one, two, tls = AppName("one"), AppName("two"), handlers == HTTPS
    routes = routes_of(route(80, 1, app="one", handlers=handlers), route(80, 1, app="two", handlers=handlers))
    assert routes.app_named(DOOR, "one.example.com", two, tls=tls) == two
    assert routes.app_named(DOOR, "x.example.com", two, tls=tls) == two
    for host in ("one.example.com", "x.example.com"):
        assert routes.app_named(DOOR, host, AppName("ghost"), tls=tls) is None, "nor the first app"
        assert routes.app_named(DOOR, host, API_APP, tls=tls) is None
    assert routes.app_named(DOOR, "two.example.com", None, tls=tls) == two, "nobody has claimed it"
    assert routes.app_named(DOOR, "x.example.com", None, tls=tls) == one
    assert routes.app_named(DOOR, "", None, tls=tls) == one


def test_a_claimer_that_speaks_otherwise_at_a_port_is_not_there() -> None:
    routes = routes_of(route(80, 1, app="www", handlers=WEB), route(80, 1, app="prod", handlers=HTTPS))
    assert routes.app_named(DOOR, "www.bank.com", AppName("prod"), tls=False) is None
    assert routes.app_named(DOOR, "www.bank.com", AppName("prod"), tls=True) == "prod"


@pytest.mark.parametrize("handlers", [WEB, HTTPS])
def test_a_name_of_the_platforms_domain_is_the_apps_of_its_label_whoever_claims_it(handlers: tuple[str, ...]) -> None:
    routes, tls = Routes(), handlers == HTTPS
    machines = [route(80, 1, app=app, handlers=handlers) for app in ("mallory", "shop", "apps")]
    routes.replace(machines, HOSTS, domain="apps.example.com")
    for claimer in (None, AppName("mallory")):
        assert routes.app_named(DOOR, "shop.apps.example.com", claimer, tls=tls) == "shop"
        assert routes.app_named(DOOR, "ghost.apps.example.com", claimer, tls=tls) is None
        assert routes.app_named(DOOR, f"{API_APP}.apps.example.com", claimer, tls=tls) is None
    assert routes.app_named(DOOR, "shop.example.com", AppName("mallory"), tls=tls) == "mallory"
    assert routes.app_named(DOOR, "apps.example.com", None, tls=tls) == "apps", "it is no app's own name"


def test_a_claim_takes_no_plain_request_from_an_address_that_an_app_has_alone() -> None:
    routes = addressed(unpublished(80, "http"), unpublished(443, *HTTPS), named="nobody")
    for claimer in (None, AppName("mallory")):
        assert routes.app_named(Door(OWN, 80), "mallory.flycast", claimer, tls=False) == "shop"
    assert routes.app_named(Door(OWN, 443), "bank.example.com", AppName("mallory"), tls=True) is None


OWN, SHARED = "203.0.113.7", "198.51.100.1"


def addressed(*machines: MachineRoute, owner: str = "shop", named: str = "shop") -> Routes:
    routes = Routes()
    addresses = (
        AppAddress(app=AppName(owner), ip=OWN),
        AppAddress(app=AppName(named), ip=SHARED, shared=True),
    )
    routes.replace(machines, HOSTS, addresses)
    return routes


def unpublished(port: int, *handlers: str, app: str = "shop") -> MachineRoute:
    return msgspec.structs.replace(route(port, 8080, app=app, handlers=handlers), publish="")


def test_an_app_with_a_shared_address_is_found_where_a_name_is_enough() -> None:
    routes = addressed(unpublished(80, "http"), unpublished(443, "tls"), unpublished(5432), owner="nobody")
    assert routes.doors == {Door(host, port) for host in HOSTS for port in (80, 443)}


def test_an_address_of_ones_own_has_all_ports() -> None:
    routes = addressed(unpublished(80, "http"), unpublished(5432), named="nobody")
    assert routes.doors == {Door(OWN, 80), Door(OWN, 5432)}


def test_nobody_is_served_at_an_address_that_another_app_has_alone() -> None:
    thief = msgspec.structs.replace(route(80, 1, app="thief"), publish=OWN)
    routes = addressed(thief, unpublished(80, app="shop"), named="nobody")
    assert list(routes.apps(Door(OWN, 80))) == ["shop"]
    routes.replace([thief], (*HOSTS, OWN), [AppAddress(app=AppName("shop"), ip=OWN)])
    assert not routes.doors


def test_of_two_owners_the_first_counts() -> None:
    routes, machines = Routes(), [unpublished(80, app="a"), unpublished(80, app="b")]
    routes.replace(machines, HOSTS, [AppAddress(app=AppName(app), ip=OWN) for app in ("b", "a")])
    assert list(routes.apps(Door(OWN, 80))) == ["b"]


def test_an_edge_without_addresses_serves_none_of_an_app() -> None:
    routes = Routes()
    routes.replace([unpublished(80, "http")], (), [AppAddress(app=AppName("shop"), ip=OWN)])
    assert not routes.doors


def test_a_machine_here_has_its_port_before_one_elsewhere() -> None:
    gate = GatePlace(node=NodeId("b" * 8), host="10.0.0.2", port=4291)
    older, newer = msgspec.structs.replace(route(80, 1, app="older"), gate=gate), route(80, 1, app="newer")
    assert routes_of(older, newer).first_app(DOOR) == "newer"
    assert routes_of(older).first_app(DOOR) == "older"


def test_a_service_of_another_host_or_app_is_none_of_ours() -> None:
    machine = route(80, 1)
    routes = routes_of(machine)
    assert routes.service(machine.app, machine.id, 0) is not None
    assert routes.service(AppName("other"), machine.id, 0) is None
    assert routes.service(machine.app, machine.id, 1) is routes.service(machine.app, machine.id, -1) is None
    routes.put(msgspec.structs.replace(machine, gate=GatePlace(node=NodeId("b" * 8), host="h", port=1)))
    assert routes.service(machine.app, machine.id, 0) is None


def test_a_private_address_has_what_is_spoken_plainly_and_needs_no_address_of_the_host() -> None:
    machines = unpublished(80, "http"), unpublished(443, "tls", "http"), unpublished(5432)
    private = AppAddress(app=AppName("shop"), ip="fdaa:0:7::1:2")
    for hosts in (HOSTS, ()):
        routes = Routes()
        routes.replace(machines, hosts, [private])
        assert routes.doors == {Door(private.ip, 80), Door(private.ip, 5432)}
    routes.replace([route(80, 1, app="other")], HOSTS, [private])
    assert Door(private.ip, 80) not in routes.doors


def test_an_app_counts_for_its_organization_or_for_itself() -> None:
    routes = routes_of(msgspec.structs.replace(route(80, 1, app="shop"), org="acme"), route(81, 1, app="bank"))
    assert [routes.owner(AppName(app)) for app in ("shop", "bank", "gone")] == ["acme", "bank", "gone"]


def over_udp(machine: MachineRoute) -> MachineRoute:
    return msgspec.structs.replace(
        machine, services=tuple(msgspec.structs.replace(each, protocol="udp") for each in machine.services)
    )


def test_a_port_of_udp_is_another_one_than_that_of_tcp() -> None:
    routes = routes_of(over_udp(route(53, 53, app="dns", handlers=("tls",))), route(53, 8053, app="web"))
    door = Door("127.0.0.1", 53, udp=True)
    assert routes.first_app(door) == "dns" and routes.first_app(Door("127.0.0.1", 53)) == "web"
    found = routes.newest(door, AppName("dns"))
    assert found is not None and found.is_udp and not found.ends_tls and not found.serves_http


def test_datagrams_need_an_address_of_the_apps_own_or_a_published_port() -> None:
    machine = over_udp(unpublished(53, "tls"))
    assert addressed(machine, owner="shop", named="shop").doors == {Door(OWN, 53, udp=True)}
    assert not addressed(machine, owner="nobody", named="shop").doors, "no name tells apps apart"
    routes, private = Routes(), AppAddress(app=AppName("shop"), ip="fdaa:0:7::1:2")
    routes.replace([machine], (), [private])
    assert routes.doors == {Door(private.ip, 53, udp=True)}


def test_datagrams_reach_machines_of_all_hosts_and_no_connection_does_through_their_service() -> None:
    machine = over_udp(route(53, 53))
    here = routes_of(machine)
    assert here.service(machine.app, machine.id, 0) is None
    assert here.service(machine.app, machine.id, 0, udp=True) is not None
    gate = GatePlace(node=NodeId("b" * 8), host="10.0.0.2", port=4291)
    far = routes_of(msgspec.structs.replace(machine, gate=gate))
    assert far.doors == here.doors
    assert far.service(machine.app, machine.id, 0, udp=True) is None, "its own gate lets in"


def test_names_that_clients_make_up_are_forgotten_and_a_change_of_machines_counts_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes_module, "_MOST_ASKED", 8)
    first = route(80, 8080, app="shop", handlers=("http",))
    routes, door = routes_of(first), Door("127.0.0.1", 80)
    for number in range(50):
        assert routes.app_named(door, f"made-up-{number}.example", None, tls=False) == "shop"
        assert len(routes._meant) <= 8
    assert routes.app_named(door, "bank.example", None, tls=False) == "shop"
    bank = route(80, 8081, app="bank", handlers=("http",))
    routes.put(bank)
    assert routes.app_named(door, "bank.example", None, tls=False) == "bank"
    routes.forget(bank.id)
    assert routes.app_named(door, "bank.example", None, tls=False) == "shop"


API = "api.example.com"


def api_route(handlers: tuple[str, ...] = ("http",)) -> MachineRoute:
    return msgspec.structs.replace(route(80, 1, app=API_APP, handlers=handlers, publish=""), created_at=0.0)


def routes_with_api(*machines: MachineRoute) -> Routes:
    routes = Routes()
    routes.replace((*machines, api_route()), HOSTS, api_hostname=API)
    return routes


def test_the_host_name_of_the_api_is_its_own_and_its_only_one() -> None:
    routes = routes_with_api(route(80, 1, app="api", handlers=("http",)), route(80, 1, app="shop", handlers=("http",)))
    for claimer in (None, AppName("shop")):
        assert routes.app_named(DOOR, API, claimer, tls=False) == API_APP, "an app of that name or claim gets nothing"
    for other in ("api.example.net", "nobody.example.com", "", "127.0.0.1", "_api", f"{API_APP}.example.com"):
        assert routes.app_named(DOOR, other, None, tls=False) == "api", "the first app, as if there were no API"
    assert routes.app_named(DOOR, "shop.example.com", None, tls=False) == "shop"
    assert routes.app_named(Door(HOSTS[0], 81), API, AppName("shop"), tls=False) is None, "at no other port"


def test_the_api_takes_no_request_without_its_name_where_there_is_no_app() -> None:
    assert routes_with_api().app_named(DOOR, "shop.example.com", None, tls=False) is None
    assert routes_with_api(route(80, 1)).app_named(DOOR, "shop.example.com", None, tls=False) is None, "it has no names"


def test_a_port_is_spoken_to_as_the_api_is_whatever_an_app_makes_of_it() -> None:
    routes = routes_with_api(route(80, 1, app="raw"))
    assert routes.first_app(DOOR) == API_APP and routes.doors == {Door(host, 80) for host in HOSTS}


def test_the_api_is_not_at_an_address_that_an_app_has_alone() -> None:
    routes = Routes()
    owned = (AppAddress(app=AppName("shop"), ip=HOSTS[0]),)
    routes.replace((api_route(), route(80, 1, handlers=("http",))), HOSTS, owned, API)
    assert API_APP not in routes.apps(DOOR) and API_APP in routes.apps(Door(HOSTS[1], 80))
    assert routes.app_named(DOOR, API, None, tls=False) is None
