"""Facts about single requests to the kernel about packet rules."""

from collections.abc import AsyncIterator

import pytest

from hawker.host.anti_spoofing import frame_table, remove_frames
from hawker.host.netlink import NETLINK_NETFILTER, NetlinkSocket
from hawker.host.nft_messages import (
    BRIDGE,
    Element,
    add_elements,
    delete_element,
    list_elements,
    look_up_chain,
    look_up_table,
    read_keys,
    remove_table,
)
from hawker.host.nftables import install, table_name
from hawker.ids import NodeId

pytestmark = pytest.mark.anyio


@pytest.fixture
async def table(node_id: NodeId) -> AsyncIterator[NodeId]:
    await install(node_id)
    yield node_id
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        netlink.apply(remove_table(table_name(node_id)))
        netlink.apply(remove_frames(node_id))


@pytest.mark.root
async def test_a_table_that_is_there_is_told_from_one_that_is_not(table: NodeId) -> None:
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        assert netlink.ask(look_up_table(table_name(table)))
        netlink.apply(remove_table(table_name(table)))
        with pytest.raises(FileNotFoundError):
            netlink.ask(look_up_table(table_name(table)))


@pytest.mark.root
async def test_a_chain_that_is_there_is_told_from_one_that_is_not(table: NodeId) -> None:
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        assert netlink.ask(look_up_chain(table_name(table), "to_host"))
        for name, chain in ((table_name(table), "to_nobody"), ("hawker_none", "to_host")):
            with pytest.raises(FileNotFoundError):
                netlink.ask(look_up_chain(name, chain))


@pytest.mark.root
async def test_elements_are_added_listed_and_deleted_one_by_one_without_complaint(table: NodeId) -> None:
    elements = [Element(BRIDGE, frame_table(table), "ipv4", bytes([number] * 8)) for number in range(1, 200)]
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        for _ in range(2):
            netlink.apply(add_elements(elements))
        for _ in range(2):
            netlink.apply(delete_element(elements[0]))
        bodies = list(netlink.dump(list_elements(BRIDGE, frame_table(table), "ipv4")))
    assert {key for body in bodies for key in read_keys(body)} == {each.key for each in elements[1:]}
    assert len(bodies) > 1


@pytest.mark.root
async def test_a_batch_is_carried_out_whole_or_not_at_all(table: NodeId) -> None:
    good = Element(BRIDGE, frame_table(table), "ipv4", bytes(8))
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        with pytest.raises(FileNotFoundError):
            netlink.apply(add_elements([good, Element(BRIDGE, frame_table(table), "no such set", bytes(8))]))
        bodies = list(netlink.dump(list_elements(BRIDGE, frame_table(table), "ipv4")))
    assert [key for body in bodies for key in read_keys(body)] == []


def test_a_torn_answer_has_no_keys() -> None:
    assert list(read_keys(b"")) == [] == list(read_keys(bytes(7)))
