"""Facts about the packet rules' text and set; what they do to packets is in test_network.py."""

import subprocess
from collections.abc import AsyncIterator

import pytest

from hawker.errors import CannotStart
from hawker.host.address import bridge_name
from hawker.host.anti_spoofing import remove_frames
from hawker.host.netlink import NETLINK_NETFILTER, NetlinkSocket
from hawker.host.nft_messages import remove_table
from hawker.host.nftables import (
    admit_network,
    forget_network,
    install,
    ruleset,
    table_name,
)
from hawker.ids import NodeId

pytestmark = pytest.mark.anyio

ONE, TWO = (bridge_name(NodeId("ab12cd34"), number) for number in (1, 2))


@pytest.fixture
async def table(node_id: NodeId) -> AsyncIterator[NodeId]:
    await install(node_id)
    yield node_id
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        netlink.apply(remove_table(table_name(node_id)))
        netlink.apply(remove_frames(node_id))


def _elements(node_id: NodeId, name: str = "networks") -> str:
    command = ["nft", "list", "set", "inet", table_name(node_id), name]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_rules_name_no_interface_but_the_nodes_own() -> None:
    text = ruleset(NodeId("ab12cd34"))
    assert 'iifname "hwab12n*"' in text
    assert text.count('ifname "') == text.count('ifname "hwab12')


@pytest.mark.root
async def test_networks_are_admitted_and_forgotten_without_complaint(table: NodeId) -> None:
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        for _ in range(2):
            netlink.apply(admit_network(table, ONE))
        netlink.apply(admit_network(table, TWO))
        assert f'"{ONE}" . "{ONE}"' in _elements(table) and f'"{TWO}" . "{TWO}"' in _elements(table)
        assert f'0xfdaa00000001 . "{ONE}"' in _elements(table, "of_network")
        for _ in range(2):
            forget_network(netlink, table, ONE)
    for name in ("networks", "of_network"):
        assert ONE not in _elements(table, name) and f'"{TWO}"' in _elements(table, name)


@pytest.mark.root
async def test_installing_again_keeps_the_networks(table: NodeId) -> None:
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        netlink.apply(admit_network(table, ONE))
    await install(table)
    assert f'"{ONE}"' in _elements(table)


@pytest.mark.root
async def test_removing_what_is_gone_is_no_error_and_admitting_there_is(node_id: NodeId) -> None:
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        netlink.apply(remove_table(table_name(node_id)))
        with pytest.raises(OSError, match="No such file"):
            netlink.apply(admit_network(node_id, ONE))


async def test_a_host_without_nft_is_told_what_to_install(node_id: NodeId, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CannotStart, match="apt-get install nftables"):
        await install(node_id)


def test_machines_reach_the_api_only_where_the_settings_say_so() -> None:
    rule = "ip6 daddr fdaa::3 tcp dport 4280 accept"
    assert rule in ruleset(NodeId("ab12cd34"), api=True)
    assert rule not in ruleset(NodeId("ab12cd34"))
    assert "dnat" in ruleset(NodeId("ab12cd34"), api=True) and "dnat" not in ruleset(NodeId("ab12cd34"))
