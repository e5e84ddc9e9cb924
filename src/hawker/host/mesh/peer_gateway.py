"""The device at which people's own computers enter private networks: one of WireGuard beside that of the mesh. A peer
sends from its own address alone, which the device sees to, and into its own network, which the packet rules see to.
Root only.
"""

from collections.abc import Collection, Mapping
from ipaddress import IPv6Interface, IPv6Network
from pathlib import Path

from msgspec.structs import replace

from hawker.errors import Fault
from hawker.fair.threads import Pool, in_thread
from hawker.host import links
from hawker.host.address import network_resolver, peer_prefix, peers_name
from hawker.host.mesh.device import HostMesh, MeshKind, TunnelDevice
from hawker.host.mesh.wireguard import MeshKey, MeshPeer, difference
from hawker.host.netlink import NetlinkRequest, NetlinkSocket
from hawker.host.network import NodeNetwork
from hawker.ids import MachineId
from hawker.names import RESOLVER
from hawker.value_object import ValueObject


class PeerPlace(ValueObject, frozen=True):
    """A peer's public key, and where it is in which network."""

    public_key: str
    """WireGuard's, in base64."""
    network_id: int
    """The number of the private network, 0 to 4294967295."""
    id: MachineId

    @property
    def prefix(self) -> IPv6Network:
        return peer_prefix(self.network_id, self.id)


class PeerGateway(HostMesh):
    """`network` has the packet rules."""

    def __init__(
        self, network: NodeNetwork, key: MeshKey, port: int, mtu: int, log: Path, choice: tuple[MeshKind, ...]
    ) -> None:
        super().__init__(network.node_id, key, port, mtu, log, choice)
        self.name = peers_name(network.node_id)
        self._network = network
        self._routed: frozenset[IPv6Network] = frozenset()
        self._answers: frozenset[IPv6Interface] = frozenset()

    async def tell(self, places: Collection[PeerPlace]) -> None:
        """These are let in, and nobody else. Without any nothing is made. Who is let in no more goes first, whatever
        hinders the others. Raises `Fault`, `OSError`."""
        if not places and not self.is_there:
            return
        device = await self.there()
        wanted = {place.public_key: MeshPeer(allowed=frozenset({str(place.prefix)})) for place in places}
        stay = await in_thread(Pool.HOST, _let_out, device, wanted)
        await self._network.admit_peers(frozenset(place.network_id for place in places))
        await in_thread(Pool.HOST, self._lead, frozenset(places))
        await in_thread(Pool.HOST, _change, device, stay, wanted)

    def _another(self) -> str:
        """Each node of a host may have its own."""
        return ""

    def _ways(self, index: int) -> list[NetlinkRequest]:
        """Only to peers: the rest is the mesh's."""
        return []

    def _lead(self, places: frozenset[PeerPlace]) -> None:
        """What is for a peer goes to the device, and its network's resolver has an address on it, beside the one where
        the node's API listens."""
        routed = frozenset(place.prefix for place in places)
        answers = frozenset(IPv6Interface(network_resolver(place.network_id)) for place in places)
        answers |= {IPv6Interface(RESOLVER)} if places else frozenset()
        index = links.index_of(self.name)
        if index is None:
            raise Fault("the device of WireGuard peers went away")
        requests = [links.delete_route(IPv6Interface(each.with_prefixlen), index) for each in self._routed - routed]
        requests += [links.delete_address(index, each) for each in self._answers - answers]
        requests += [links.add_address(index, each) for each in answers]
        requests += [links.add_route(IPv6Interface(each.with_prefixlen), index) for each in routed]
        with NetlinkSocket() as routes:
            routes.apply(requests)
        self._routed, self._answers = routed, answers


def _let_out(device: TunnelDevice, wanted: Mapping[str, MeshPeer]) -> dict[str, MeshPeer]:
    """Those of the device who are wanted stay, as they are wanted, and are returned. Where a peer is heard from is the
    device's to know."""
    try:
        found = device.read().peers
    except ValueError as error:
        raise Fault(f"the device of WireGuard peers says what is no answer: {error}") from error
    stay = {key: peer for key, peer in wanted.items() if key in found}
    _change(device, {key: replace(peer, endpoint="") for key, peer in found.items()}, stay)
    return stay


def _change(device: TunnelDevice, before: Mapping[str, MeshPeer], after: Mapping[str, MeshPeer]) -> None:
    change = difference(before, after)
    if not change.is_none:
        device.change(change, after)
