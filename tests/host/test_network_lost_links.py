"""Facts about what is seen of a network that lost something; that it is made good is in test_network and test_plug."""

import os
import secrets
from ipaddress import IPv4Address, IPv6Interface

import anyio
import pytest

from hawker.host import anti_spoofing, links, netns
from hawker.host.address import network_prefix, veth_name
from hawker.host.machine_link import MACHINE_LINK, NetworkPlan
from hawker.host.netlink import NetlinkSocket, host_sockets
from hawker.host.network import NodeNetwork
from hawker.ids import MachineId

pytestmark = [pytest.mark.root, pytest.mark.anyio]


def _plan(network_id: int = 7, *, ipv4: str | None = None) -> NetworkPlan:
    return NetworkPlan(MachineId(secrets.token_hex(7)), network_id, IPv4Address(ipv4) if ipv4 else None)


async def test_whole_networks_have_lost_nothing(network: NodeNetwork) -> None:
    plans = [_plan(ipv4="10.213.0.1"), _plan(), _plan(8)]
    for plan in plans:
        await network.ensure(plan)
    assert await network.lost(plans) == {} and await network.guarded()
    assert sorted(await network.link_names()) == sorted(veth_name(network.node_id, each.machine_id) for each in plans)


async def test_a_link_with_a_spare_name_is_not_lost(network: NodeNetwork) -> None:
    first = _plan()
    second = NetworkPlan(MachineId(first.machine_id[:8] + "ffffff"), 8)
    await network.ensure(first)
    await network.ensure(second)
    assert await network.lost([first]) == {}


async def test_a_link_whose_label_was_wiped_off_is_nobodys(network: NodeNetwork) -> None:
    plan, other = _plan(), _plan()
    await network.ensure(plan)
    await network.ensure(other)
    index = links.index_of(veth_name(network.node_id, plan.machine_id))
    assert index is not None
    with host_sockets() as host:
        host.routes.apply([links.write_label(index, "")])
    assert await network.lost([plan, other]) == {plan.machine_id: "its link is gone"}
    await network.guard()
    assert await network.lost([plan, other]) == {}


@pytest.mark.parametrize("taken", [False, True], ids=["its number is free", "its number is taken"])
async def test_a_network_whose_other_end_went_elsewhere_is_deleted_all_the_same(
    network: NodeNetwork, taken: bool
) -> None:
    """As of a daemon that was begun in a network namespace of its own, beside machines of the one before."""
    plan, other = _plan(), _plan(8)
    for each in (plan, other):
        await network.ensure(each)
    name = veth_name(network.node_id, plan.machine_id)
    index = links.index_of(name)
    await anyio.run_process(("ip", "link", "set", name, "netns", str(network.path_of(other.machine_id))))
    if taken:
        await anyio.run_process(("ip", "link", "add", "others", "index", str(index), "type", "bridge"))
    try:
        await network.delete(plan.machine_id)
        assert links.index_of("others") == (index if taken else None), "another link of that number is none of ours"
    finally:
        await anyio.run_process(("ip", "link", "delete", "others"), check=False)
    assert await network.list() == [other.machine_id]
    assert netns.inside(network.path_of(other.machine_id), lambda: links.index_of(name)) is None


async def test_a_machine_that_may_not_send_is_told_from_others(network: NodeNetwork) -> None:
    plan, other = _plan(), _plan()
    await network.ensure(plan)
    await network.ensure(other)
    index = links.index_of(veth_name(network.node_id, plan.machine_id))
    assert index is not None
    with host_sockets() as host:
        anti_spoofing.forget(host.rules, network.node_id, index, plan)
    assert await network.lost([plan, other]) == {plan.machine_id: "its frames are not let through"}


async def test_a_link_of_an_older_hawker_takes_the_whole_network_for_neighbours_until_it_is_made_good(
    network: NodeNetwork,
) -> None:
    plan, other = _plan(), _plan()
    path = await network.ensure(plan)
    await network.ensure(other)

    def as_it_was() -> None:
        with NetlinkSocket() as here:
            index = links.index_of(MACHINE_LINK)
            assert index is not None
            here.apply([links.add_route(IPv6Interface(network_prefix(7).with_prefixlen), index)])

    netns.inside(path, as_it_was)
    assert await network.lost([plan, other]) == {
        plan.machine_id: "its link takes all of its private network for neighbours"
    }
    await network.reconnect(plan, os.getpid())
    assert await network.lost([plan, other]) == {}
