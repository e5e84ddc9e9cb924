"""A gateway with more peers than one message to the kernel can have answers for, in a network namespace of our own."""

from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest

from hawker.errors import Fault
from hawker.host import links, netns
from hawker.host.mesh.device import MemoryDevice
from hawker.host.mesh.peer_gateway import PeerGateway, PeerPlace
from hawker.host.mesh.wireguard import own_key
from hawker.host.netlink import NetlinkSocket
from hawker.host.network import NodeNetwork
from hawker.ids import MachineId
from tests.node_ids import own_node_id

MANY = 600
PLACES = [PeerPlace(f"key {number}", number, MachineId(f"{number:014x}")) for number in range(1, MANY + 1)]


class Gateway(PeerGateway):
    """Its device is in memory, beside a link of its name."""

    def __init__(self, folder: Path) -> None:
        network = NodeNetwork(own_node_id(), folder / "netns")
        super().__init__(network, own_key(folder / "key"), 51820, 1420, folder / "log", ())
        self.network = network
        self.device = MemoryDevice()

    async def there(self) -> MemoryDevice:
        return self.device

    @property
    def keys(self) -> set[str]:
        return set(self.device.read().peers)


Work: TypeAlias = Callable[[Gateway], Coroutine[None, None, None]]
InNamespace: TypeAlias = Callable[[Work], None]


@pytest.fixture
def in_namespace(tmp_path: Path) -> InNamespace:
    """Threads begin in the namespace of the one that made them."""

    def run(work: Work) -> None:
        netns.create(tmp_path / "ns", lambda _: anyio.run(partial(work, Gateway(tmp_path))))
        netns.delete(tmp_path / "ns")

    return run


@pytest.mark.root
def test_600_peers_of_600_networks_are_let_in_and_one_is_let_in_no_more(in_namespace: InNamespace) -> None:
    async def work(gateway: Gateway) -> None:
        await gateway.network.guard()
        make_link(gateway.name)
        await gateway.tell(PLACES)
        assert gateway.keys == {place.public_key for place in PLACES}
        await gateway.tell(PLACES[1:])
        assert gateway.keys == {place.public_key for place in PLACES[1:]}

    in_namespace(work)


@pytest.mark.root
def test_a_peer_that_goes_is_removed_where_nobody_new_can_be_let_in(in_namespace: InNamespace) -> None:
    async def work(gateway: Gateway) -> None:
        await gateway.network.guard()
        make_link(gateway.name)
        await gateway.tell(PLACES[:2])
        remove_link(gateway.name)
        with pytest.raises(Fault, match="went away"):
            await gateway.tell(PLACES[1:3])
        assert gateway.keys == {PLACES[1].public_key}

    in_namespace(work)


def make_link(name: str) -> None:
    with NetlinkSocket() as routes:
        routes.apply([links.add_bridge(name, "02:00:00:00:00:01")])


def remove_link(name: str) -> None:
    with NetlinkSocket() as routes:
        routes.apply([links.delete_link(name)])
