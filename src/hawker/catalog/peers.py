"""The other nodes that a scope's streams are exchanged with, as gossip tells of them; plain values only."""

from dataclasses import dataclass

from hawker.ids import NodeId

DEFAULT_RTT_S = 0.02


@dataclass(frozen=True, slots=True)
class Peer:
    node: NodeId
    region: str
    rtt_s: float


class Peers:
    """Those that are alive, this node not among them. `near` are those of its own region, in the same order."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._known: dict[NodeId, Peer] = {}
        self.alive: list[NodeId] = []
        self.near: list[NodeId] = []

    def __contains__(self, node: NodeId) -> bool:
        return node in self._known

    def tell(self, peer: Peer) -> None:
        before = self._known.get(peer.node)
        if before is not None and before.region != peer.region:
            self.lose(peer.node)
        if peer.node not in self._known:
            self.alive.append(peer.node)
            if peer.region == self._region:
                self.near.append(peer.node)
        self._known[peer.node] = peer

    def lose(self, node: NodeId) -> None:
        peer = self._known.pop(node, None)
        if peer is not None:
            self.alive.remove(node)
            if peer.region == self._region:
                self.near.remove(node)

    def rtt_s(self, node: NodeId) -> float:
        """What is assumed for a peer that was never measured is a fast network's."""
        peer = self._known.get(node)
        return peer.rtt_s if peer is not None and peer.rtt_s > 0 else DEFAULT_RTT_S
