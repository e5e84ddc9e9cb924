"""Fixtures of the host's tests: a node's network that is taken down whatever happens."""

import secrets
from collections.abc import AsyncIterator
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path

import pytest

from hawker.host import links, netns
from hawker.host.egress import Egress, parse_allowed
from hawker.host.netlink import NetlinkRequest, NetlinkSocket
from hawker.host.network import NodeNetwork
from tests.node_ids import own_node_id


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[NodeNetwork]:
    """A booted node of its own, whose machines may reach the fixture `outside`."""
    egress = Egress(parse_allowed(["198.51.100.0/24", "2001:db8:77::/64"]))
    node = NodeNetwork(own_node_id(), tmp_path / "netns", egress=egress)
    await node.boot()
    yield node
    await node.remove_node()


@pytest.fixture
async def outside(tmp_path: Path) -> AsyncIterator[Path]:
    """A namespace that plays the world beyond the host: 198.51.100.2 and 2001:db8:77::2, routed by the host."""
    path, name = tmp_path / "outside", f"out{secrets.token_hex(3)}"

    def plug_in(namespace: int) -> None:
        with NetlinkSocket() as inner:
            host.apply([links.add_veth(name, master=0, peer=links.VethPeer("eth0", "06:00:00:00:00:01", namespace))])
            index = links.index_of("eth0")
            assert index is not None
            inner.apply([links.link_up(index), *_addresses(index, 2)])

    with NetlinkSocket() as host:
        netns.create(path, plug_in)
        index = links.index_of(name)
        assert index is not None
        host.apply(_addresses(index, 1))
        yield path
        host.apply([links.delete_link(name)])
    netns.delete(path)


def _addresses(index: int, last: int) -> list[NetlinkRequest]:
    four, six = IPv4Interface(f"198.51.100.{last}/24"), IPv6Interface(f"2001:db8:77::{last}/64")
    return [links.add_address(index, four), links.add_address(index, six)]
