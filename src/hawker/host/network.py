"""The network of one node's machines: a bridge per private network, a namespace and a link per machine, packet rules.

`NodeNetwork(node_id, directory)`: `boot`, `ensure(NetworkPlan) -> path of the namespace`, `delete(machine_id)`,
`list`, `sweep`, `remove_node`. All state is the kernel's; each call is idempotent and may follow a crash anywhere.
`boot` turns on IPv4 and IPv6 forwarding for the whole host and leaves it on. DAD is off for our addresses: they are
unique by construction, and it would cost a second.
"""

import errno
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ipaddress import IPv4Interface, IPv6Address, IPv6Interface
from pathlib import Path
from typing import TypeVar

import anyio

from hawker.errors import Fault
from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.host import anti_spoofing, links, machine_link, netns, nft_messages, nftables
from hawker.host.address import (
    GATEWAY4,
    bridge_link_local,
    bridge_mac,
    bridge_name,
    bridge_prefix,
    gateway,
    interface_prefix,
    machine_mac,
    machine_prefix,
    network_of,
    spare_veth_name,
    veth_name,
)
from hawker.host.egress import Egress, egress_mark, egress_rules, egress_table
from hawker.host.machine_link import MachineLink, NetworkPlan, allow_forwarding, prepare_bridge, read_label
from hawker.host.netlink import NETLINK_NETFILTER, HostSockets, NetlinkSocket, host_sockets
from hawker.host.network_policy import policy_table
from hawker.host.nft_messages import look_up_chain, look_up_table
from hawker.host.nftables import LinkLimits
from hawker.host.packet_counts import dropped_packets
from hawker.ids import MachineId, NodeId
from hawker.names import RESOLVER
from hawker.value_object import ValueObject

T = TypeVar("T")

_SYS_NET = Path("/sys/class/net")
_LINK_LOCAL_BITS = 64


