"""How fast one change spreads, and at what cost: the real engines of up to a thousand hosts over a network with the
delays of regions, in virtual time. What a host takes to apply is given; everything else is as it is.
"""

import heapq
from collections.abc import Callable
from functools import partial
from math import dist

from hawker.catalog.change import Op, Position, ReplicatedTx, Scope
from hawker.catalog.engine import ReplicationEngine
from hawker.catalog.fan_out import ReplicaPeer
from hawker.catalog.jobs import Apply, Job, JobResult, Serve
from hawker.catalog.messages import DeltaPart, Message, PullAnswer, Push, Txs, Want
from hawker.clock import ManualClock
from hawker.ids import NodeId
from hawker.value_object import ValueObject

NEAR_S, FAR_S = 0.004, 0.140  # one way, between regions, which are points by chance on a square map
WIDEST = 2**0.5
LAN_S = 0.0003
APPLY_S = 0.0005
BETWEEN_S = 4.0
EPOCH = 5


class SpreadFigures(ValueObject, frozen=True):
    """Seconds from commit to applied, over all hosts and changes; copies of a payload per host and change."""

    hosts: int
    """How many there were."""
    regions: int
    """Over which they were spread evenly."""
    loss: float
    """The share of messages that never came."""
    p50_s: float
    """Half of them took no longer."""
    p99_s: float
    """Of a hundred 99 took no longer."""
    all_s: float
    """The slowest."""
    copies: float
    """1 would be the least."""


def spread(hosts: int, *, regions: int, loss: float, changes: int, seed: int = 0) -> SpreadFigures:
    field = _Field(hosts, regions, loss, ManualClock(seed=seed))
    for _ in range(changes):
        field.change()
        field.run(field.now + BETWEEN_S)
    found = sorted(field.took)
    expected = changes * (hosts - 1)
    if len(found) != expected:
        raise AssertionError(f"{expected - len(found)} of {expected} never heard of a change")
    return SpreadFigures(
        hosts=hosts,
        regions=regions,
        loss=loss,
        p50_s=found[len(found) // 2],
        p99_s=found[int(len(found) * 0.99)],
        all_s=found[-1],
        copies=field.copies / expected,
    )


class _Clock:
    """The field's."""

    def __init__(self, field: "_Field") -> None:
        self._field = field

    def now(self) -> float:
        return self._field.now

    def monotonic(self) -> float:
        return self._field.now

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing sleeps in the engine")

    def random(self) -> float:
        return self._field.source.random()

    def token_bytes(self, count: int) -> bytes:
        return self._field.source.token_bytes(count)


class _Field:
    """Hosts that keep nothing but where they are in each stream, and the last change."""

    def __init__(self, hosts: int, regions: int, loss: float, source: ManualClock) -> None:
        self.source, self._loss = source, loss
        self.now = 0.0
        self.took: list[float] = []
        self.copies = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._nodes = [NodeId(f"{number:08x}") for number in range(hosts)]
        self._region = {node: number % regions for number, node in enumerate(self._nodes)}
        places = [(source.random(), source.random()) for _ in range(regions)]
        self._delay = {
            (one, other): LAN_S
            if one == other
            else NEAR_S + (FAR_S - NEAR_S) * dist(places[one], places[other]) / WIDEST
            for one in range(regions)
            for other in range(one, regions)
        }
        self._txs: dict[tuple[NodeId, int], ReplicatedTx] = {}
        self._busy: set[NodeId] = set()
        self._wakes: dict[NodeId, float] = {}
        self._engines = {node: self._engine(node) for node in self._nodes}
        peers = [ReplicaPeer(node, str(self._region[node]), 0.05) for node in self._nodes]
        for engine in self._engines.values():
            for peer in peers:
                engine.tell(peer)
        for node in self._nodes:
            self._pump(node)

    def _engine(self, node: NodeId) -> ReplicationEngine:
        """Settled, and known to all as it is."""
        nothing: dict[NodeId, Position] = {}
        region = str(self._region[node])
        engine = ReplicationEngine(node, region, dict.fromkeys(Scope, nothing), _Clock(self), proven=False)
        for scope in engine.scopes.values():
            scope.moved(node, Position(EPOCH, 0))
            scope.vector.set(node, Position())
        return engine

    def change(self) -> None:
        """One, of a host by chance."""
        node = self._nodes[int(self.source.random() * len(self._nodes))]
        version = self._engines[node].position(Scope.GLOBAL, node).applied + 1
        op = Op("nodes", (node,), ("region", "api", "labels"), ("mad", "http://[fdaa::1]:4282", "{}"))
        tx = self._txs[node, version] = ReplicatedTx(node, Scope.GLOBAL, EPOCH, version, self.now, (op,))
        self._engines[node].committed([tx])
        self._pump(node)

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heapq.heappop(self._events)
            what()
        self.now = until

    def _at(self, delay_s: float, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.now + delay_s, self._number, what))

    def _pump(self, node: NodeId) -> None:
        engine = self._engines[node]
        due = engine.tick()
        if node not in self._busy and (job := engine.next_job()) is not None:
            self._busy.add(node)
            self._at(APPLY_S, partial(self._finish, node, job))
        for to, message in engine.out:
            for other in to:
                if self.source.random() >= self._loss:
                    self._at(self._way_s(node, other), partial(self._deliver, node, other, message))
        engine.out.clear()
        if due < self._wakes.get(node, float("inf")):
            self._wakes[node] = max(due, self.now + 0.001)
            self._at(self._wakes[node] - self.now, partial(self._wake, node))

    def _wake(self, node: NodeId) -> None:
        if self.now >= self._wakes[node]:
            self._wakes[node] = float("inf")
            self._pump(node)

    def _way_s(self, one: NodeId, other: NodeId) -> float:
        first, second = sorted((self._region[one], self._region[other]))
        return self._delay[first, second] * (1 + 0.1 * self.source.random())

    def _deliver(self, sender: NodeId, to: NodeId, message: Message) -> None:
        self.copies += isinstance(message, Push | Txs | DeltaPart)
        self._engines[to].take(sender, message)
        self._pump(to)

    def _finish(self, node: NodeId, job: Job) -> None:
        engine = self._engines[node]
        self._busy.discard(node)
        match job:
            case Apply():
                txs = [item for item in job.batch if isinstance(item, ReplicatedTx)]
                self.took.extend(self.now - tx.at for tx in txs)
                engine.finish(
                    job, JobResult(positions={(tx.origin, tx.scope): Position(EPOCH, tx.version) for tx in txs})
                )
            case Serve():
                found = tuple(tx for want in job.wants if (tx := self._next(want)) is not None)
                engine.finish(job, JobResult(parts=PullAnswer(txs=found, deltas=(), more=False)))
            case _:
                engine.finish(job, JobResult())
        self._pump(node)

    def _next(self, want: Want) -> ReplicatedTx | None:
        return self._txs.get((want.origin, max(0, want.after) + 1))
