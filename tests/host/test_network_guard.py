"""Facts about a node's rules when machines are plugged in already. What the rules hold up is in test_frames."""

import secrets
from ipaddress import IPv4Address

import pytest

from hawker.host import anti_spoofing, links
from hawker.host.address import veth_name
from hawker.host.machine_link import NetworkPlan, read_label
from hawker.host.netlink import host_sockets
from hawker.host.network import NodeNetwork, admit_all, has_rules
from hawker.host.nft_messages import remove_table
from hawker.host.nftables import table_name
from hawker.ids import MachineId

pytestmark = [pytest.mark.root, pytest.mark.anyio]


@pytest.fixture
def plan() -> NetworkPlan:
    return NetworkPlan(MachineId(secrets.token_hex(7)), 7, IPv4Address("10.213.3.1"))


async def test_either_table_that_is_gone_is_missed(network: NodeNetwork) -> None:
    assert has_rules(network.node_id)
    for gone in (remove_table(table_name(network.node_id)), anti_spoofing.remove_frames(network.node_id)):
        with host_sockets() as host:
            host.rules.apply(gone)
        assert not has_rules(network.node_id)
        await network.guard()
        assert has_rules(network.node_id)


@pytest.mark.parametrize("label", [None, "", "somebody else's words"])
async def test_links_are_let_send_again_whether_they_say_whose_they_are_or_not(
    network: NodeNetwork, plan: NetworkPlan, label: str | None
) -> None:
    """An older hawker wrote nothing on them; all its machines had the host's kernel, and their addresses inside."""
    await network.ensure(plan)
    index = links.index_of(veth_name(network.node_id, plan.machine_id))
    assert index is not None
    with host_sockets() as host:
        if label is not None:
            host.routes.apply([links.write_label(index, label)])
        host.rules.apply(anti_spoofing.remove_frames(network.node_id))
        await network.guard()
        assert anti_spoofing.senders(host.rules, network.node_id) == {index}
        assert read_label(links.link(host.routes, index).label) == plan
    await network.delete(plan.machine_id)


async def test_a_machine_without_a_link_is_passed_over(network: NodeNetwork, plan: NetworkPlan) -> None:
    await network.ensure(plan)
    await network.unlink(veth_name(network.node_id, plan.machine_id))
    admit_all(network.node_id, {plan.machine_id: network.path_of(plan.machine_id)})
    with host_sockets() as host:
        assert links.index_of(veth_name(network.node_id, plan.machine_id)) is None
        await network.sweep()
        assert anti_spoofing.senders(host.rules, network.node_id) == frozenset()