class NodeNetwork:
    """One node's part of the host's network. A bridge is made and removed by one call at a time; taking a link down,
    which the kernel needs some 20 ms for, holds up nobody."""

    def __init__(
        self,
        node_id: NodeId,
        directory: Path,
        kind: machine_link.MachineLink | None = None,
        *,
        egress: Egress | None = None,
        limits: LinkLimits | None = None,
        api: bool = False,
    ) -> None:
        """`api`: machines reach the node's API."""
        self.node_id = node_id
        self._directory = directory
        self._kind = kind or machine_link.WiredLink()
        self._egress = egress or Egress()
        self._limits = limits
        self._api = api
        self._change = anyio.Lock()
        self._rules = anyio.Lock()
        self._mark: str | None = None  # of what this process put in force last
        self._removed = False
        self._served: Mapping[int, frozenset[IPv6Address]] = {}
        self._with_peers: frozenset[int] = frozenset()

    def path_of(self, machine_id: MachineId) -> Path:
        return self._directory / machine_id

    async def boot(self) -> None:
        """Turn on forwarding, and put the packet rules in place. Raises `CannotStart`."""
        await in_thread(Pool.HOST, allow_forwarding)
        await self.guard()

    async def guard(self) -> None:
        """Put the packet rules in place, also for the networks that are there already. Raises `CannotStart`."""
        async with self._rules:
            self._removed = False
            plan = await in_thread(Pool.HOST, self._egress.plan)
            await nftables.install(self.node_id, self._limits, egress_rules(self.node_id, plan), api=self._api)
            self._mark = egress_mark(plan)
        await self._run(lambda: admit_all(self.node_id, self._here()))

    async def guarded(self) -> bool:
        """Whether the packet rules that were put in place are still there; True for a node that is removed."""
        if self._removed:
            return True
        whole = await in_thread(Pool.HOST, has_rules, self.node_id)
        return whole and await in_thread(Pool.HOST, self._withholds)

    async def withhold(self, members: frozenset[str] | None = None) -> None:
        """Put the rules for where machines may not send in force, as the host is now; from now on with these addresses
        of the fleet's members. No change where they are in force. Raises `Fault`; then what was in force stays in
        force."""
        if members is not None:
            self._egress.members = members
        async with self._rules:
            if self._removed:
                return
            plan = await in_thread(Pool.HOST, self._egress.plan)
            if not await in_thread(Pool.HOST, has_chain, egress_table(self.node_id), egress_mark(plan)):
                reason = await nftables.refusal_of(egress_rules(self.node_id, plan))
                if reason:
                    raise Fault(f"nft refused the rules for where machines may not send: {reason}")
            self._mark = egress_mark(plan)

    async def serve_at(self, addresses: Mapping[int, frozenset[IPv6Address]]) -> None:
        """Give the host these addresses in each network, for as long as the network's bridge is there, and take away
        those of the last call that are not among them. Raises `OSError`."""
        await self._run(partial(self._serve_at, addresses))

    async def admit_peers(self, networks: frozenset[int]) -> None:
        """Let people's computers into these networks, each into its own, and into no others. Raises `OSError`."""
        await self._run(partial(self._admit_peers, networks))

    async def dropped(self) -> Mapping[str, int]:
        """The number of packets of machines that were dropped, by reason."""
        return await in_thread(Pool.HOST, dropped_packets, self.node_id)

    async def ensure(self, plan: NetworkPlan) -> Path:
        """Make the machine's namespace, with its link up, addresses and routes. Returns its path."""
        return await self._run(partial(self._ensure, plan))

    async def reconnect(self, plan: NetworkPlan, pid: int) -> None:
        """Bind the namespace of process `pid` again if that was undone, and restore the missing parts of its link, its
        addresses and its routes, while the machine runs in it."""
        await self._run(partial(self._reconnect, plan, pid))

    async def lost(self, plans: Sequence[NetworkPlan]) -> dict[MachineId, str]:
        """The missing parts of running machines' networks, in a sentence for each machine that lacks one."""
        places = {plan: self.path_of(plan.machine_id) for plan in plans}
        return await in_thread(Pool.HOST, what_is_lost, self.node_id, self._kind, places)

    async def link_names(self) -> tuple[str, ...]:
        """The names of the host's ends of machines' links that are named after a machine."""
        return await in_thread(Pool.HOST, self._names, f"{interface_prefix(self.node_id)}v")

    async def unlink(self, name: str) -> None:
        await self._run(partial(self._unlink, name))

    async def delete(self, machine_id: MachineId) -> None:
        """Remove the machine's namespace and link, and its network's bridge if it was the last one there. An earlier
        call that was cut short left no trace of which bridge that is, so then all are looked at."""
        bridge = await in_thread(Pool.HOST, self._unplug, machine_id)
        await self._run(self._sweep if bridge is None else partial(self._remove_if_unused, bridge))

    async def list(self) -> list[MachineId]:
        """Machines that have a namespace here, whole or half removed."""
        return list(self._here())

    async def sweep(self) -> None:
        """Remove bridges that no machine is plugged into, as a crash between two steps leaves them."""
        await self._run(self._sweep)

    async def remove_node(self) -> None:
        """Remove everything of this node from the host but the forwarding switches. News of the fleet from now on makes
        no rules."""
        async with self._rules:
            self._removed = True
        for machine_id in await self.list():
            await self.delete(machine_id)
        await self._run(self._remove_node)

    def _withholds(self) -> bool:
        return self._mark is None or has_chain(egress_table(self.node_id), self._mark)

    def _here(self) -> dict[MachineId, Path]:
        if not self._directory.is_dir():
            return {}
        return {MachineId(name): self._directory / name for name in sorted(os.listdir(self._directory))}

    async def _run(self, work: Callable[[], T]) -> T:
        async with self._change:
            return await in_thread(Pool.HOST, work)

    def _ensure(self, plan: NetworkPlan) -> Path:
        path = self.path_of(plan.machine_id)
        with host_sockets() as host:
            end = self._end_that_fits(plan.machine_id)
            bridge = self._ensure_bridge(host, plan)
            inside("bridged")
            if end is None:
                ends: list[int | None] = []
                netns.create(path, lambda made: ends.append(self._plug_in(host, bridge, plan, made)))
                inside("bound")
                end = ends[0]
            let_send(host, self.node_id, bridge, plan, end)
        return path

    def _end_that_fits(self, machine_id: MachineId) -> int | None:
        """The host's end of the machine's link, where its namespace is there and is for this kind of machine. One that
        is not is removed."""
        path = self.path_of(machine_id)
        if not netns.exists(path):
            return None
        fits, end = netns.inside(path, lambda: (self._kind.fits(), machine_link.far_end()))
        if fits and end is not None:
            return end
        self._unplug(machine_id)
        return None

    def _ensure_bridge(self, host: HostSockets, plan: NetworkPlan) -> int:
        """The bridge's index. The rules admit it before a machine is behind it. The kernel asks who has a machine's
        address, for what another machine sends there, from the bridge's link-local address. The one that it makes by
        itself would be of use two seconds after the first machine is there, and the first packets would wait for it."""
        name = bridge_name(self.node_id, plan.network_id)
        index = links.index_of(name)
        if index is None:
            host.routes.apply([links.add_bridge(name, bridge_mac(plan.network_id))])
            index = links.index_of(name)
            assert index is not None, "the bridge was just made"
        prepare_bridge(name)
        host.rules.apply(nftables.admit_network(self.node_id, name))
        requests = [
            links.link_up(index),
            links.add_address(index, IPv6Interface((bridge_link_local(plan.network_id), _LINK_LOCAL_BITS))),
            links.add_address(index, IPv6Interface(gateway(plan.network_id))),
            links.add_address(index, IPv4Interface(GATEWAY4)),
            links.add_address(index, IPv6Interface(RESOLVER)),
            *(links.add_address(index, IPv6Interface(each)) for each in self._served.get(plan.network_id, ())),
            *(links.add_route(target, index) for target in _routed(plan)),
        ]
        host.routes.apply(requests)
        return index

    def _serve_at(self, addresses: Mapping[int, frozenset[IPv6Address]]) -> None:
        before, self._served = self._served, addresses
        with NetlinkSocket() as routes:
            for network_id in before.keys() | addresses.keys():
                index = links.index_of(bridge_name(self.node_id, network_id))
                if index is not None:
                    wanted, had = addresses.get(network_id, frozenset()), before.get(network_id, frozenset())
                    requests = [links.delete_address(index, IPv6Interface(each)) for each in had - wanted]
                    requests += [links.add_address(index, IPv6Interface(each)) for each in wanted]
                    if requests:
                        routes.apply(requests)

    def _admit_peers(self, networks: frozenset[int]) -> None:
        before, self._with_peers = self._with_peers, networks
        with host_sockets() as host:
            nftables.forget_peers(host.rules, self.node_id, before - networks)
            nftables.admit_peers(host.rules, self.node_id, sorted(networks))

    def _reconnect(self, plan: NetworkPlan, pid: int) -> None:
        path = self.path_of(plan.machine_id)
        netns.rebind(path, pid)
        with host_sockets() as host:
            bridge = self._ensure_bridge(host, plan)
            end = netns.inside(path, machine_link.far_end)
            if end is None:
                end = netns.inside_with(path, partial(self._plug_in, host, bridge, plan))
            else:
                netns.inside(path, partial(self._kind.configure, plan))
            let_send(host, self.node_id, bridge, plan, end)

    def _plug_in(self, host: HostSockets, bridge: int, plan: NetworkPlan, namespace: int) -> int | None:
        """Runs in the new namespace; `host` still speaks to the host's. The host's end of the link."""
        self._kind.prepare()
        self._add_veth(host, bridge, plan.machine_id, namespace)
        self._kind.configure(plan)
        return machine_link.far_end()

    def _add_veth(self, host: HostSockets, bridge: int, machine_id: MachineId, namespace: int) -> None:
        def add(name: str) -> None:
            peer = links.VethPeer(machine_link.MACHINE_LINK, self._kind.mac(machine_id), namespace)
            host.routes.apply([links.add_veth(name, master=bridge, peer=peer)])

        try:
            add(veth_name(self.node_id, machine_id))
        except FileExistsError:
            add(spare_veth_name(self.node_id))

    def _unplug(self, machine_id: MachineId) -> str | None:
        """Remove the namespace with its link; the name of the bridge that it was plugged into. Routes go
        first: they cannot be found once the link is gone."""
        path = self.path_of(machine_id)
        end = netns.inside(path, machine_link.far_end) if netns.exists(path) else None
        if end is None:
            netns.delete(path)
            return None
        with host_sockets() as host:
            link = self._end_here(host.routes, end)
            if link is None:
                netns.delete(path)  # which takes the other end along
                return None
            bridge = link.master
            name = None if bridge is None else socket.if_indextoname(bridge)  # while our port keeps it there
            if bridge is not None and name is not None:
                plan = read_label(link.label) or NetworkPlan(machine_id, network_of(name))
                host.routes.apply([links.delete_route(target, bridge) for target in _routed(plan)])
                anti_spoofing.forget(host.rules, self.node_id, end, plan)
            inside("unrouted")
            host.routes.apply([links.delete_link_by_index(end)])
        inside("unlinked")
        netns.delete(path)
        inside("unbound")
        return name

    def _end_here(self, routes: NetlinkSocket, index: int) -> links.HostLink | None:
        """The other end of a machine's link. None where that is in another namespace than ours: in ours its number is
        nobody's, or that of a link which is none of this node's."""
        try:
            link = links.link(routes, index)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            return None
        return link if link.name.startswith(interface_prefix(self.node_id)) else None

    def _sweep(self) -> None:
        with host_sockets() as host:
            there = links.links(host.routes)
            anti_spoofing.forget_gone(host.rules, self.node_id, (link.index for link in there))
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
            nftables.forget_network(host.rules, self.node_id, bridge)

    def _remove_node(self) -> None:
        with host_sockets() as host:
            ours = [link for link in links.links(host.routes) if link.name.startswith(interface_prefix(self.node_id))]
            for link in ours:
                host.routes.apply([links.delete_link(link.name)])
            for table in (policy_table(self.node_id), egress_table(self.node_id), nftables.table_name(self.node_id)):
                host.rules.apply(nft_messages.remove_table(table))
            host.rules.apply(anti_spoofing.remove_frames(self.node_id))


