"""Where gossip and the catalog's replica meet, which know nothing of each other: messages and questions of the one are
for the other, and what gossip hears of members and forgotten nodes is passed on: to the replication, to the table
`__corro_members`, which any query may join, and now and then to cluster.json, so that this node finds the others again.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from statistics import median_high, median_low
from typing import Generic, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

import anyio

from hawker.catalog.change import Position, Scope
from hawker.catalog.contract import Statement, Storage
from hawker.catalog.messages import ForgetOrigin, encode
from hawker.catalog.mirror import Mirror
from hawker.catalog.replica import Replica
from hawker.catalog.storage import MemberRow as Row
from hawker.catalog.storage import SqliteStorage
from hawker.clock import Clock
from hawker.cluster import host_of
from hawker.errors import HawkerError, Unavailable
from hawker.fleet.joining import MOST_SKEW_S
from hawker.fleet.rows import KEYS
from hawker.gossip.contract import Fate, Member
from hawker.gossip.node import GossipNode
from hawker.ids import NodeId
from hawker.log import bind

GATHER_S = 0.05
LOOK_EVERY_S = 5.0
DECLARE_EVERY_S = 0.5
_LIVING = frozenset({Fate.ALIVE, Fate.SUSPECT})

_log = bind("hawker.members")


Withhold: TypeAlias = Callable[[frozenset[str]], Awaitable[None]]


class Replicates(Protocol):
    """The catalog as it is told of members."""

    def on_member(self, node: NodeId, *, region: str, alive: bool, rtt_s: float = 0.0) -> None: ...

    async def set_members(self, members: Sequence[Row]) -> None: ...

    def own_position(self, scope: Scope) -> Position: ...


class Members:
    def __init__(
        self,
        gossip: Callable[[], GossipNode],
        replica: Replicates,
        clock: Clock,
        remember: Callable[[Sequence[Member]], None],
        withhold: Withhold | None = None,
    ) -> None:
        """`withhold` is told all addresses that machines may not reach, whenever they change."""
        self._gossip = gossip
        self._replica = replica
        self._clock = clock
        self._remember = remember
        self._withhold = withhold
        self._withheld: frozenset[str] | None = None
        self._wake = anyio.Event()
        self._remembered: frozenset[tuple[NodeId, str]] = frozenset()
        self._declared = 0

    def heard(self, member: Member) -> None:
        """Notes a change of `member`; called in the event loop at each change."""
        self._tell(member)
        self._wake.set()

    async def serve(self) -> None:
        """Tells the catalog of members after each change, until cancelled. Round trips change without a word, so that
        all is looked at now and then."""
        look_at = self._clock.monotonic()
        while True:
            if self._wake.is_set() or self._clock.monotonic() >= look_at:
                self._wake = anyio.Event()
                look_at = self._clock.monotonic() + LOOK_EVERY_S
                try:
                    await self._pass_on()
                except (HawkerError, OSError) as error:
                    _log.warning("cannot pass on who is there", extra={"error": str(error)})
            self._declare()
            with anyio.move_on_after(DECLARE_EVERY_S):
                await self._wake.wait()
            await self._clock.sleep(GATHER_S)

    async def _pass_on(self) -> None:
        members = self._gossip().members()
        for member in members:
            self._tell(member)
        hosts = member_hosts(members)
        if self._withhold is not None and hosts != self._withheld:
            await self._withhold(hosts)
            self._withheld = hosts
        await self._replica.set_members([row_of(member) for member in members])
        living = [member for member in members if member.fate in _LIVING]
        places = frozenset((member.node, member.address) for member in living)
        if places - self._remembered:
            self._remember(living)
            self._remembered = places

    def _tell(self, member: Member) -> None:
        region = member.meta.region if member.meta is not None else ""
        self._replica.on_member(member.node, region=region, alive=member.fate in _LIVING, rtt_s=member.rtt_s)

    def _declare(self) -> None:
        """The epoch that is above every fence only if both streams' are."""
        epoch = lower_epoch({scope: self._replica.own_position(scope) for scope in Scope})
        if epoch > self._declared:
            self._gossip().declare(epoch=epoch)
            self._declared = epoch


def member_hosts(members: Iterable[Member]) -> frozenset[str]:
    """The hosts of all members that did not leave: of their gossip, and of their API for peers."""
    there = [member for member in members if member.fate is not Fate.LEFT]
    apis = (_host_of_api(member.meta.api) for member in there if member.meta is not None)
    return frozenset(host for host in (*(host_of(member.address) for member in there), *apis) if host)


def _host_of_api(url: str) -> str | None:
    """None for what another node wrongly says of itself."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def lower_epoch(positions: Mapping[Scope, Position]) -> int:
    return min(position.epoch for position in positions.values())


def row_of(member: Member) -> Row:
    return Row(
        host=member.node,
        state=str(member.fate),
        since=member.since,
        rtt=member.rtt_s or None,
        epoch=member.epoch,
    )


# Whose wall clock is wrong, as far as one node can tell. Pure. Nothing is put in order by wall clocks; leases,
# tokens that expire and what is kept for a time go by them.


def wrong_clocks(me: NodeId, members: Iterable[Member]) -> tuple[tuple[NodeId, str], ...]:
    """Nodes, and what is wrong with the clock of each. Where most others say the same, this node's is wrong; of two
    nodes nobody can tell."""
    measured = {each.node: each.skew_s for each in members if each.fate in _LIVING and each.rtt_s and each.node != me}
    usual_s = _usual_s(measured.values())
    found = [(me, f"its clock is {_side(-usual_s)} those of most other nodes")] if usual_s else []
    agree = [skew_s for skew_s in (0.0, *measured.values()) if abs(skew_s - usual_s) <= MOST_SKEW_S]
    most = 2 * len(agree) > 1 + len(measured)
    against = "that of most nodes" if most else "this node's, or this node's is wrong"
    for node, skew_s in sorted(measured.items()):
        if abs(skew_s - usual_s) > MOST_SKEW_S:
            found.append((node, f"its clock is {_side(skew_s - usual_s)} {against}"))
    return tuple(found)


def _usual_s(skews: Iterable[float]) -> float:
    """By how much most of at least two others are ahead of this node; 0 when they are not."""
    ordered = sorted(skews)
    if len(ordered) < 2:
        return 0.0
    low, high = median_low(ordered), median_high(ordered)
    if low > MOST_SKEW_S:
        return low
    return high if high < -MOST_SKEW_S else 0.0


def _side(ahead_s: float) -> str:
    return f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'}"


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
    """Keeps `Replicates` for a replica in this process."""

    def __init__(self, replica: Replica[SqliteStorage]) -> None:
        self._replica = replica
        self._states: tuple[tuple[NodeId, str], ...] = ()

    def on_member(self, node: NodeId, *, region: str, alive: bool, rtt_s: float = 0.0) -> None:
        if node != self._replica.engine.me:
            self._replica.on_member(node, region=region, alive=alive, rtt_s=rtt_s)

    async def set_members(self, members: Sequence[Row]) -> None:
        """Writes the states of members. Only another state is a change for those who follow a query."""
        states = tuple(sorted((member.host, member.state) for member in members))
        changed, self._states = states != self._states, states
        await self._replica.do(lambda storage: storage.set_members(members), touches=changed)

    def own_position(self, scope: Scope) -> Position:
        return self._replica.engine.position(scope, self._replica.engine.me)


class AgentMembers:
    """Keeps `Replicates` and `membership.Forgets` where an agent keeps the catalog, which has members and
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
