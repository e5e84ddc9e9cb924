"""Three storages exchange what they know in any order, with duplicates, cut resets, collected deletions, restarts and
restored copies; in the end each shows what each owner shows. Planted faults in the parts must be found by it.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from hawker.catalog.change import Delta, Position, ReplicatedTx, Scope, Value
from hawker.catalog.storage import SqliteStorage
from hawker.clock import ManualClock
from hawker.ids import NodeId
from tests.catalog.disk import THINGS, A, B, C, gone, put, rows

NODES = (A, B, C)
WIDER = THINGS.replace("size INTEGER", "size INTEGER, colour TEXT NOT NULL DEFAULT 'red'")
nodes, numbers, sizes = st.sampled_from(NODES), st.integers(0, 5), st.sampled_from([1, 2, 300, None])


class Exchange(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.temporary = TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.folder, self.clock = Path(self.temporary.name), ManualClock()
        self.wide: set[NodeId] = set()
        self.storages: dict[NodeId, SqliteStorage] = {}
        for node in NODES:
            self.storages[node] = self.open(node)
        self.messages: list[ReplicatedTx | Delta] = []
        self.seen: dict[tuple[NodeId, NodeId], Position] = {}
        self.backups: set[NodeId] = set()

    def open(self, node: NodeId) -> SqliteStorage:
        """Its streams are renewed above whatever another one has heard of them, as the replica does."""
        others = [storage for origin, storage in self.storages.items() if origin != node]
        known = [storage.positions(Scope.REGION).get(node, Position()) for storage in others]
        texts = [WIDER if node in self.wide else THINGS]
        made = SqliteStorage(self.folder / f"{node}.db", node, self.clock, texts, boot=lambda: "boot")
        if not made.proven():
            for scope in Scope:
                made.renew(scope, 1 + max((position.epoch for position in known), default=0))
        return made

    # What owners do.

    @rule(node=nodes, changes=st.lists(st.tuples(numbers, sizes, st.booleans()), min_size=1, max_size=3))
    def commit(self, node: NodeId, changes: list[tuple[int, int | None, bool]]) -> None:
        statements = [gone(number, node) if delete else put(number, size, node) for number, size, delete in changes]
        self.messages.extend(self.storages[node].commit(statements, 1.0).txs)

    @rule(node=nodes)
    def renew(self, node: NodeId) -> None:
        self.storages[node].renew(Scope.REGION, 0)

    @rule(node=nodes)
    def restart(self, node: NodeId) -> None:
        self.storages[node].close()
        self.storages[node] = self.open(node)

    @rule(node=nodes)
    def back_up(self, node: NodeId) -> None:
        self.storages[node].close()
        shutil.copy(self.folder / f"{node}.db", self.folder / f"{node}.backup")
        self.backups.add(node)
        self.storages[node] = self.open(node)

    @rule(node=nodes)
    def restore(self, node: NodeId) -> None:
        if node in self.backups:
            self.storages[node].close()
            shutil.copy(self.folder / f"{node}.backup", self.folder / f"{node}.db")
            self.seen = {place: at for place, at in self.seen.items() if place[0] != node}
            self.storages[node] = self.open(node)

    # What readers hear.

    @rule(reader=nodes, pick=st.integers(0, 1000), count=st.integers(1, 4))
    def hear_again(self, reader: NodeId, pick: int, count: int) -> None:
        if self.messages:
            begin = pick % len(self.messages)
            self.storages[reader].apply(self.messages[begin : begin + count])

    @rule(reader=nodes, source=nodes, origin=nodes)
    def replay(self, reader: NodeId, source: NodeId, origin: NodeId) -> None:
        at = self.storages[reader].positions(Scope.REGION).get(origin, Position())
        self.storages[reader].apply(self.storages[source].replay(origin, Scope.REGION, at.applied, 300))

    @rule(
        reader=nodes, source=nodes, origin=nodes, max_bytes=st.sampled_from([1, 100, 10_000]), parts=st.integers(1, 5)
    )
    def pull(self, reader: NodeId, source: NodeId, origin: NodeId, max_bytes: int, parts: int) -> None:
        self.pulled(self.storages[reader], self.storages[source], origin, max_bytes, parts)

    def pulled(self, reader: SqliteStorage, source: SqliteStorage, origin: NodeId, max_bytes: int, parts: int) -> None:
        """A delta from where the reader is, or a reset; so many parts of it."""
        here = reader.positions(Scope.REGION).get(origin, Position())
        there = source.positions(Scope.REGION).get(origin, Position())
        after, since = (here.applied if here.epoch == there.epoch else -1), -1
        for _ in range(parts):
            delta = source.delta(origin, Scope.REGION, after, max_bytes, since=since)
            reader.apply([delta])
            self.messages.append(delta)
            since = delta.head if delta.reset and delta.after == -1 else since
            after = delta.upto
            if delta.last:
                return

    @rule(reader=nodes, source=nodes)
    def install(self, reader: NodeId, source: NodeId) -> None:
        snapshot = self.storages[source].snapshot(self.folder / "snapshot")
        self.storages[reader].install(self.folder / "snapshot", snapshot.digest)
        snapshot.close()

    @rule(node=nodes, seconds=st.integers(1, 100))
    def collect(self, node: NodeId, seconds: int) -> None:
        self.clock.advance(float(seconds))
        self.storages[node].collect(self.clock.now() - 50.0)

    @rule(node=nodes)
    def widen(self, node: NodeId) -> None:
        self.storages[node].declare([WIDER])
        self.wide.add(node)

    # What must hold.

    @invariant()
    def positions_only_rise(self) -> None:
        for node, storage in getattr(self, "storages", {}).items():
            for origin, at in storage.positions(Scope.REGION).items():
                before = self.seen.get((node, origin), Position())
                assert at.epoch >= before.epoch
                assert at.applied == -1 or at.epoch > before.epoch or at.applied >= before.applied
                if at.applied != -1:
                    self.seen[node, origin] = at

    def teardown(self) -> None:
        if not hasattr(self, "storages"):
            return
        try:
            for reader in self.storages.values():
                for origin in NODES:
                    self.pulled(reader, self.storages[origin], origin, 1000, 1000)
            for origin in NODES:
                views = [self.rows_of(storage, origin) for storage in self.storages.values()]
                assert views[0] == views[1] == views[2], origin
                assert all(not storage.quarantined() for storage in self.storages.values())
        finally:
            for storage in self.storages.values():
                storage.close()
            self.temporary.cleanup()

    def rows_of(self, storage: SqliteStorage, origin: NodeId) -> list[tuple[Value, ...]]:
        return [row[:3] for row in rows(storage) if row[0] == origin]


def test_storages_converge() -> None:
    run_state_machine_as_test(
        Exchange,
        settings=settings(
            phases=[Phase.generate],
            max_examples=30,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
