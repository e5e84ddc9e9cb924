"""The network of one node's machines: a bridge per private network, a namespace and a link per machine, packet rules.

`NodeNetwork(node_id, directory)`: `boot`, `ensure(NetworkPlan) -> path of the namespace`, `delete(machine_id)`,
`list`, `sweep`, `remove_node`. All state is the kernel's; each call is idempotent and may follow a crash anywhere.
`boot` turns on IPv4 and IPv6 forwarding for the whole host and leaves it on. DAD is off for our addresses: they are
unique by construction, and it would cost a second.
"""

import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from hawker.failpoint import inside
from hawker.host import frames, links, netns, nft_messages, nftables, plug
from hawker.host.address import (
    GATEWAY4,
    bridge_mac,
    bridge_name,
    bridge_prefix,
    gateway,
    interface_prefix,
    machine_prefix,
    network_of,
    spare_veth_name,
    veth_name,
)
from hawker.host.fences import fence_table
from hawker.host.forwarding import allow_forwarding, prepare_bridge
from hawker.host.guard import admit_all, has_rules, let_send
from hawker.host.lost_links import what_is_lost
from hawker.host.netlink import HostSockets, NetlinkSocket, host_sockets
from hawker.host.network_plan import NetworkPlan, read_label
from hawker.ids import MachineId, NodeId

T = TypeVar("T")

_SYS_NET = Path("/sys/class/net")


