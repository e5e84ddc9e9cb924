"""Where gossip and the catalog's replica meet, which know nothing of each other: messages and questions of the one are
for the other, and what gossip hears of members and forgotten nodes is passed on.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from hawker.catalog.change import Position, Scope
from hawker.catalog.contract import Storage
from hawker.catalog.messages import ForgetOrigin, encode
from hawker.catalog.replica import Replica
from hawker.catalog.storage import MemberRow as Row
from hawker.catalog.storage import SqliteStorage
from hawker.errors import Unavailable
from hawker.gossip.node import GossipNode
from hawker.ids import NodeId

S = TypeVar("S", bound=Storage)


class GossipBridge(Generic[S]):
    """Both are set before either serves. Without a replica, where an agent keeps the catalog, what is for one is passed
    over."""

    def __init__(self) -> None:
        self.gossip: GossipNode | None = None
        self.replica: Replica[S] | None = None

    # From the replica.

    def send(self, to: NodeId, message: bytes) -> None:
        assert self.gossip is not None
        self.gossip.send(to, message)

    async def ask(self, to: NodeId, message: bytes, timeout_s: float) -> bytes:
        assert self.gossip is not None
        return await self.gossip.ask(to, message, timeout_s=timeout_s)

    # From gossip.

    def on_message(self, sender: NodeId, message: bytes) -> None:
        if self.replica is not None:
            self.replica.on_message(sender, message)

    async def on_request(self, sender: NodeId, message: bytes) -> bytes:
        if self.replica is None:
            raise Unavailable("this node keeps no catalog of its own")
        return await self.replica.on_request(sender, message)

    def on_forget(self, node: NodeId, fence: int) -> None:
        """The catalog has messages of its own for this; gossip's word reaches those who were away meanwhile, and the
        forgotten node itself."""
        if self.replica is not None:
            self.replica.on_message(node, encode(ForgetOrigin(origin=node, epoch=fence, hop=0)))


class MembersToReplica:
    """Keeps `members.Replicates` for a replica in this process."""

    def __init__(self, replica: Replica[SqliteStorage]) -> None:
        self._replica = replica
        self._states: tuple[tuple[NodeId, str], ...] = ()

    def on_member(self, node: NodeId, *, region: str, alive: bool, rtt_s: float = 0.0) -> None:
        if node != self._replica.engine.me:
            self._replica.on_member(node, region=region, alive=alive, rtt_s=rtt_s)

    async def set_members(self, members: Sequence[Row]) -> None:
        """Only another state is a change for those who follow a query."""
        states = tuple(sorted((member.host, member.state) for member in members))
        changed, self._states = states != self._states, states
        await self._replica.do(lambda storage: storage.set_members(members), touches=changed)

    def own_position(self, scope: Scope) -> Position:
        return self._replica.engine.position(scope, self._replica.engine.me)


class MembersToMirror:
    """Keeps `members.Replicates` where an agent keeps the catalog, which has members of its own: `keep` is for those
    that gossip knows."""

    def __init__(self, keep: Callable[[Sequence[Row]], None]) -> None:
        self._keep = keep

    def on_member(self, node: NodeId, *, region: str, alive: bool, rtt_s: float = 0.0) -> None:
        return None

    async def set_members(self, members: Sequence[Row]) -> None:
        self._keep(members)

    def own_position(self, scope: Scope) -> Position:
        return Position()
