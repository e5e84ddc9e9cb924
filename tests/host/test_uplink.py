"""The host's own address, as its routes have it."""

import socket
import threading
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest
from dns import message, rcode, rdatatype, resolver, rrset

from hawker.host import netns, uplink
from hawker.host.uplink import ask_records, connected_networks, nameservers, own_address, parse_resolv_conf


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


SAID = {
    ("text.example.", "TXT"): ['"app-1; " "org-2"', '"more"'],
    ("alias.example.", "CNAME"): ["Target.example."],
}


def test_records_are_texts_whole_and_targets_without_a_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uplink, "_ANSWER_S", 60.0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def serve() -> None:
            while True:
                wire, where = server.recvfrom(4096)
                if not wire:
                    return
                answer = message.make_response(message.from_wire(wire))
                asked = answer.question[0]
                said = SAID.get((asked.name.to_text(), rdatatype.to_text(asked.rdtype)))
                if said is None:
                    answer.set_rcode(rcode.NXDOMAIN)
                else:
                    answer.answer.append(rrset.from_text(asked.name, 60, "IN", asked.rdtype, *said))
                server.sendto(answer.to_wire(), where)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        servers = resolver.Resolver(configure=False)
        servers.nameservers, servers.port = ["127.0.0.1"], server.getsockname()[1]
        assert ask_records(servers, "text.example", "TXT") == ("app-1; org-2", "more")
        assert ask_records(servers, "alias.example", "CNAME") == ("Target.example",)
        assert ask_records(servers, "nobody.example", "TXT") == ()
        server.sendto(b"", server.getsockname())
        thread.join()
    assert ask_records(servers, "not..a.name", "TXT") == ()


def test_this_hosts_servers_are_addresses() -> None:
    assert all(parse_resolv_conf(f"nameserver {server}") for server in nameservers())


ROUTE = """\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	0	00000000	0	0	0
eth0	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
hwab12naaaaaha	50451DAC	00000000	0005	0	0	0	FFFFFFFF	0	0	0
tun0	00000000	00000000	0001	0	0	0	00000080	0	0	0
"""
_NONE = "00000000000000000000000000000000"
ROUTE6 = "".join(
    f"{destination} {length} {_NONE} 00 {hop} 00000100 00000001 00000000 {flags} {interface}\n"
    for destination, length, hop, flags, interface in (
        ("fd000000000000000000000000000000", "40", _NONE, "00000001", "eth0"),
        ("20010db8000000000000000000000000", "30", "fe800000000000000000000000000001", "00000003", "eth0"),
        ("fdaa0000000792a45537f8c6ee000000", "70", _NONE, "00000001", "hwab12naaaaaha"),
        ("fd000000000000000000000000000002", "80", _NONE, "80200001", "eth0"),
        ("ff000000000000000000000000000000", "08", _NONE, "00000001", "eth0"),
        (_NONE, "00", _NONE, "00200200", "lo"),
    )
)


def test_the_hosts_networks_are_what_routes_reach_without_a_gateway(tmp_path: Path) -> None:
    (tmp_path / "route").write_text(ROUTE)
    (tmp_path / "ipv6_route").write_text(ROUTE6)
    assert list(map(str, connected_networks(tmp_path))) == ["192.0.2.0/24", "fd00::/64"]
