"""What running machines' networks have lost, by one look at the links and rules of the host."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hawker.host import frames, links, netns
from hawker.host.address import bridge_name
from hawker.host.netlink import host_sockets
from hawker.host.network_plan import NetworkPlan, read_label
from hawker.host.plug import Plug
from hawker.ids import MachineId, NodeId


def what_is_lost(node_id: NodeId, plug: Plug, places: Mapping[NetworkPlan, Path]) -> dict[MachineId, str]:
    """In a sentence each, for the machines that have lost something; `places` are their namespaces."""
    with host_sockets() as host:
        there = links.links(host.routes)
        host_side = _HostSide(
            node_id=node_id,
            indexes={link.name: link.index for link in there},
            owned={plan.machine_id: link for link in there if (plan := read_label(link.label)) is not None},
            senders=frames.senders(host.rules, node_id),
        )
    found = {plan.machine_id: host_side.lacks(plan, place) or plug.lacks(place) for plan, place in places.items()}
    return {machine_id: what for machine_id, what in found.items() if what}


@dataclass(frozen=True, slots=True)
class _HostSide:
    node_id: NodeId
    indexes: Mapping[str, int]
    owned: Mapping[MachineId, links.Link]
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
