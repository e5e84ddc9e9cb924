"""The networks of a node's machines: a record's addresses as the host's plan."""

from collections.abc import Awaitable, Callable, Mapping
from ipaddress import IPv4Address, IPv6Address

from hawker.host.address import bridge_name, machine_mac, private_ip, veth_name
from hawker.host.machine_link import MACHINE_LINK, TAP, NetworkPlan, addresses, gateways
from hawker.host.network import NodeNetwork
from hawker.host.packet_counts import link_traffic
from hawker.ids import MachineId
from hawker.record.machine import Network
from hawker.runtime.spec import GuestLink


class HostNetworks:
    """Keeps `host_adapters.Networks`. `kernels`: machines have kernels of their own, and `host` was made with `Tapped`.
    `resolver` waits until the machines' resolver listens at a bridge."""

    def __init__(
        self, host: NodeNetwork, *, kernels: bool = False, resolver: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        self._host = host
        self._kernels = kernels
        self._resolver = resolver
        self._ways: Callable[[int], Awaitable[None]] | None = None
        self._end_ways: Callable[[], Awaitable[None]] | None = None

    @property
    def host(self) -> NodeNetwork:
        """The part of the network that is the kernel's."""
        return self._host

    def meet(self, ways: Callable[[int], Awaitable[None]], end: Callable[[], Awaitable[None]]) -> None:
        """`ways` waits until the way to machines of a network on other hosts is known. After `end` none is made."""
        self._ways, self._end_ways = ways, end

    def private_ip(self, network_id: int, machine_id: MachineId) -> str:
        return str(private_ip(network_id, machine_id))

    async def ensure(self, machine_id: MachineId, network: Network) -> str:
        path = await self._host.ensure(_plan(machine_id, network))
        if self._resolver is not None:
            await self._resolver(bridge_name(self._host.node_id, network.network_id))
        if self._ways is not None:
            await self._ways(network.network_id)
        return str(path)

    def link(self, machine_id: MachineId, network: Network) -> GuestLink | None:
        if not self._kernels:
            return None
        plan = _plan(machine_id, network)
        return GuestLink(
            mac=machine_mac(machine_id),
            addresses=tuple(map(str, addresses(plan))),
            gateways=gateways(plan),
            name=MACHINE_LINK,
            tap=TAP,
        )

    async def delete(self, machine_id: MachineId) -> None:
        await self._host.delete(machine_id)

    async def list(self) -> list[MachineId]:
        return await self._host.list()

    async def sweep(self) -> None:
        """Sweeps the host's network. It also follows the host to other networks and name servers."""
        await self._host.sweep()
        await self._host.withhold()

    async def withdraw(self) -> None:
        if self._end_ways is not None:
            await self._end_ways()
        await self._host.remove_node()

    async def lost(self, networks: Mapping[MachineId, Network]) -> dict[MachineId, str]:
        return await self._host.lost([_plan(machine_id, network) for machine_id, network in networks.items()])

    async def reconnect(self, machine_id: MachineId, network: Network, pid: int) -> None:
        await self._host.reconnect(_plan(machine_id, network), pid)

    async def links(self) -> tuple[str, ...]:
        return await self._host.link_names()

    def link_of(self, machine_id: MachineId) -> str:
        return veth_name(self._host.node_id, machine_id)

    def traffic(self, machine_id: MachineId) -> tuple[int, int] | None:
        found = link_traffic(self.link_of(machine_id))
        return None if found is None else (found.received_bytes, found.sent_bytes)

    async def unlink(self, name: str) -> None:
        await self._host.unlink(name)

    async def guarded(self) -> bool:
        return await self._host.guarded()

    async def guard(self) -> None:
        await self._host.guard()

    async def serve_at(self, addresses: Mapping[int, frozenset[str]]) -> None:
        await self._host.serve_at({number: frozenset(map(IPv6Address, ips)) for number, ips in addresses.items()})

    async def withhold(self, members: frozenset[str]) -> None:
        await self._host.withhold(members)

    async def dropped(self) -> Mapping[str, int]:
        return await self._host.dropped()


def _plan(machine_id: MachineId, network: Network) -> NetworkPlan:
    ipv4 = IPv4Address(network.ipv4) if network.ipv4 else None
    return NetworkPlan(machine_id=machine_id, network_id=network.network_id, ipv4=ipv4)
