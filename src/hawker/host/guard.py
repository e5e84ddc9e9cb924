"""The packet rules of one node against what is plugged in: whose link may send what."""

from collections.abc import Mapping
from pathlib import Path

from hawker.host import frames, links, netns, nftables, plug
from hawker.host.address import bridge_prefix, interface_prefix, machine_mac, network_of
from hawker.host.netlink import NETLINK_NETFILTER, HostSockets, NetlinkSocket, host_sockets
from hawker.host.network_plan import NetworkPlan, read_label
from hawker.host.nft_messages import look_up_table
from hawker.ids import MachineId, NodeId


def let_send(host: HostSockets, node_id: NodeId, bridge: int, plan: NetworkPlan, namespace: Path) -> None:
    """The link is in its bridge, says whose it is, and lets the machine's frames through: until then, none. The bridge
    is told who is behind the link, and does not listen: frames to some groups of 802.1D come by no rule."""
    end = netns.inside(namespace, plug.far_end)
    assert end is not None, "the machine is plugged in"
    host.routes.apply(
        [
            links.join_bridge(end, bridge),
            links.learn_nothing(end, flood=False),
            links.stand_behind(end, machine_mac(plan.machine_id)),
            links.write_label(end, plan.label),
        ]
    )
    host.rules.apply(frames.let_send(node_id, end, plan))


def has_rules(node_id: NodeId) -> bool:
    try:
        with NetlinkSocket(NETLINK_NETFILTER) as rules:
            rules.ask(look_up_table(nftables.table_name(node_id)))
            rules.ask(frames.look_up_frames(node_id))
    except FileNotFoundError:
        return False
    return True


def admit_all(node_id: NodeId, machines: Mapping[MachineId, Path]) -> None:
    """What is there already. Machines that an older hawker plugged in have links that do not say whose they are."""
    with host_sockets() as host:
        there = {link.index: link for link in links.links(host.routes)}
        labelled = {link.index: plan for link in there.values() if (plan := read_label(link.label)) is not None}
        for index, link in there.items():
            if link.name.startswith(bridge_prefix(node_id)):
                host.rules.apply(nftables.admit_network(node_id, link.name))
            elif index in labelled and link.name.startswith(interface_prefix(node_id)):
                host.rules.apply(frames.let_send(node_id, index, labelled[index]))
        known = {plan.machine_id for plan in labelled.values()}
        for machine_id, namespace in machines.items():
            if machine_id not in known and netns.exists(namespace):
                _admit_unlabelled(host, node_id, machine_id, namespace, there)


def _admit_unlabelled(
    host: HostSockets, node_id: NodeId, machine_id: MachineId, namespace: Path, there: Mapping[int, links.Link]
) -> None:
    end, ipv4 = netns.inside(namespace, lambda: (plug.far_end(), plug.ipv4()))
    bridge = there[end].master if end is not None and end in there else None
    if bridge is not None:
        plan = NetworkPlan(machine_id, network_of(there[bridge].name), ipv4)
        let_send(host, node_id, bridge, plan, namespace)