def _routed(plan: NetworkPlan) -> list[links.Interface]:
    """What the host routes to a machine. Not the whole network: two nodes on one host may each have a part of it."""
    own = IPv6Interface(machine_prefix(plan.network_id, plan.machine_id).with_prefixlen)
    return [own] if plan.ipv4 is None else [own, IPv4Interface(plan.ipv4)]


def let_send(host: HostSockets, node_id: NodeId, bridge: int, plan: NetworkPlan, end: int | None) -> None:
    """Put the link whose end on the host is `end` into its bridge, label it as the machine's, and let the machine's
    frames through: until then, none passes. The bridge is told the machine's link address behind the link, and does not
    learn: frames to some groups of 802.1D come by no rule."""
    assert end is not None, "the machine is plugged in"
    host.routes.apply(
        [
            links.join_bridge(end, bridge),
            links.learn_nothing(end, flood=False),
            links.stand_behind(end, machine_mac(plan.machine_id)),
            links.write_label(end, plan.label),
        ]
    )
    host.rules.apply(anti_spoofing.let_send(node_id, end, plan))


def has_rules(node_id: NodeId) -> bool:
    """Whether all tables of the node's packet rules are there."""
    try:
        with NetlinkSocket(NETLINK_NETFILTER) as rules:
            rules.ask(look_up_table(nftables.table_name(node_id)))
            rules.ask(look_up_table(egress_table(node_id)))
            rules.ask(anti_spoofing.look_up_frames(node_id))
    except FileNotFoundError:
        return False
    return True


