"""The apps of every run: each machine has a port and a network, and each app that is asked for a private address."""

from hawker.sim.edge.played_apps import (
    HIDDEN,
    MACHINES,
    NETWORK,
    OTHER_NETWORK,
    PORTS,
    app_records,
    ip_records,
)


def test_machines_are_of_known_apps_and_apps_of_their_networks() -> None:
    assert {name[:-1] for name in MACHINES} == set(PORTS)
    assert {each.name for each in app_records() if each.network_id == OTHER_NETWORK} == {"other"}


def test_each_app_but_the_hidden_one_has_an_address_of_its_own_in_its_network() -> None:
    private = [(app, record.ip) for app, record in ip_records() if not record.is_public]
    assert len({ip for _, ip in private}) == len(private)
    assert {app for app, ip in private if ip.startswith(f"fdaa:0:{NETWORK}:")} == PORTS.keys() - {HIDDEN}
    assert {app for app, ip in private if ip.startswith(f"fdaa:0:{OTHER_NETWORK}:")} == {"other"}
