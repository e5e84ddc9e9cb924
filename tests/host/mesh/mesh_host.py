"""A host of a mesh without a daemon, as a program: it makes the networks of machines and the device, says `ready`, and
takes all of it away when its standard input ends. Its only argument is a `Plan` as JSON.
"""

import sys
from ipaddress import IPv4Address
from pathlib import Path

import anyio
import msgspec

from hawker.host.mesh.device import HostMesh, MeshKind
from hawker.host.mesh.wireguard import MeshPeer, difference, own_key
from hawker.host.network import NodeNetwork
from hawker.host.network_plan import NetworkPlan
from hawker.ids import MachineId, NodeId

PORT, MTU = 4283, 1420


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    endpoint: str
    allowed: tuple[str, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`machines` are each one's id and the number of its network; `keys` and networks are below `place`."""

    node: str
    place: str
    machines: tuple[tuple[str, int], ...]
    peers: tuple[Peer, ...]


async def main(plan: Plan) -> None:
    place, node = Path(plan.place), NodeId(plan.node)
    network = NodeNetwork(node, place / "netns")
    await network.boot()
    try:
        for number, (machine, network_id) in enumerate(plan.machines, 1):
            await network.ensure(NetworkPlan(MachineId(machine), network_id, IPv4Address(f"172.29.0.{number}")))
        mesh = HostMesh(node, own_key(place / "key"), PORT, MTU, place / "log", tuple(MeshKind))
        peers = {each.key: MeshPeer(each.endpoint, frozenset(each.allowed)) for each in plan.peers}
        (await mesh.there()).change(difference({}, peers), peers)
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)
    finally:
        await network.remove_node()


if __name__ == "__main__":
    anyio.run(main, msgspec.json.decode(sys.argv[1], type=Plan))
