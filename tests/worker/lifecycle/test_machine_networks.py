import json
import subprocess
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import cast

import pytest

from hawker.host.machine_link import NetworkPlan
from hawker.host.network import NodeNetwork
from hawker.ids import MachineId, NodeId
from hawker.record.machine import Network
from hawker.worker.lifecycle.machine_networks import HostNetworks

pytestmark = pytest.mark.anyio
MACHINE = MachineId("00000000000001")


class Host:
    """Notes what the node's network is asked to do."""

    def __init__(self) -> None:
        self.node_id = NodeId("0badcafe")
        self.asked: list[object] = []

    async def ensure(self, plan: NetworkPlan) -> str:
        self.asked.append(plan)
        return "/netns/1"

    async def delete(self, machine_id: MachineId) -> None:
        self.asked.append(machine_id)

    async def list(self) -> list[MachineId]:
        return [MACHINE]

    async def sweep(self) -> None:
        self.asked.append("sweep")

    async def remove_node(self) -> None:
        self.asked.append("remove the node")

    async def lost(self, plans: Sequence[NetworkPlan]) -> dict[MachineId, str]:
        return {plan.machine_id: "its link is gone" for plan in plans}

    async def reconnect(self, plan: NetworkPlan, pid: int) -> None:
        self.asked.append((plan, pid))

    async def link_names(self) -> tuple[str, ...]:
        return ("hw0badv00000000",)

    async def unlink(self, name: str) -> None:
        self.asked.append(name)

    async def guarded(self) -> bool:
        return False

    async def guard(self) -> None:
        self.asked.append("guard")

    async def withhold(self, members: frozenset[str] | None = None) -> None:
        self.asked.append(("withhold", members))

    async def dropped(self) -> dict[str, int]:
        return {"withheld": 3}


async def test_a_records_addresses_become_the_hosts_plan() -> None:
    host = Host()
    networks = HostNetworks(cast(NodeNetwork, host))
    private_ip = networks.private_ip(7, MACHINE)
    assert await networks.ensure(MACHINE, Network(private_ip=private_ip, ipv4="172.29.0.9", network_id=7)) == "/netns/1"
    assert await networks.ensure(MACHINE, Network(private_ip=private_ip, network_id=7)) == "/netns/1"
    assert host.asked == [
        NetworkPlan(machine_id=MACHINE, network_id=7, ipv4=IPv4Address("172.29.0.9")),
        NetworkPlan(machine_id=MACHINE, network_id=7, ipv4=None),
    ]


async def test_the_rest_is_passed_on() -> None:
    host = Host()
    networks = HostNetworks(cast(NodeNetwork, host))
    assert await networks.list() == [MACHINE]
    await networks.delete(MACHINE)
    await networks.sweep()
    await networks.withdraw()
    await networks.withhold(frozenset({"10.0.0.1"}))
    assert host.asked == [
        MACHINE,
        "sweep",
        ("withhold", None),
        "remove the node",
        ("withhold", frozenset({"10.0.0.1"})),
    ]
    assert await networks.dropped() == {"withheld": 3}


async def test_ways_to_other_hosts_end_before_the_node_is_removed() -> None:
    host = Host()
    networks = HostNetworks(cast(NodeNetwork, host))

    async def known(network_id: int) -> None:
        host.asked.append(network_id)

    async def end() -> None:
        host.asked.append("end the ways")

    networks.meet(known, end)
    await networks.withdraw()
    assert host.asked == ["end the ways", "remove the node"]


def test_an_address_is_the_machines_own_and_the_same_everywhere() -> None:
    networks = HostNetworks(cast(NodeNetwork, Host()))
    assert networks.private_ip(7, MACHINE) == networks.private_ip(7, MACHINE)
    assert networks.private_ip(7, MACHINE) != networks.private_ip(8, MACHINE)
    assert networks.private_ip(7, MACHINE) != networks.private_ip(7, MachineId("00000000000002"))


async def test_a_lost_network_is_asked_about_and_given_back_by_the_plan() -> None:
    host = Host()
    networks = HostNetworks(cast(NodeNetwork, host))
    network = Network(private_ip=networks.private_ip(7, MACHINE), ipv4="172.29.0.9", network_id=7)
    plan = NetworkPlan(machine_id=MACHINE, network_id=7, ipv4=IPv4Address("172.29.0.9"))
    assert await networks.lost({MACHINE: network}) == {MACHINE: "its link is gone"}
    assert await networks.links() == (networks.link_of(MACHINE),)
    assert not await networks.guarded()
    await networks.reconnect(MACHINE, network, 9)
    await networks.unlink("hw0badvffffffff")
    await networks.guard()
    assert host.asked == [(plan, 9), "hw0badvffffffff", "guard"]


async def test_only_a_machine_with_a_kernel_of_its_own_is_told_its_link() -> None:
    network = Network(private_ip=_private_ip(), ipv4="172.29.0.9", network_id=7)
    assert HostNetworks(cast(NodeNetwork, Host())).link(MACHINE, network) is None
    link = HostNetworks(cast(NodeNetwork, Host()), kernels=True).link(MACHINE, network)
    assert link is not None and link.addresses == (f"{_private_ip()}/112", "172.29.0.9/32")
    assert link.gateways == ("fdaa:0:7::1", "169.254.1.1")
    lone = HostNetworks(cast(NodeNetwork, Host()), kernels=True).link(
        MACHINE, Network(private_ip=_private_ip(), network_id=7)
    )
    assert lone is not None and (len(lone.addresses), len(lone.gateways)) == (1, 1)


def _private_ip() -> str:
    return HostNetworks(cast(NodeNetwork, Host())).private_ip(7, MACHINE)


@pytest.mark.root
async def test_a_link_inside_is_what_a_container_has(tmp_path: Path, node_id: NodeId) -> None:
    """Address by address: a machine cannot tell by its network how it is run."""
    node = NodeNetwork(node_id, tmp_path / "netns")
    network = Network(private_ip=_private_ip(), ipv4="172.29.0.9", network_id=7)
    link = HostNetworks(node, kernels=True).link(MACHINE, network)
    assert link is not None
    await node.boot()
    try:
        path = await HostNetworks(node).ensure(MACHINE, network)
        shown = json.loads(_ip(path, "addr", "show", link.name))[0]
        routes = [*json.loads(_ip(path, "-4", "route")), *json.loads(_ip(path, "-6", "route"))]
    finally:
        await node.remove_node()
    given = {f"{each['local']}/{each['prefixlen']}" for each in shown["addr_info"] if each["scope"] != "link"}
    assert (shown["address"], shown["mtu"], given) == (link.mac, link.mtu, set(link.addresses))
    assert {each["gateway"] for each in routes if each["dst"] == "default"} == set(link.gateways)


def _ip(netns: str, *arguments: str) -> str:
    command = ["nsenter", f"--net={netns}", "ip", "-j", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
