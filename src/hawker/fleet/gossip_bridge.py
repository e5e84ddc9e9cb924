"""Where gossip and the catalog's replica meet, which know nothing of each other: messages and questions of the one are
for the other, and what gossip hears of members and forgotten nodes is passed on.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from hawker.catalog.change import Position, Scope
from hawker.catalog.contract import Statement, Storage
from hawker.catalog.messages import ForgetOrigin, encode
from hawker.catalog.mirror import Mirror
from hawker.catalog.replica import Replica
from hawker.catalog.storage import MemberRow as Row
from hawker.catalog.storage import SqliteStorage
from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.fleet.rows import KEYS
from hawker.gossip.node import GossipNode
from hawker.ids import NodeId

S = TypeVar("S", bound=Storage)


class GossipBridge(Generic[S]):
    """All are set before either serves. Where an agent keeps the catalog there is no replica: what is for one is passed
    over, and `members` hears who is forgotten."""

    def __init__(self) -> None:
        self.gossip: GossipNode | None = None
        self.replica: Replica[S] | None = None
        self.members: AgentMembers | None = None

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
        if self.members is not None:
            self.members.on_forget(node, fence)


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


class AgentMembers:
    """Keeps `members.Replicates` and `membership.Forgets` where an agent keeps the catalog, which has members and
    versions of its own. A forgotten node's rows are deleted there; its epoch, which gossip alone looks at, rises above
    the fence that it hears of, and then it publishes again what it has (`Publisher`)."""

    def __init__(
        self,
        me: NodeId,
        mirror: Mirror,
        clock: Clock,
        fences: Mapping[NodeId, int],
        save: Callable[[Mapping[NodeId, int]], None],
    ) -> None:
        """`fences` are those that `save` was given last."""
        self._me, self._mirror, self._clock, self._save = me, mirror, clock, save
        self._epoch = 0
        self._fences: dict[NodeId, int] = {}
        for node, fence in fences.items():
            self._fence(node, fence)

    def on_member(self, node: NodeId, *, region: str, alive: bool, rtt_s: float = 0.0) -> None:
        return None

    async def set_members(self, members: Sequence[Row]) -> None:
        self._mirror.set_members(members)

    def own_position(self, scope: Scope) -> Position:
        return Position(epoch=self._epoch)

    async def forget(self, origin: NodeId) -> int:
        """A fence above all before, even when the clock was set back. Raises what `Catalog.transact` raises."""
        gone = [Statement(query=f"DELETE FROM {table} WHERE node = ?", params=(origin,)) for table in KEYS]
        await self._mirror.transact(gone)
        return max(int(self._clock.now() * 1000), self._fences.get(origin, 0) + 2)

    def on_forget(self, node: NodeId, fence: int) -> None:
        if fence > self._fences.get(node, -1):
            self._fence(node, fence)
            self._save(self._fences)

    def _fence(self, node: NodeId, fence: int) -> None:
        self._fences[node] = fence
        if node == self._me:
            self._epoch = max(self._epoch, fence + 1)
        else:
            self._mirror.fence(node, fence)
