"""Which machines are found at which port of the host."""

import msgspec

from hawker.edge.routes import MAX_PORTS_OF_APP, Door, Routes
from hawker.feed import MachineRoute
from hawker.ids import AppName
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
    assert routes_of(second, first).first_app(DOOR) == "b"
    assert routes_of().first_app(DOOR) is None


def test_the_newest_version_decides_how_an_app_is_spoken_to() -> None:
    old, new = route(80, 1), route(80, 1, handlers=("http",))
    found = routes_of(new, old).newest(DOOR, AppName("shop"))
    assert found is not None and found.machine.id == new.id and found.serves_http


def test_a_port_with_a_handler_that_is_not_served_is_not_listened_at() -> None:
    assert not routes_of(route(443, 1, handlers=("pg_tls",))).doors


def test_an_app_has_so_many_ports_and_another_one_still_has_its_own() -> None:
    routes = routes_of(*(route(port, 1) for port in range(1, MAX_PORTS_OF_APP + 2)))
    assert len(routes.doors) == MAX_PORTS_OF_APP
    assert all("an app has at most" in each.reason for each in routes.refused.values()) and routes.refused
    routes.put(route(60_000, 1, app="other"))
    assert Door("::1", 60_000) in routes.doors


def test_whoever_is_not_among_all_machines_is_gone() -> None:
    first, second = route(80, 1), route(81, 1)
    routes = routes_of(first, second)
    assert routes.replace([second], HOSTS) == [first.id]
    assert set(routes.machines) == {second.id}


def test_a_claimed_name_counts_after_an_apps_own_name_and_with_tls_before_it() -> None:
    one, two = AppName("one"), AppName("two")
    plain = routes_of(route(80, 1, app="one", handlers=("http",)), route(80, 1, app="two", handlers=("http",)))
    assert plain.app_named(DOOR, "one.example.com", two, tls=False) == one
    assert plain.app_named(DOOR, "x.example.com", two, tls=False) == two
    assert plain.app_named(DOOR, "x.example.com", AppName("ghost"), tls=False) == one
    assert plain.app_named(DOOR, "", None, tls=False) == one
    web = ("tls", "http")
    secure = routes_of(route(80, 1, app="one", handlers=web), route(80, 1, app="two", handlers=web))
    assert secure.app_named(DOOR, "one.example.com", two, tls=True) == two
    assert secure.app_named(DOOR, "two.example.com", None, tls=True) == two
    assert secure.app_named(DOOR, "one.example.com", AppName("ghost"), tls=True) is None
    assert secure.app_named(DOOR, "x.example.com", None, tls=True) == one
