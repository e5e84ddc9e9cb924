"""What a host says of itself in the catalog and what it has read there of others: real rows, which come later to other
hosts, in the order in which they were said. Hosts of other regions hear what is said to all regions.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from hawker.catalog.contract import Statement
from hawker.fleet.rows import Row, RowKey, removal, upsert
from hawker.ids import NodeId
from hawker.sim.fleet.shared_catalog import HostReplica
from hawker.sim.harness.loop import LoopClock

_OF_REGION = frozenset({"machines", "services", "health"})
"""Tables whose rows are for hosts of the same region, of those that are played."""


class PlayedCatalog(HostReplica):
    """Of the host `node`."""

    def __init__(self, clock: LoopClock, node: NodeId, region: str) -> None:
        super().__init__(clock)
        self.node = node
        self.region = region
        self._said: dict[RowKey, Row] = {}
        self._coming: dict[NodeId, deque[list[Statement]]] = {}  # from other hosts

    def say(self, rows: Iterable[Row], others: "Iterable[PlayedCatalog]") -> None:
        """This is all that the host says of itself now: it reads it at once."""
        news = list(self._news(rows))
        self.write([statement for _, statement in news])
        for other in others:
            near = other.region == self.region
            told = [statement for table, statement in news if near or table not in _OF_REGION]
            other._coming.setdefault(self.node, deque()).append(told)

    def hear(self, node: NodeId) -> None:
        """All that this other host has said."""
        coming = self._coming.get(node)
        while coming:
            self.write(coming.popleft())

    def _news(self, rows: Iterable[Row]) -> Iterator[tuple[str, Statement]]:
        """What is new in each table, or gone."""
        there = {row.at: row for row in rows}
        yield from ((at.table, removal(at)) for at in self._said if at not in there)
        yield from ((at.table, upsert(row)) for at, row in there.items() if self._said.get(at) != row)
        self._said = there
