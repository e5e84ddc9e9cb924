"""The host's own address, as its routes have it."""

from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from hawker.host import netns
from hawker.host.uplink import nameservers, own_address, parse_resolv_conf


@pytest.mark.parametrize(("version", "kind"), [(4, IPv4Address), (6, IPv6Address)])
def test_own_address_is_of_its_family_if_there_is_one(version: int, kind: type[IPv4Address | IPv6Address]) -> None:
    found = own_address(version)
    assert found is None or (not kind(found).is_unspecified and not kind(found).is_loopback)


@pytest.mark.root
@pytest.mark.parametrize("version", [4, 6])
def test_a_host_without_routes_has_none(version: int, tmp_path: Path) -> None:
    path = tmp_path / "netns"
    found: list[str | None] = []
    netns.create(path, lambda _: found.append(own_address(version)))
    netns.delete(path)
    assert found == [None]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nameserver 192.0.2.1\nnameserver 2001:db8::1\n", ("192.0.2.1", "2001:db8::1")),
        ("# nameserver 192.0.2.9\nsearch example\nnameserver\t192.0.2.1 # first\n", ("192.0.2.1",)),
        ("nameserver 127.0.0.53\nnameserver ::1\n", ()),
        ("nameserver fe80::1%eth0\nnameserver fe80::1\nnameserver 0.0.0.0\n", ()),
        ("nameserver\nnameserver nonsense\n", ()),
        ("", ()),
    ],
)
def test_only_servers_that_a_machine_can_reach_are_taken(text: str, found: tuple[str, ...]) -> None:
    assert parse_resolv_conf(text) == found


def test_this_hosts_servers_are_addresses() -> None:
    assert all(parse_resolv_conf(f"nameserver {server}") for server in nameservers())
