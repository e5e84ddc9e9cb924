from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import cast

import pytest

from hawker.host.network import NetworkPlan, NodeNetwork
from hawker.ids import MachineId, NodeId
from hawker.worker.lifecycle.network import HostNetworks
from hawker.worker.records import Network

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
    assert host.asked == [MACHINE, "sweep", "remove the node"]


def test_an_address_is_the_machines_own_and_the_same_everywhere() -> None:
    networks = HostNetworks(cast(NodeNetwork, Host()))
    assert networks.private_ip(7, MACHINE) == networks.private_ip(7, MACHINE)
    assert networks.private_ip(7, MACHINE) != networks.private_ip(8, MACHINE)
    assert networks.private_ip(7, MACHINE) != networks.private_ip(7, MachineId("00000000000002"))


async def test_what_was_lost_is_asked_about_and_given_back_by_the_plan() -> None:
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
