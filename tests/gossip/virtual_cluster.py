"""A cluster of protocol cores in virtual time: one heap of events, one seed, a network that loses, delays and parts.

No sockets, no event loop, no sealing: what happens is a function of the seed, an hour of a hundred nodes is minutes.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hawker.gossip.contract import Fate, NodeMeta
from hawker.gossip.effects import Effects, Event, FallbackPing, MemberChanged
from hawker.gossip.failure_detector import Timing
from hawker.gossip.members import Identity
from hawker.gossip.membership import Membership
from hawker.gossip.swim import Swim
from hawker.ids import NodeId
from tests.gossip.single_core import KEYRING
from tests.gossip.single_core import node as name_of


@dataclass(frozen=True, slots=True)
class Seen:
    at: float
    by: NodeId
    event: Event


class VirtualNode:
    """One process. `until` is when it goes on after a pause."""

    def __init__(self, swim: Swim, address: str) -> None:
        self.swim, self.address = swim, address
        self.dead = False
        self.until = 0.0
        self.scheduled = float("inf")

    @property
    def name(self) -> NodeId:
        return self.swim.me.node


class VirtualCluster:
    """`loss` is the share of datagrams that vanish, `delay_s` the range of how long one takes, `cut` pairs of addresses
    (from, to) between which nothing passes, in that direction."""

    def __init__(
        self,
        *,
        seed: int = 1,
        loss: float = 0.0,
        delay_s: tuple[float, float] = (0.0005, 0.01),
        timing: Timing | None = None,
        membership: type[Membership] = Membership,
        cluster: str = "c",
    ) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.loss, self.delay_s, self.timing, self.membership, self.cluster = loss, delay_s, timing, membership, cluster
        self.nodes: dict[str, VirtualNode] = {}
        self.cut: set[tuple[str, str]] = set()
        self.seen: list[Seen] = []
        self.sent = 0
        self.sent_bytes = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    # Who is there.

    def start(
        self,
        number: int,
        *,
        seeds: Iterable[str] = (),
        address: str | None = None,
        epoch: int = 1,
        region: str = "mad",
        cluster: str | None = None,
        ahead_s: float = 0.0,
    ) -> VirtualNode:
        address = address or f"10.0.{number // 256}.{number % 256}:1"
        boot = (int(self.now * 1000) + 1) << 31 | self.random.getrandbits(31)
        identity = Identity(
            node=name_of(number),
            cluster=cluster or self.cluster,
            address=address,
            boot=boot,
            meta=NodeMeta(region=region, api=f"http://{address}"),
            epoch=epoch,
        )
        swim = Swim(
            identity,
            KEYRING,
            now=self.now,
            chance=self.random.random,
            wall=lambda: 1.7e9 + ahead_s + self.now,
            timing=self.timing,
            membership=self.membership,
        )
        node = self.nodes[address] = VirtualNode(swim, address)
        self._done(node, swim.join(list(seeds), self.now))
        return node

    def cluster_of(self, count: int) -> list[VirtualNode]:
        """All of them started within a second, and settled."""
        first = self.start(0)
        nodes = [first]
        for number in range(1, count):
            self.run(1.0 / count)
            nodes.append(self.start(number, seeds=[first.address]))
        self.until(lambda: self.agreed(nodes), 60)
        return nodes

    def settled(self, count: int) -> list[VirtualNode]:
        """A cluster that has known itself for long; without the cost of coming to that."""
        nodes = [self.start(number) for number in range(count)]
        for node in nodes:
            for other in nodes:
                if other is not node:
                    node.swim.membership.hear(other.swim.me.claim(self.now), self.now)
                    node.swim.membership.learn(other.name, other.swim.me.content)
                    node.swim.membership.broadcasts.drop(other.name)
            node.swim.tick(self.now)
        self.seen.clear()
        return nodes

    def crash(self, node: VirtualNode) -> None:
        node.dead = True
        self.nodes.pop(node.address, None)

    def pause(self, node: VirtualNode, seconds: float) -> None:
        """It stands still: what comes in meanwhile is read afterwards."""
        node.until = self.now + seconds

    def part(self, left: Iterable[VirtualNode], right: Iterable[VirtualNode], *, both: bool = True) -> None:
        right = list(right)
        for one in left:
            for other in right:
                self.cut.add((one.address, other.address))
                if both:
                    self.cut.add((other.address, one.address))

    # Time.

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            at, _, action = heapq.heappop(self._heap)
            self.now = max(self.now, at)
            action()
        self.now = end

    def until(self, condition: Callable[[], object], most_s: float, every_s: float = 0.1) -> float:
        """How long it took. Raises `AssertionError` when it took too long."""
        began = self.now
        while not condition():
            assert self.now - began < most_s, f"not true within {most_s} s"
            self.run(every_s)
        return self.now - began

    def at(self, moment: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (moment, next(self._order), action))

    # What is believed.

    def fate(self, by: VirtualNode, of: VirtualNode) -> Fate | None:
        peer = by.swim.membership.members.get(of.name)
        return peer.fate if peer else None

    def agreed(self, nodes: Iterable[VirtualNode]) -> bool:
        """Whether all believe the same of all, and that all live."""
        nodes = list(nodes)
        digests = {node.swim.membership.members.digest for node in nodes}
        return len(digests) == 1 and all(node.swim.membership.members.living == len(nodes) for node in nodes)

    def everywhere(self, of: VirtualNode, fate: Fate | None) -> bool:
        return all(self.fate(node, of) is fate for node in self.nodes.values() if node.name != of.name)

    def fates(self, fate: Fate) -> list[Seen]:
        """Whenever somebody came to believe this of another."""
        return [seen for seen in self.seen if isinstance(seen.event, MemberChanged) and seen.event.member.fate is fate]

    def events(self, kind: type[Event]) -> list[Seen]:
        return [seen for seen in self.seen if isinstance(seen.event, kind)]

    # What its nodes do.

    def act(self, node: VirtualNode, effects: Effects) -> None:
        self._done(node, effects)

    def _done(self, node: VirtualNode, effects: Effects) -> None:
        for send in effects.sends:
            self._send(node, send.address, send.payload)
        for event in effects.events:
            self.seen.append(Seen(self.now, node.name, event))
            if isinstance(event, FallbackPing):
                self._fallback_ping(node, event)
        due = max(node.swim.next_at, self.now)
        if due < node.scheduled:
            node.scheduled = due
            self.at(due, lambda: self._tick(node, due))

    def _tick(self, node: VirtualNode, due: float) -> None:
        if node.dead or node.scheduled != due:
            return
        node.scheduled = float("inf")
        if node.until > self.now:
            node.scheduled = node.until
            self.at(node.until, lambda: self._tick(node, node.until))
        elif node.swim.next_at <= self.now:
            self._done(node, node.swim.tick(self.now))
        else:
            self._done(node, Effects())

    def _send(self, node: VirtualNode, address: str, payload: bytes) -> None:
        self.sent += 1
        self.sent_bytes += len(payload)
        assert len(payload) <= 1152
        if self.random.random() >= self.loss and (node.address, address) not in self.cut:
            delay_s = self.random.uniform(*self.delay_s)
            self.at(self.now + delay_s, lambda: self._arrive(node, address, payload))

    def _arrive(self, sender: VirtualNode, address: str, payload: bytes) -> None:
        node = self.nodes.get(address)
        if node is None or node.dead:
            return
        if node.until > self.now:
            self.at(node.until + 1e-6, lambda: self._arrive(sender, address, payload))
            return
        me = sender.swim.me
        foreign = sender.swim.dispatcher.cluster != node.swim.dispatcher.cluster
        self._done(node, node.swim.receive(me.node, me.boot, sender.address, payload, self.now, foreign))

    def _fallback_ping(self, node: VirtualNode, ping: FallbackPing) -> None:
        """A stream is opened by six packets; when one is lost, its repetition comes too late. It passes no cut."""
        there = self.nodes.get(ping.address)
        ways = {(node.address, ping.address), (ping.address, node.address)}
        passes = self.random.random() < (1 - self.loss) ** 6 and not ways & self.cut
        if there is not None and not there.dead and there.until <= self.now and passes:
            self.at(self.now + 0.05, lambda: None if node.dead else self._fallback_acked(node, ping.seq))

    def _fallback_acked(self, node: VirtualNode, seq: int) -> None:
        if node.until <= self.now:
            self._done(node, node.swim.fallback_acked(seq, self.now))
