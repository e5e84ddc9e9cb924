"""A simulated node of the catalog: the real engine on a disk, and what carries out its jobs, one at a time, each taking
a while. The disk is in memory or a real SQLite file; it is stopped, killed, put back to an earlier time, or lost.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from hawker.catalog.anti_entropy import VersionVector
from hawker.catalog.change import Position, Scope, Token, Value
from hawker.catalog.contract import Committed, Statement, Storage
from hawker.catalog.engine import ReplicationEngine
from hawker.catalog.fan_out import ReplicaPeer
from hawker.catalog.inbound import Inbound
from hawker.catalog.jobs import Job, JobResult, perform
from hawker.catalog.memory_storage import DiskImage, MemoryStorage, MemoryTable, Schema
from hawker.catalog.messages import Message, Pull, PullAnswer
from hawker.catalog.replication import Replication
from hawker.catalog.storage import SqliteStorage
from hawker.clock import Clock
from hawker.ids import NodeId
from hawker.sim.catalog.network import CatalogNetwork, HostClock
from hawker.value_object import ValueObject

Content = Mapping[str, frozenset[tuple[Value, ...]]]
"""By table, what one origin has in one scope; a table that the replica does not know is not in it."""

OLD: Schema = {
    "machines": MemoryTable(Scope.REGION, ("node", "id"), ("state",)),
    "nodes": MemoryTable(Scope.GLOBAL, ("node",), ("region",)),
}
NEW: Schema = {
    "machines": MemoryTable(Scope.REGION, ("node", "id"), ("state", "name")),
    "nodes": MemoryTable(Scope.GLOBAL, ("node",), ("region",)),
    "extras": MemoryTable(Scope.REGION, ("node", "id"), ("state",)),
}
EXTRAS = "CREATE TABLE extras (node TEXT NOT NULL, id TEXT NOT NULL, state TEXT, PRIMARY KEY (node, id)) WITHOUT ROWID;"


class CatalogDisk(Protocol):
    """A storage that is open, and what becomes of it. `open` follows each of the others."""

    @property
    def storage(self) -> Storage: ...

    def open(self, *, new: bool) -> None:
        """`new`: with the newer schema."""

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def mark(self) -> None:
        """Remember how it is now, for `rewind`."""

    def rewind(self, *, whole: bool) -> None:
        """Puts the disk back to the mark; `whole`: with all that could prove that it is not."""

    def wipe(self) -> None: ...

    def content(self, origin: NodeId, scope: Scope) -> Content: ...

    def close(self) -> None: ...


class CatalogMemoryDisk:
    """Content is what the replica has of an origin, set aside or not."""

    def __init__(self, node: NodeId, clock: Clock, *, log_txs: int, keeper: type[MemoryStorage]) -> None:
        self._node, self._clock, self._log_txs, self._keeper = node, clock, log_txs, keeper
        self._image, self._marked = DiskImage(), DiskImage()

    def open(self, *, new: bool) -> None:
        self.storage = self._keeper(
            self._node,
            NEW if new else OLD,
            self._clock,
            image=self._image,
            log_txs=self._log_txs,
            refuses=lambda op: not new and "odd" in (op.row or ()),
        )

    def stop(self) -> None:
        self.storage.close()

    def kill(self) -> None:
        """What was committed is on disk, and the file proves it: only the process ended."""
        self._image.whole = self.storage.proven()

    def mark(self) -> None:
        self._marked = self._image.copy()

    def rewind(self, *, whole: bool) -> None:
        self._image = self._marked.copy()
        self._image.whole = whole and self._image.whole

    def wipe(self) -> None:
        self._image = DiskImage()

    def content(self, origin: NodeId, scope: Scope) -> Content:
        found: dict[str, set[tuple[Value, ...]]] = {}
        stream = self._image.streams.get((origin, scope))
        for _, op, _ in stream.rows.values() if stream is not None else ():
            if op.row is not None:
                found.setdefault(op.table, set()).add((*op.key, *op.columns, *op.row))
        return {table: frozenset(found.get(table, ())) for table in NEW if NEW[table].scope is scope}

    def close(self) -> None:
        return None


class CatalogFileDisk:
    """Content is what readers see. Each life has its own folder: what a killed one left open is harmless."""

    def __init__(self, node: NodeId, clock: Clock, place: Path) -> None:
        self._node, self._clock, self._place = node, clock, place
        self._lives = 0
        self._boots = 0
        self._here = self._fresh()
        self._marked: Path | None = None

    def open(self, *, new: bool) -> None:
        boot = f"boot-{self._boots}"
        schemas = (EXTRAS,) if new else ()
        self.storage = SqliteStorage(self._here / "catalog.db", self._node, self._clock, schemas, boot=lambda: boot)

    def stop(self) -> None:
        self.storage.close()

    def kill(self) -> None:
        copy = self._copy()
        self.storage.close()
        self._here = copy

    def mark(self) -> None:
        self._marked = self._copy()

    def rewind(self, *, whole: bool) -> None:
        if self._marked is None:
            self.wipe()
            return
        self._here = self._marked
        self._boots += 0 if whole else 1
        self._marked = self._copy()

    def wipe(self) -> None:
        self._here = self._fresh()

    def content(self, origin: NodeId, scope: Scope) -> Content:
        known = self.storage.tables()
        found: dict[str, frozenset[tuple[Value, ...]]] = {}
        for table in NEW:
            if known.get(table) is scope:
                answer = self.storage.query(Statement(query=f"SELECT * FROM {table} WHERE node = ?", params=(origin,)))
                found[table] = frozenset(answer.rows)
        return found

    def close(self) -> None:
        shutil.rmtree(self._place, ignore_errors=True)

    def _copy(self) -> Path:
        fresh = self._fresh()
        shutil.copytree(self._here, fresh, dirs_exist_ok=True)
        return fresh

    def _fresh(self) -> Path:
        self._lives += 1
        fresh = self._place / str(self._lives)
        fresh.mkdir(parents=True)
        return fresh


# What a simulated node's replication is made of: each part by its class. A planted bug is a kit with other parts.


class CatalogKit(ValueObject, frozen=True, kw_only=True):
    """`storage` is what keeps a catalog in memory; a catalog in a file has the real one."""

    storage: type[MemoryStorage] = MemoryStorage
    replication: type[Replication] = Replication
    intake: type[Inbound] = Inbound
    vector: type[VersionVector] = VersionVector

    def engine(
        self,
        node: NodeId,
        region: str,
        positions: Mapping[Scope, Mapping[NodeId, Position]],
        clock: Clock,
        *,
        proven: bool,
        grace_s: float,
        part_bytes: int,
    ) -> ReplicationEngine:
        """The engine of these parts, with what `ReplicationEngine` takes."""
        intake = partial(self.intake, vector=self.vector)
        replication = partial(self.replication, intake=intake)
        return ReplicationEngine(
            node,
            region,
            positions,
            clock,
            proven=proven,
            grace_s=grace_s,
            part_bytes=part_bytes,
            replication=replication,
        )


SOUND_CATALOG = CatalogKit()


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
