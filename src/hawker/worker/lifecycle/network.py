"""The networks of a node's machines: a record's addresses as the host's plan."""

from ipaddress import IPv4Address

from hawker.host.address import private_ip
from hawker.host.network import NetworkPlan, NodeNetwork
from hawker.ids import MachineId
from hawker.worker.records import Network


class HostNetworks:
    """Keeps `deps.Networks`."""

    def __init__(self, host: NodeNetwork) -> None:
        self._host = host

    def private_ip(self, network_id: int, machine_id: MachineId) -> str:
        return str(private_ip(network_id, machine_id))

    async def ensure(self, machine_id: MachineId, network: Network) -> str:
        ipv4 = IPv4Address(network.ipv4) if network.ipv4 else None
        plan = NetworkPlan(machine_id=machine_id, network_id=network.network_id, ipv4=ipv4)
        return str(await self._host.ensure(plan))

    async def delete(self, machine_id: MachineId) -> None:
        await self._host.delete(machine_id)

    async def list(self) -> list[MachineId]:
        return await self._host.list()

    async def sweep(self) -> None:
        await self._host.sweep()

    async def withdraw(self) -> None:
        await self._host.remove_node()
