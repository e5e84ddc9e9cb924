"""What a seed stands for, drawn before anything happens; virtual time, and a network between hosts: messages are lost,
doubled, late and out of order, links are cut, also one way.
"""

import heapq
from collections.abc import Callable

from hawker.catalog.messages import Message, PullAnswer, Push, decode, encode
from hawker.clock import ManualClock
from hawker.ids import NodeId
from hawker.sim.harness.plan import Chance
from hawker.value_object import ValueObject

FAULTS_S = 6.0


class CatalogPlan(ValueObject, frozen=True):
    """Times are seconds, shares of 1. `strict`: answers are never cut in parts, so that every replica must be, at any
    time, as its owner once was. `codec`: messages go through bytes. `unheard`: of news, beside what is lost anyway, so
    that there is something to pull."""

    seed: int
    """All the rest follows from it."""
    nodes: int
    """3 or more."""
    regions: int
    """1 or more; nodes of others are told through few."""
    loss: float
    """Of messages that never come."""
    doubled: float
    """Of messages that come twice."""
    late: float
    """Of messages that come after others that were sent later."""
    delay_s: float
    """How long a message takes as a rule."""
    writes_per_s: float
    """Of all nodes together."""
    fault_every_s: float
    """The mean time between two."""
    grace_s: float
    """How long it is remembered what was deleted."""
    log_txs: int
    """How many of its last changes a node can still tell one by one."""
    strict: bool
    codec: bool
    relapse: bool
    """Once all agree, a host is put back to what it was, or is gone for good."""
    unheard: float


def draw(seed: int, chance: Chance) -> CatalogPlan:
    nodes = chance.weighed({3: 5, 4: 3, 5: 3, 6: 2, 8: 1, 12: 0.4, 30: 0.06})
    return CatalogPlan(
        seed=seed,
        nodes=nodes,
        regions=chance.one_of((1, 1, 2, 3)) if nodes > 3 else 1,
        loss=chance.one_of((0.0, 0.01, 0.1, 0.3)),
        doubled=chance.one_of((0.0, 0.02, 0.2)),
        late=chance.one_of((0.0, 0.1, 0.3)),
        delay_s=chance.one_of((0.001, 0.01, 0.05)),
        writes_per_s=min(25.0, 1.5 * nodes),
        fault_every_s=chance.one_of((0.4, 0.8, 1.6)),
        grace_s=chance.one_of((2.0, 4.0, 1000.0)),
        log_txs=chance.one_of((1, 8, 1000)),
        strict=chance.happens(0.7),
        codec=chance.happens(0.3),
        relapse=chance.happens(0.25),
        unheard=(0.3, 0.0, 0.6, 0.0)[seed % 4],
    )


START = 1_700_000_000.0


class CatalogNetwork:
    """`links` that are cut, by sender and receiver."""

    def __init__(self, plan: CatalogPlan, source: ManualClock) -> None:
        self.plan, self.source = plan, source
        self.chance = Chance(source)
        self.now = 0.0
        self.cut: set[tuple[NodeId, NodeId]] = set()
        self.receivers: dict[NodeId, Callable[[NodeId, Message], None]] = {}
        self.calm = False
        self.copies = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, delay_s: float, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.now + max(0.0, delay_s), self._number, what))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heapq.heappop(self._events)
            what()
        self.now = until

    def delay_s(self) -> float:
        delay = self.plan.delay_s * (0.5 + self.source.random())
        return delay + 0.5 * self.source.random() if self.chance.happens(self.plan.late) else delay

    def reaches(self, sender: NodeId, to: NodeId) -> bool:
        lossy = self.plan.loss if not self.calm else self.plan.loss / 10
        return (sender, to) not in self.cut and not self.chance.happens(lossy)

    def send(self, sender: NodeId, to: NodeId, message: Message) -> None:
        """Whether the receiver is there is found out on arrival."""
        passed = decode(encode(message)) if self.plan.codec else message
        if self.plan.unheard and isinstance(message, Push) and self.chance.happens(self.plan.unheard):
            return
        for _ in range(2 if self.chance.happens(self.plan.doubled) else 1):
            if self.reaches(sender, to):
                self.at(self.delay_s(), lambda: self._deliver(sender, to, passed))

    def _deliver(self, sender: NodeId, to: NodeId, message: Message) -> None:
        receiver = self.receivers.get(to)
        if receiver is not None:
            self.copies += 1
            receiver(sender, message)

    def answer(
        self, sender: NodeId, to: NodeId, give: Callable[[PullAnswer | None], None], parts: PullAnswer | None
    ) -> None:
        """An answer over a stream: whole, or not at all."""
        arrived = parts if self.reaches(sender, to) else None
        self.at(self.delay_s() if arrived is not None else 1.0, lambda: give(arrived))


class HostClock:
    """A host's: time is the world's, and wall time may be wrong."""

    def __init__(self, world: CatalogNetwork) -> None:
        self._world = world
        self.wrong_s = 0.0

    def now(self) -> float:
        return START + self._world.now + self.wrong_s

    def monotonic(self) -> float:
        return self._world.now

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing sleeps in the engine")

    def random(self) -> float:
        return self._world.source.random()

    def token_bytes(self, count: int) -> bytes:
        return self._world.source.token_bytes(count)
