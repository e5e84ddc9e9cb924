"""A host of a mesh without a daemon, as a program: it makes the networks of machines and the device, says `ready`, and
takes all of it away when its standard input ends. Its only argument is a `Plan` as JSON.
"""

import base64
import sys
from ipaddress import IPv4Address
from pathlib import Path

import anyio
import msgspec

from hawker.host.machine_link import NetworkPlan
from hawker.host.mesh.device import HostMesh, MeshKind
from hawker.host.mesh.peer_gateway import PeerGateway, PeerPlace
from hawker.host.mesh.wireguard import MeshPeer, difference, own_key
from hawker.host.network import NodeNetwork
from hawker.ids import MachineId, NodeId

PORT, PEER_PORT, MTU = 4283, 51820, 1420
NOBODY = base64.b64encode(bytes(32)).decode()


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    endpoint: str
    allowed: tuple[str, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`machines` are each one's id and the number of its network; `keys` and networks are below `place`. `entering` are
    people's computers: key, number of the network, id; with any there is a resolver, too, and the node's API is
    let through."""

    node: str
    place: str
    machines: tuple[tuple[str, int], ...]
    peers: tuple[Peer, ...]
    entering: tuple[tuple[str, int, str], ...] = ()


async def let_in(network: NodeNetwork, plan: Plan, place: Path) -> None:
    gateway = PeerGateway(
        network, own_key(place / "peers"), PEER_PORT, MTU, place / "peers.log", (MeshKind.WIREGUARD_GO,)
    )
    gone = PeerPlace(NOBODY, plan.entering[0][1] + 1000, MachineId("0" * 14))
    await gateway.tell([gone])
    await gateway.tell([PeerPlace(key, network_id, MachineId(each)) for key, network_id, each in plan.entering])


async def main(plan: Plan) -> None:
    place, node = Path(plan.place), NodeId(plan.node)
    network = NodeNetwork(node, place / "netns", api=bool(plan.entering))
    await network.boot()
    try:
        for number, (machine, network_id) in enumerate(plan.machines, 1):
            await network.ensure(NetworkPlan(MachineId(machine), network_id, IPv4Address(f"172.29.0.{number}")))
        mesh = HostMesh(node, own_key(place / "key"), PORT, MTU, place / "log", tuple(MeshKind))
        peers = {each.key: MeshPeer(each.endpoint, frozenset(each.allowed)) for each in plan.peers}
        (await mesh.there()).change(difference({}, peers), peers)
        if plan.entering:
            await let_in(network, plan, place)
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)
    finally:
        await network.remove_node()


if __name__ == "__main__":
    anyio.run(main, msgspec.json.decode(sys.argv[1], type=Plan))
