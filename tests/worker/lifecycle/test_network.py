from ipaddress import IPv4Address
from typing import cast

import pytest

from hawker.host.network import NetworkPlan, NodeNetwork
from hawker.ids import MachineId
from hawker.worker.lifecycle.network import HostNetworks
from hawker.worker.records import Network

pytestmark = pytest.mark.anyio
MACHINE = MachineId("00000000000001")


class Host:
    """Notes what the node's network is asked to do."""

    def __init__(self) -> None:
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