class NodeNetwork:
    """One node's part of the host's network. A bridge is made and removed by one call at a time; taking a link down,
    which the kernel needs some 20 ms for, holds up nobody."""

    def __init__(self, node_id: NodeId, directory: Path, kind: plug.Plug | None = None) -> None:
        self.node_id = node_id
        self._directory = directory
        self._plug = kind or plug.Wired()
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
        await self._run(lambda: admit_all(self.node_id, self._here()))

    async def guarded(self) -> bool:
        return await anyio.to_thread.run_sync(has_rules, self.node_id)

    async def ensure(self, plan: NetworkPlan) -> Path:
        """The machine's namespace, with its link up, addresses and routes."""
        return await self._run(partial(self._ensure, plan))

    async def reconnect(self, plan: NetworkPlan, pid: int) -> None:
        """Bind the namespace of `pid` again if that was undone, and make good what is missing of its link, its
        addresses and its routes, while the machine runs in it."""
        await self._run(partial(self._reconnect, plan, pid))

    async def lost(self, plans: Sequence[NetworkPlan]) -> dict[MachineId, str]:
        """What is missing of running machines' networks, in a sentence each."""
        places = {plan: self.path_of(plan.machine_id) for plan in plans}
        return await anyio.to_thread.run_sync(what_is_lost, self.node_id, self._plug, places)

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
        return list(self._here())

    async def sweep(self) -> None:
        """Remove bridges that no machine is plugged into, as a crash between two steps leaves them."""
        await self._run(self._sweep)

    async def remove_node(self) -> None:
        """Remove everything of this node from the host but the forwarding switches."""
        for machine_id in await self.list():
            await self.delete(machine_id)
        await self._run(self._remove_node)

    def _here(self) -> dict[MachineId, Path]:
        if not self._directory.is_dir():
            return {}
        return {MachineId(name): self._directory / name for name in sorted(os.listdir(self._directory))}

    async def _run(self, work: Callable[[], T]) -> T:
        async with self._change:
            return await anyio.to_thread.run_sync(work)

    def _ensure(self, plan: NetworkPlan) -> Path:
        path = self.path_of(plan.machine_id)
        with host_sockets() as host:
            if netns.exists(path) and not netns.inside(path, self._plug.fits):
                self._unplug(plan.machine_id)
            bridge = self._ensure_bridge(host, plan)
            inside("bridged")
            if not netns.exists(path):
                netns.create(path, partial(self._plug_in, host, bridge, plan))
                inside("bound")
            let_send(host, self.node_id, bridge, plan, path)
        return path

    def _ensure_bridge(self, host: HostSockets, plan: NetworkPlan) -> int:
        """The bridge's index. The rules admit it before a machine is behind it."""
        name = bridge_name(self.node_id, plan.network_id)
        index = links.index_of(name)
        if index is None:
            host.routes.apply([links.add_bridge(name, bridge_mac(self.node_id, plan.network_id))])
            index = links.index_of(name)
            assert index is not None, "the bridge was just made"
        prepare_bridge(name)
        host.rules.apply(nftables.admit_network(self.node_id, name))
        requests = [
            links.link_up(index),
            links.add_address(index, IPv6Interface(gateway(plan.network_id))),
            links.add_address(index, IPv4Interface(GATEWAY4)),
            *(links.add_route(target, index) for target in _routed(plan)),
        ]
        host.routes.apply(requests)
        return index

    def _reconnect(self, plan: NetworkPlan, pid: int) -> None:
        path = self.path_of(plan.machine_id)
        netns.rebind(path, pid)
        with host_sockets() as host:
            bridge = self._ensure_bridge(host, plan)
            if netns.inside(path, plug.far_end) is None:
                netns.inside_with(path, partial(self._plug_in, host, bridge, plan))
            else:
                netns.inside(path, partial(self._plug.configure, plan))
            let_send(host, self.node_id, bridge, plan, path)

    def _plug_in(self, host: HostSockets, bridge: int, plan: NetworkPlan, namespace: int) -> None:
        """Runs in the new namespace; `host` still speaks to the host's."""
        self._plug.prepare()
        self._add_veth(host, bridge, plan.machine_id, namespace)
        self._plug.configure(plan)

    def _add_veth(self, host: HostSockets, bridge: int, machine_id: MachineId, namespace: int) -> None:
        def add(name: str) -> None:
            peer = links.Peer(plug.MACHINE_LINK, self._plug.mac(machine_id), namespace)
            host.routes.apply([links.add_veth(name, master=bridge, peer=peer)])

        try:
            add(veth_name(self.node_id, machine_id))
        except FileExistsError:
            add(spare_veth_name(self.node_id))

    def _unplug(self, machine_id: MachineId) -> str | None:
        """Remove the namespace with its link; the name of the bridge that it was plugged into. Routes go
        first: they cannot be found once the link is gone."""
        path = self.path_of(machine_id)
        end = netns.inside(path, plug.far_end) if netns.exists(path) else None
        if end is None:
            netns.delete(path)
            return None
        with host_sockets() as host:
            link = links.link(host.routes, end)
            bridge = link.master
            name = None if bridge is None else socket.if_indextoname(bridge)  # while our port keeps it there
            if bridge is not None and name is not None:
                plan = read_label(link.label) or NetworkPlan(machine_id, network_of(name))
                host.routes.apply([links.delete_route(target, bridge) for target in _routed(plan)])
                frames.forget(host.rules, self.node_id, end, plan)
            inside("unrouted")
            host.routes.apply([links.delete_link_by_index(end)])
        inside("unlinked")
        netns.delete(path)
        inside("unbound")
        return name

    def _sweep(self) -> None:
        with host_sockets() as host:
            there = links.links(host.routes)
            frames.forget_gone(host.rules, self.node_id, (link.index for link in there))
        for link in there:
            if link.name.startswith(bridge_prefix(self.node_id)):
                self._remove_if_unused(link.name)

    def _names(self, prefix: str) -> tuple[str, ...]:
        with NetlinkSocket() as routes:
            return tuple(link.name for link in links.links(routes) if link.name.startswith(prefix))

    def _unlink(self, name: str) -> None:
        with NetlinkSocket() as routes:
            routes.apply([links.delete_link(name)])

    def _remove_if_unused(self, bridge: str) -> None:
        ports = _SYS_NET / bridge / "brif"
        if not ports.is_dir() or any(ports.iterdir()):
            return
        with host_sockets() as host:
            host.routes.apply([links.delete_link(bridge)])
            host.rules.apply(nftables.forget_network(self.node_id, bridge))

    def _remove_node(self) -> None:
        with host_sockets() as host:
            ours = [link for link in links.links(host.routes) if link.name.startswith(interface_prefix(self.node_id))]
            for link in ours:
                host.routes.apply([links.delete_link(link.name)])
            for table in (fence_table(self.node_id), nftables.table_name(self.node_id)):
                host.rules.apply(nft_messages.remove_table(table))
            host.rules.apply(frames.remove_frames(self.node_id))


def _routed(plan: NetworkPlan) -> list[links.Interface]:
    """What the host routes to a machine. Not the whole network: two nodes on one host may each have a part of it."""
    own = IPv6Interface(machine_prefix(plan.network_id, plan.machine_id).with_prefixlen)
    return [own] if plan.ipv4 is None else [own, IPv4Interface(plan.ipv4)]
