"""Facts about what one machine may take of the host's table of connections and of its packet path, seen with floods."""

import re
import secrets
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import anyio.to_thread
import pytest

from hawker.host import netns
from hawker.host.egress import Egress, parse_allowed
from hawker.host.machine_link import NetworkPlan
from hawker.host.network import NodeNetwork
from hawker.host.nftables import LinkLimits, ruleset
from hawker.ids import MachineId, NodeId
from tests.node_ids import own_node_id

FLOWS = 400
NODE = NodeId("ab12cd34")
MakeNode = Callable[[LinkLimits], NodeNetwork]


def test_a_limit_of_nothing_has_no_rule() -> None:
    text = ruleset(NODE, LinkLimits(connections=0, connections_per_s=0, packets_per_s=0))
    assert "ct count" not in text and "limit rate" not in text
    for number, word in ((8192, "ct count over"), (500, "limit rate over"), (100_000, "limit rate over")):
        assert f"{word} {number}" in ruleset(NODE)


@pytest.fixture
async def make_node(tmp_path: Path) -> AsyncIterator[MakeNode]:
    made: list[NodeNetwork] = []
    allowed = Egress(parse_allowed(["198.51.100.0/24", "2001:db8:77::/64"]))

    def make(limits: LinkLimits) -> NodeNetwork:
        directory = tmp_path / f"netns{len(made)}"
        made.append(NodeNetwork(own_node_id(), directory, egress=allowed, limits=limits))
        return made[-1]

    yield make
    for node in made:
        await node.remove_node()


def _plan(number: int) -> NetworkPlan:
    return NetworkPlan(MachineId(secrets.token_hex(7)), 7, IPv4Address(f"10.213.0.{number}"))


def _flood(address: str, flows: int = FLOWS) -> None:
    """A datagram to as many ports, each a flow of its own."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        for port in range(20_000, 20_000 + flows):
            sender.sendto(b"x", (address, port))


def _dropped(node: NodeNetwork, counter: str) -> int:
    told = ["nft", "list", "counter", "inet", f"hawker_{node.node_id[:4]}", counter]
    text = subprocess.run(told, check=True, capture_output=True, text=True, timeout=60).stdout
    found = re.search(r"packets (\d+)", text)
    assert found is not None
    return int(found[1])


async def _from(machine: Path, address: str) -> None:
    await anyio.to_thread.run_sync(netns.inside, machine, partial(_flood, address))


@pytest.mark.root
@pytest.mark.anyio
async def test_connections_of_a_machine_are_counted_over_both_families(make_node: MakeNode, outside: Path) -> None:
    node = make_node(LinkLimits(connections=100, connections_per_s=0))
    await node.boot()
    machine, other = await node.ensure(_plan(1)), await node.ensure(_plan(2))
    await _from(machine, "198.51.100.2")
    first = _dropped(node, "over_connections")
    assert FLOWS - 110 <= first <= FLOWS - 90
    await _from(machine, "2001:db8:77::2")
    assert _dropped(node, "over_connections") - first >= FLOWS - 10  # the count is full
    both = _dropped(node, "over_connections")
    await _from(other, "198.51.100.2")
    assert FLOWS - 110 <= _dropped(node, "over_connections") - both <= FLOWS - 90  # another machine has its own


@pytest.mark.root
@pytest.mark.anyio
async def test_connections_begun_at_once_are_limited(make_node: MakeNode, outside: Path) -> None:
    node = make_node(LinkLimits(connections=0, connections_per_s=10))
    await node.boot()
    await _from(await node.ensure(_plan(1)), "198.51.100.2")
    assert _dropped(node, "over_connection_rate") >= FLOWS // 2
    assert _dropped(node, "over_connections") == 0


@pytest.mark.root
@pytest.mark.anyio
async def test_packets_of_a_machine_are_limited(make_node: MakeNode, outside: Path) -> None:
    node = make_node(LinkLimits(packets_per_s=50))
    await node.boot()
    await _from(await node.ensure(_plan(1)), "198.51.100.2")
    assert _dropped(node, "over_packet_rate") >= FLOWS // 2


@pytest.mark.root
@pytest.mark.anyio
async def test_an_ordinary_machine_meets_no_limit(make_node: MakeNode, outside: Path) -> None:
    node = make_node(LinkLimits())
    await node.boot()
    await _from(await node.ensure(_plan(1)), "198.51.100.2")
    for counter in ("over_connections", "over_connection_rate", "over_packet_rate"):
        assert _dropped(node, counter) == 0
