"""The network of one node's machines: a bridge per private network, a namespace and a link per machine, packet rules.

`NodeNetwork(node_id, directory)`: `boot`, `ensure(NetworkPlan) -> path of the namespace`, `delete(machine_id)`,
`list`, `sweep`, `remove_node`. All state is the kernel's; each call is idempotent and may follow a crash anywhere.
`boot` turns on IPv4 and IPv6 forwarding for the whole host and leaves it on. DAD is off for our addresses: they are
unique by construction, and it would cost a second.
"""

import fcntl
import os
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from hawker.failpoint import inside
from hawker.host import links, netns, nftables
from hawker.host.address import (
    GATEWAY4,
    bridge_mac,
    bridge_name,
    bridge_prefix,
    gateway,
    interface_prefix,
    machine_mac,
    machine_prefix,
    network_of,
    network_prefix,
    private_ip,
    spare_veth_name,
    veth_name,
)
from hawker.host.forwarding import allow_forwarding, prepare_bridge, prepare_machine
from hawker.host.netlink import NETLINK_NETFILTER, NetlinkSocket, Request
from hawker.ids import MachineId, NodeId

T = TypeVar("T")

MACHINE_LINK = "eth0"
_LOOPBACK_INDEX = 1
_SIOCGIFADDR = 0x8915
_SYS_NET = Path("/sys/class/net")


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """Where a machine is plugged in. `network_id` has 32 bits; `ipv4` comes from the caller's pool and serves outbound
    traffic only; None: IPv6 alone."""

    machine_id: MachineId
    network_id: int
    ipv4: IPv4Address | None = None

    @property
    def ipv6(self) -> IPv6Address:
        return private_ip(self.network_id, self.machine_id)