def has_chain(table: str, name: str) -> bool:
    try:
        with NetlinkSocket(NETLINK_NETFILTER) as rules:
            rules.ask(look_up_chain(table, name))
    except FileNotFoundError:
        return False
    return True


def admit_all(node_id: NodeId, machines: Mapping[MachineId, Path]) -> None:
    """Admit the networks and machines that are there already. Links that an older hawker made do not say which machine
    they are of."""
    with host_sockets() as host:
        there = {link.index: link for link in links.links(host.routes)}
        labelled = {link.index: plan for link in there.values() if (plan := read_label(link.label)) is not None}
        for index, link in there.items():
            if link.name.startswith(bridge_prefix(node_id)):
                host.rules.apply(nftables.admit_network(node_id, link.name))
            elif index in labelled and link.name.startswith(interface_prefix(node_id)):
                host.rules.apply(anti_spoofing.let_send(node_id, index, labelled[index]))
        known = {plan.machine_id for plan in labelled.values()}
        for machine_id, namespace in machines.items():
            if machine_id not in known and netns.exists(namespace):
                _admit_unlabelled(host, node_id, machine_id, namespace, there)


def _admit_unlabelled(
    host: HostSockets, node_id: NodeId, machine_id: MachineId, namespace: Path, there: Mapping[int, links.HostLink]
) -> None:
    end, ipv4 = netns.inside(namespace, lambda: (machine_link.far_end(), machine_link.ipv4()))
    bridge = there[end].master if end is not None and end in there else None
    if bridge is not None:
        plan = NetworkPlan(machine_id, network_of(there[bridge].name), ipv4)
        let_send(host, node_id, bridge, plan, end)


def what_is_lost(node_id: NodeId, kind: MachineLink, places: Mapping[NetworkPlan, Path]) -> dict[MachineId, str]:
    """The parts that running machines' networks have lost, by one look at the links and rules of the host: a sentence
    for each machine that has lost one. `places` are their namespaces."""
    with host_sockets() as host:
        there = links.links(host.routes)
        host_side = _HostSide(
            node_id=node_id,
            indexes={link.name: link.index for link in there},
            owned={plan.machine_id: link for link in there if (plan := read_label(link.label)) is not None},
            senders=anti_spoofing.senders(host.rules, node_id),
        )
    found = {plan.machine_id: host_side.lacks(plan, place) or kind.lacks(place) for plan, place in places.items()}
    return {machine_id: what for machine_id, what in found.items() if what}


class _HostSide(ValueObject, frozen=True):
    node_id: NodeId
    indexes: Mapping[str, int]
    owned: Mapping[MachineId, links.HostLink]
    senders: frozenset[int]

    def lacks(self, plan: NetworkPlan, namespace: Path) -> str:
        bridge, link = self.indexes.get(bridge_name(self.node_id, plan.network_id)), self.owned.get(plan.machine_id)
        if not netns.exists(namespace):
            return "its network namespace is not bound here any more"
        if bridge is None:
            return "the bridge of its network is gone"
        if link is None:
            return "its link is gone"
        if link.master != bridge:
            return "its link is not in the bridge of its network"
        return "" if link.index in self.senders else "its frames are not let through"
