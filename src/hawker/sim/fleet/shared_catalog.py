"""What the nodes of a light fleet know of each other: one catalog that all read and each writes its own rows of, in the
place of gossip and of a replica at every node. What is told can be read a moment later, in the order of who tells it.

Its work grows with the number of nodes, and not with its square.
"""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import anyio
import apsw
from anyio.abc import TaskStatus

from hawker.catalog.change import Token, Value
from hawker.catalog.contract import ResultTable, Statement
from hawker.catalog.schema import shipped
from hawker.ids import NodeId
from hawker.sim.harness.loop import LoopClock

TOLD_S = (0.02, 0.5)
MISSED_S = 4.0
"""Until it is known that a node which was killed is down."""

_LOCAL = """
CREATE TABLE __corro_members (
    host TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL, since REAL NOT NULL, rtt REAL, epoch INTEGER NOT NULL);
CREATE TABLE __c_origin (origin TEXT, scope TEXT, epoch INTEGER, applied INTEGER, PRIMARY KEY (origin, scope));
"""
_MEMBER = "INSERT OR REPLACE INTO __corro_members VALUES (?, ?, ?, 0.001, ?)"
_PLACE = "INSERT OR REPLACE INTO __c_origin VALUES (?, ?, ?, ?)"
_LOOK_S = 0.05

Operation = Callable[[], None]


class SharedCatalog:
    def __init__(self, clock: LoopClock) -> None:
        self.clock = clock
        self._connection = apsw.Connection(":memory:")
        self._connection.execute(shipped() + _LOCAL)
        self._due: list[tuple[float, int, NodeId, Operation]] = []
        self._order = itertools.count()
        self._last: dict[NodeId, float] = {}
        self._waiting: defaultdict[NodeId, list[Operation]] = defaultdict(list)

    def rows(self, query: str, *params: Value) -> Sequence[tuple[Value, ...]]:
        found: list[tuple[Value, ...]] = self._connection.execute(query, params).fetchall()
        return found

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        task_status.started()
        while True:
            await self.clock.sleep(_LOOK_S)
            now = self.clock.monotonic()
            while self._due and self._due[0][0] <= now:
                self._next(heapq.heappop(self._due)[2])

    def later(self, node: NodeId, operation: Operation, after_s: float | None = None) -> None:
        """After all that this node told before."""
        least, most = TOLD_S
        wait_s = least + (most - least) * self.clock.random() if after_s is None else after_s
        due = self._last[node] = max(self._last.get(node, 0.0), self.clock.monotonic() + wait_s)
        self._waiting[node].append(operation)
        heapq.heappush(self._due, (due, next(self._order), node, operation))

    def all_of(self, node: NodeId) -> None:
        """Whatever it has told can be read now."""
        while self._waiting[node]:
            self._next(node)

    def member(self, node: NodeId, state: str, epoch: int, after_s: float | None = None) -> None:
        since = self.clock.monotonic()
        self.later(node, lambda: self.write([Statement(query=_MEMBER, params=(node, state, since, epoch))]), after_s)

    def write(self, statements: Sequence[Statement]) -> None:
        with self._connection:
            for each in statements:
                self._connection.execute(each.query, each.params)

    def _next(self, node: NodeId) -> None:
        if self._waiting[node]:
            self._waiting[node].pop(0)()


class HostReplica(SharedCatalog):
    """What one node has read of the catalog, which others have not."""

    async def query(self, statement: Statement, *, timeout_s: float = 60.0) -> ResultTable:
        return ResultTable(columns=(), rows=tuple(self.rows(statement.query, *statement.params)))


class SharedCatalogView:
    """The part of a `Catalog` that a publisher asks, for one life of one node."""

    def __init__(self, shared_catalog: SharedCatalog, node: NodeId, life: int) -> None:
        self._shared_catalog, self._node = shared_catalog, node
        self._epoch = 2 * life
        self._version = 0

    def begin(self) -> None:
        self._shared_catalog.later(self._node, partial(self._shared_catalog.write, self._places(0)))
        self._shared_catalog.member(self._node, "alive", self._epoch)

    def end(self, after_s: float) -> None:
        self._shared_catalog.member(self._node, "dead", self._epoch, after_s)

    async def transact(self, statements: Sequence[Statement]) -> Token | None:
        await anyio.lowlevel.checkpoint()
        self._version += 1
        told = [*statements, *self._places(self._version)]
        self._shared_catalog.later(self._node, partial(self._shared_catalog.write, told))
        return Token(origin=self._node, epoch=self._epoch, version=self._version)

    async def query(self, statement: Statement, *, timeout_s: float = 60.0) -> ResultTable:
        await anyio.lowlevel.checkpoint()
        self._shared_catalog.all_of(self._node)
        return ResultTable(columns=(), rows=tuple(self._shared_catalog.rows(statement.query, *statement.params)))

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} of a shared catalog is not played")

    def _places(self, version: int) -> list[Statement]:
        streams = (("region", self._epoch), ("global", self._epoch + 1))
        return [Statement(query=_PLACE, params=(self._node, scope, epoch, version)) for scope, epoch in streams]