class NodeNetwork:
    """One node's part of the host's network. A bridge is made and removed by one call at a time; taking a link down,
    which the kernel needs some 20 ms for, holds up nobody."""

    def __init__(self, node_id: NodeId, directory: Path) -> None:
        self.node_id = node_id
        self._directory = directory
        self._change = anyio.Lock()

    def path_of(self, machine_id: MachineId) -> Path:
        return self._directory / machine_id

    async def boot(self) -> None:
        """Forwarding and packet rules. Raises `CannotStart`."""
        await anyio.to_thread.run_sync(allow_forwarding)
        await self.guard()

    async def guard(self) -> None:
        """Packet rules, also for the networks that are there already. Raises `CannotStart`."""
        await nftables.install(self.node_id)
        await self._run(self._admit_all)

    async def guarded(self) -> bool:
        return await anyio.to_thread.run_sync(self._has_rules)

    async def ensure(self, plan: NetworkPlan) -> Path:
        """The machine's namespace, with its link up, addresses and routes."""
        return await self._run(partial(self._ensure, plan))

    async def reconnect(self, plan: NetworkPlan, pid: int) -> None:
        """Bind the namespace of `pid` again if that was undone, and make good what is missing of its link, its
        addresses and its routes, while the machine runs in it."""
        await self._run(partial(self._reconnect, plan, pid))

    async def lost(self, plans: Sequence[NetworkPlan]) -> dict[MachineId, str]:
        """What is missing of running machines' networks, in a sentence each."""
        return await anyio.to_thread.run_sync(self._find_lost, plans)

    async def link_names(self) -> tuple[str, ...]:
        """The host's ends of machines' links that are named after a machine."""
        return await anyio.to_thread.run_sync(self._names, f"{interface_prefix(self.node_id)}v")

    async def unlink(self, name: str) -> None:
        await self._run(partial(self._unlink, name))

    async def delete(self, machine_id: MachineId) -> None:
        """Remove the machine's namespace and link, and its network's bridge if it was the last one there. An earlier
        call that was cut short left no trace of which bridge that is, so then all are looked at."""
        bridge = await anyio.to_thread.run_sync(self._unplug, machine_id)
        await self._run(self._sweep if bridge is None else partial(self._remove_if_unused, bridge))

    async def list(self) -> list[MachineId]:
        """Machines that have a namespace here, whole or half removed."""
        if not self._directory.is_dir():
            return []
        return [MachineId(name) for name in sorted(os.listdir(self._directory))]

    async def sweep(self) -> None:
        """Remove bridges that no machine is plugged into, as a crash between two steps leaves them."""
        await self._run(self._sweep)

    async def remove_node(self) -> None:
        """Remove everything of this node from the host but the forwarding switches."""
        for machine_id in await self.list():
            await self.delete(machine_id)
        await self._run(self._remove_node)

    async def _run(self, work: Callable[[], T]) -> T:
        async with self._change:
            return await anyio.to_thread.run_sync(work)

    def _ensure(self, plan: NetworkPlan) -> Path:
        path = self.path_of(plan.machine_id)
        with NetlinkSocket() as host:
            bridge = self._ensure_bridge(host, plan)
            inside("bridged")
            if not netns.exists(path):
                netns.create(path, partial(self._plug_in, host, bridge, plan))
        return path

    def _ensure_bridge(self, host: NetlinkSocket, plan: NetworkPlan) -> int:
        """The bridge's index. The rules admit it before a machine is behind it."""
        name = bridge_name(self.node_id, plan.network_id)
        index = links.index_of(name)
        if index is None:
            host.apply([links.add_bridge(name, bridge_mac(self.node_id, plan.network_id))])
            index = links.index_of(name)
            assert index is not None, "the bridge was just made"
        prepare_bridge(name)
        with NetlinkSocket(NETLINK_NETFILTER) as rules:
            rules.apply(nftables.admit_network(self.node_id, name))
        requests = [
            links.link_up(index),
            links.add_address(index, IPv6Interface(gateway(plan.network_id))),
            links.add_address(index, IPv4Interface(GATEWAY4)),
            links.add_route(_own(plan.network_id, plan.machine_id), index),
        ]
        if plan.ipv4 is not None:
            requests.append(links.add_route(IPv4Interface(plan.ipv4), index))
        host.apply(requests)
        return index

    def _reconnect(self, plan: NetworkPlan, pid: int) -> None:
        path = self.path_of(plan.machine_id)
        netns.rebind(path, pid)
        with NetlinkSocket() as host:
            bridge = self._ensure_bridge(host, plan)
            end, _ = netns.inside(path, describe_machine_link)
            if end is None:
                netns.inside_with(path, partial(self._plug_in, host, bridge, plan))
            else:
                host.apply([links.join_bridge(end, bridge)])
                netns.inside(path, partial(_configure_link, plan))

    def _plug_in(self, host: NetlinkSocket, bridge: int, plan: NetworkPlan, namespace: int) -> None:
        """Runs in the new namespace; `host` still speaks to the host's."""
        prepare_machine()
        self._add_veth(host, bridge, plan.machine_id, namespace)
        _configure_link(plan)

    def _add_veth(self, host: NetlinkSocket, bridge: int, machine_id: MachineId, namespace: int) -> None:
        def add(name: str) -> None:
            peer = links.Peer(MACHINE_LINK, machine_mac(machine_id), namespace)
            host.apply([links.add_veth(name, master=bridge, peer=peer)])

        try:
            add(veth_name(self.node_id, machine_id))
        except FileExistsError:
            add(spare_veth_name(self.node_id))

    def _unplug(self, machine_id: MachineId) -> str | None:
        """Remove the namespace with its link; the name of the bridge that it was plugged into. Routes go
        first: they cannot be found once the link is gone."""
        path = self.path_of(machine_id)
        end, ipv4 = netns.inside(path, describe_machine_link) if netns.exists(path) else (None, None)
        if end is None:
            netns.delete(path)
            return None
        with NetlinkSocket() as host:
            bridge = links.master_of(host, end)
            name = None if bridge is None else socket.if_indextoname(bridge)  # while our port keeps it there
            if bridge is not None and name is not None:
                host.apply([links.delete_route(_own(network_of(name), machine_id), bridge)])
            if bridge is not None and ipv4 is not None:
                host.apply([links.delete_route(IPv4Interface(ipv4), bridge)])
            inside("unrouted")
            host.apply([links.delete_link_by_index(end)])
        inside("unlinked")
        netns.delete(path)
        inside("unbound")
        return name

    def _sweep(self) -> None:
        for bridge in self._names(bridge_prefix(self.node_id)):
            self._remove_if_unused(bridge)

    def _names(self, prefix: str) -> tuple[str, ...]:
        with NetlinkSocket() as host:
            return tuple(link.name for link in links.links(host) if link.name.startswith(prefix))

    def _unlink(self, name: str) -> None:
        with NetlinkSocket() as host:
            host.apply([links.delete_link(name)])

    def _admit_all(self) -> None:
        for bridge in self._names(bridge_prefix(self.node_id)):
            with NetlinkSocket(NETLINK_NETFILTER) as rules:
                rules.apply(nftables.admit_network(self.node_id, bridge))

    def _has_rules(self) -> bool:
        try:
            with NetlinkSocket(NETLINK_NETFILTER) as rules:
                rules.ask(nftables.look_up_table(self.node_id))
        except FileNotFoundError:
            return False
        return True

    def _find_lost(self, plans: Sequence[NetworkPlan]) -> dict[MachineId, str]:
        """One list of all links, and a look into the namespace of those machines only whose link is not where its name
        says that it is."""
        with NetlinkSocket() as host:
            there = {link.name: link for link in links.links(host)}
        found = {plan.machine_id: self._what_is_lost(plan, there) for plan in plans}
        return {machine_id: what for machine_id, what in found.items() if what}

    def _what_is_lost(self, plan: NetworkPlan, there: Mapping[str, links.Link]) -> str:
        path = self.path_of(plan.machine_id)
        if not netns.exists(path):
            return "its network namespace is not bound here any more"
        bridge = there.get(bridge_name(self.node_id, plan.network_id))
        if bridge is None:
            return "the bridge of its network is gone"
        link = there.get(veth_name(self.node_id, plan.machine_id))
        if link is None:
            end, _ = netns.inside(path, describe_machine_link)
            link = next((each for each in there.values() if each.index == end), None)
        if link is None:
            return "its link is gone"
        return "" if link.master == bridge.index else "its link is not in the bridge of its network"

    def _remove_if_unused(self, bridge: str) -> None:
        ports = _SYS_NET / bridge / "brif"
        if not ports.is_dir() or any(ports.iterdir()):
            return
        with NetlinkSocket() as host, NetlinkSocket(NETLINK_NETFILTER) as rules:
            host.apply([links.delete_link(bridge)])
            rules.apply(nftables.forget_network(self.node_id, bridge))

    def _remove_node(self) -> None:
        with NetlinkSocket() as host, NetlinkSocket(NETLINK_NETFILTER) as rules:
            ours = [link.name for link in links.links(host) if link.name.startswith(interface_prefix(self.node_id))]
            for name in ours:
                host.apply([links.delete_link(name)])
            rules.apply(nftables.remove_table(self.node_id))


