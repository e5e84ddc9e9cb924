"""Facts about addresses and names."""

from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.host.address import (
    bridge_link_local,
    bridge_mac,
    bridge_name,
    gateway,
    machine_mac,
    machine_prefix,
    network_of,
    network_prefix,
    private_ip,
    spare_veth_name,
    veth_name,
)
from hawker.ids import MachineId, NodeId

NODE = NodeId("ab12cd34")
network_ids = st.integers(min_value=0, max_value=2**32 - 1)
machine_ids = st.binary(min_size=7, max_size=7).map(lambda raw: MachineId(raw.hex()))


def test_private_ip_is_network_then_machine_then_two() -> None:
    assert private_ip(0x00010002, MachineId("0123456789abcd")) == IPv6Address("fdaa:1:2:123:4567:89ab:cd00:2")


def test_gateway_is_the_first_address_of_the_network() -> None:
    assert gateway(0xFFFFFFFF) == IPv6Address("fdaa:ffff:ffff::1")


def test_link_local_address_of_a_bridge_is_made_of_its_link_address() -> None:
    assert bridge_mac(0xABCD1234) == "02:00:ab:cd:12:34"
    assert bridge_link_local(0xABCD1234) == IPv6Address("fe80::abff:fecd:1234")


def test_network_id_of_more_than_32_bits_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        network_prefix(1 << 32)


@given(network_ids, network_ids, machine_ids, machine_ids)
def test_private_ips_are_unique_and_within_their_network(a: int, b: int, m: MachineId, n: MachineId) -> None:
    assert (private_ip(a, m) == private_ip(b, n)) == ((a, m) == (b, n))
    assert private_ip(a, m) in network_prefix(a)
    assert private_ip(a, m) != gateway(a)


@given(network_ids, network_ids)
def test_bridge_names_are_unique_and_fit(a: int, b: int) -> None:
    assert (bridge_name(NODE, a) == bridge_name(NODE, b)) == (a == b)
    assert len(bridge_name(NODE, a)) <= 15


@given(machine_ids)
def test_veth_names_fit_and_are_never_a_bridges(machine_id: MachineId) -> None:
    assert len(veth_name(NODE, machine_id)) <= 15
    assert not veth_name(NODE, machine_id).startswith("hwab12n")
    assert spare_veth_name(NODE) == "hwab12w%d"


@given(network_ids, machine_ids)
def test_macs_are_local_and_unicast(network_id: int, machine_id: MachineId) -> None:
    for mac in (bridge_mac(network_id), machine_mac(machine_id)):
        first = int(mac[:2], 16)
        assert first & 0b11 == 0b10
        assert len(mac) == 17


@given(network_ids)
def test_a_bridge_name_leads_back_to_its_network(network_id: int) -> None:
    assert network_of(bridge_name(NODE, network_id)) == network_id


def test_a_machine_owns_the_112_around_its_address() -> None:
    own = machine_prefix(7, MachineId("0123456789abcd"))
    assert own.prefixlen == 112 and private_ip(7, MachineId("0123456789abcd")) in own
    assert private_ip(7, MachineId("0123456789abce")) not in own
