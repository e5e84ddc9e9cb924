"""Facts about name servers."""

import pytest

from hawker.host.resolver import nameservers, parse_resolv_conf


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