def _own(network_id: int, machine_id: MachineId) -> IPv6Interface:
    """What the host routes to a machine. Not the whole network: two nodes on one host may each have a part of it."""
    return IPv6Interface(machine_prefix(network_id, machine_id).with_prefixlen)


def _configure_link(plan: NetworkPlan) -> None:
    """Runs in the machine's namespace."""
    with NetlinkSocket() as machine:
        index = links.index_of(MACHINE_LINK)
        assert index is not None, "the link is there"
        machine.apply(_machine_requests(plan, index))


def _machine_requests(plan: NetworkPlan, index: int) -> list[Request]:
    prefix = network_prefix(plan.network_id).prefixlen
    requests = [
        links.link_up(_LOOPBACK_INDEX),
        links.link_up(index),
        links.add_address(index, IPv6Interface((plan.ipv6, prefix))),
        links.add_route(IPv6Interface("::/0"), index, via=str(gateway(plan.network_id))),
    ]
    if plan.ipv4 is not None:
        requests.append(links.add_address(index, IPv4Interface(plan.ipv4)))
        requests.append(links.add_route(IPv4Interface("0.0.0.0/0"), index, via=str(GATEWAY4)))
    return requests


def describe_machine_link() -> tuple[int | None, IPv4Address | None]:
    """In the machine's namespace: the index of the link's other end on the host, and its IPv4 address."""
    with NetlinkSocket() as machine:
        index = links.index_of(MACHINE_LINK)
        end = links.other_end_of(machine, index) if index is not None else None
    return end, _ipv4_of(MACHINE_LINK) if index is not None else None


def _ipv4_of(name: str) -> IPv4Address | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("16s24x", name.encode()))
        except OSError:
            return None
    return IPv4Address(answer[20:24])
