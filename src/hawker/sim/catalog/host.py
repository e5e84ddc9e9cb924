"""A simulated node: the real engine on a disk, and what carries out its jobs, one at a time, each taking a while."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from hawker.catalog.change import Scope, Token
from hawker.catalog.contract import Committed, Statement
from hawker.catalog.engine import ReplicationEngine
from hawker.catalog.fan_out import ReplicaPeer
from hawker.catalog.jobs import Job, JobResult, perform
from hawker.catalog.messages import Message, Pull, PullAnswer
from hawker.ids import NodeId
from hawker.sim.catalog.disks import CatalogDisk
from hawker.sim.catalog.kit import CatalogKit
from hawker.sim.catalog.network import CatalogNetwork, HostClock

JOB_S = 0.002
PART_BYTES = 400
ASK_S = 2.0


class CatalogHost:
    """`on_done` is called after each job and commit. `new` is whether it runs the newer schema."""

    def __init__(
        self,
        world: CatalogNetwork,
        node: NodeId,
        region: str,
        disk: CatalogDisk,
        clock: HostClock,
        *,
        kit: CatalogKit,
        on_done: "Callable[[CatalogHost, Job | Committed, JobResult | None], None]",
    ) -> None:
        self.node, self.region, self.disk, self.clock = node, region, disk, clock
        self._world, self._kit, self._on_done = world, kit, on_done
        self.others: Mapping[NodeId, CatalogHost] = {}
        self.new = False
        self.life = 0
        self.up = False
        self.gone = False  # for good
        self._busy = False
        self._wakes_at = float("inf")
        self._waiting: dict[tuple[int, int], tuple[NodeId, Callable[[PullAnswer | None], None]]] = {}
        self.engine: ReplicationEngine

    # life

    def start(self) -> None:
        self.disk.open(new=self.new)
        storage = self.disk.storage
        self.life += 1
        self.up, self._busy, self._wakes_at = True, False, float("inf")
        plan = self._world.plan
        self.engine = self._kit.engine(
            self.node,
            self.region,
            {scope: storage.positions(scope) for scope in Scope},
            self.clock,
            proven=storage.proven(),
            grace_s=plan.grace_s,
            part_bytes=1 << 20 if plan.strict else PART_BYTES,
        )
        if not plan.strict:
            self.engine.slices.ops = 4
        self._world.receivers[self.node] = self._receive
        self.look_around()
        self._pump()

    def end(self, how: Callable[[], None]) -> None:
        self.up = False
        self.life += 1
        self._world.receivers.pop(self.node, None)
        for _, give in self._waiting.values():
            self._world.at(ASK_S, partial(give, None))
        self._waiting.clear()
        how()

    def look_around(self) -> None:
        """What gossip would tell: who is up and can be reached at least one way."""
        for other in self.others.values():
            cut = {(self.node, other.node), (other.node, self.node)} <= self._world.cut
            if other is not self and other.up and not cut:
                self.engine.tell(ReplicaPeer(other.node, other.region, self._world.plan.delay_s))
            else:
                self.engine.lose(other.node)

    # what it is asked

    def write(self, statements: Sequence[Statement]) -> Token | None:
        """None when it cannot, now."""
        if not (self.up and self.engine.settled and not self._busy):
            return None
        committed = self.disk.storage.commit(statements, self.clock.now())
        self._on_done(self, committed, None)
        self.engine.committed(committed.txs)
        self._pump()
        return committed.token

    def forget(self, origin: NodeId) -> None:
        self.engine.forget(origin)
        self._pump()

    def _receive(self, sender: NodeId, message: Message) -> None:
        self.engine.take(sender, message)
        self._pump()

    # how it runs

    def _pump(self) -> None:
        engine = self.engine
        due = engine.tick()
        if not self._busy and (job := engine.next_job()) is not None:
            self._busy = True
            self._later(JOB_S * self._world.source.random(), lambda: self._finish(job))
        for to, message in engine.out:
            for node in to:
                self._world.send(self.node, node, message)
        engine.out.clear()
        for whom, scope, pull in engine.questions:
            self._ask(whom, scope, pull)
        engine.questions.clear()
        self._give_answers()
        if due < self._wakes_at:
            self._wakes_at = max(due, self._world.now + 0.001)
            self._later(self._wakes_at - self._world.now, self._woken)

    def _woken(self) -> None:
        if self._world.now >= self._wakes_at:
            self._wakes_at = float("inf")
            self._pump()

    def _finish(self, job: Job) -> None:
        done = perform(self.disk.storage, job)
        self.engine.finish(job, done)
        self._busy = False
        self._on_done(self, job, done)
        self._pump()

    def _later(self, delay_s: float, what: Callable[[], None]) -> None:
        life = self.life
        self._world.at(delay_s, lambda: what() if self.life == life else None)

    def _ask(self, whom: NodeId, scope: Scope, pull: Pull) -> None:
        life = self.life

        def give(parts: PullAnswer | None) -> None:
            if self.life == life:
                self.engine.answered(whom, scope, parts)
                self._pump()

        other = self.others[whom]
        if other.up and self._world.reaches(self.node, whom):
            self._world.at(self._world.delay_s(), lambda: other.asked(self.node, pull, give))
        else:
            self._world.at(ASK_S, lambda: give(None))

    def asked(self, sender: NodeId, pull: Pull, give: Callable[[PullAnswer | None], None]) -> None:
        if not self.up:
            self._world.at(ASK_S, lambda: give(None))
            return
        number = self.engine.ask(sender, pull)
        self._waiting[number, self.life] = (sender, give)
        self._pump()

    def _give_answers(self) -> None:
        for number, parts in self.engine.answers:
            sender, give = self._waiting.pop((number, self.life))
            self._world.answer(self.node, sender, give, parts)
        self.engine.answers.clear()
