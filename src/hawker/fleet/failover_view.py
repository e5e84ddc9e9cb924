"""What a worker sees of the machines that its spares stand by for: rows of the catalog, fates of nodes, witnesses."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from hawker.api.contract.cluster import MEMBER_FATE, NodeParams
from hawker.catalog.change import Value
from hawker.catalog.contract import ResultTable, Statement
from hawker.errors import HawkerError
from hawker.fleet.failover_rule import ALIVE, DOWN, Spare, Takeover, Watched
from hawker.fleet.membership import Fleet
from hawker.ids import AppName, MachineId, NodeId
from hawker.machine import State
from hawker.record.node import NodeRecord
from hawker.value_object import ValueObject

QUERY_S = 5.0
_CALLER = "spares"
_RUNS = frozenset({State.STARTED, State.STARTING, State.RESTARTING, State.UPDATING})
_NODES = "SELECT node FROM nodes WHERE region = ?"
_WATCHED = "SELECT node, id, app, state, updated_at FROM machines WHERE id = ? ORDER BY generation DESC LIMIT 1"
_SPARES = (
    "SELECT machines.node, machines.id FROM machines, json_each(machines.standby_for) AS watched "
    "WHERE watched.value = ? AND machines.state IN ('stopped', 'created') "
    "AND EXISTS (SELECT 1 FROM machines AS lost WHERE lost.id = watched.value AND lost.app = machines.app)"
)
_OF_ANOTHER_APP = (
    "EXISTS (SELECT 1 FROM machines AS spares, machines AS lost WHERE spares.node = takeovers.node "
    "AND spares.id = takeovers.spare AND lost.id = takeovers.machine AND lost.app <> spares.app)"
)
_TAKEOVERS = f"SELECT machine, spare, seen FROM takeovers WHERE machine = ? AND NOT {_OF_ANOTHER_APP}"
_TAKEN_FROM = (
    "SELECT takeovers.machine, takeovers.spare, takeovers.seen FROM takeovers, machines "
    f"WHERE machines.id = takeovers.machine AND machines.node = ? AND NOT {_OF_ANOTHER_APP}"
)


class CatalogQueries(Protocol):
    """The part of a `Catalog` that answers queries."""

    async def query(self, statement: Statement, *, timeout_s: float) -> ResultTable: ...


class FailoverView(Protocol):
    async def fates(self) -> Mapping[NodeId, str]:
        """Of the region's nodes that are not forgotten, this one included."""

    async def watched(self, machine_id: MachineId) -> Watched | None: ...

    async def spares(self, machine_id: MachineId) -> Sequence[Spare]:
        """Of the machine's own app; a machine of another app may name it, and is no spare."""

    async def takeovers(self, machine_id: MachineId) -> Sequence[Takeover]: ...

    async def taken_from(self, owner: NodeId) -> Sequence[Takeover]:
        """Those of machines that this node has, by spares of their own apps."""

    async def witnesses(self, owner: NodeId) -> int:
        """How many other living nodes of the region say, asked now, that the owner is down."""

    async def is_away(self, owner: NodeId) -> bool:
        """Whether the owner's host answers, though its daemon does not."""


class CatalogView(ValueObject, frozen=True):
    """`believed` is what gossip says of nodes, `ask` asks a node what it believes of another, `away`
    whether a host is up without its daemon. Rows are read with a
    deadline; what cannot be read is raised."""

    me: NodeId
    region: str
    catalog: CatalogQueries
    believed: Callable[[], Mapping[NodeId, str]]
    ask: Callable[[NodeId, NodeId], Awaitable[str]]
    away: Callable[[NodeId], Awaitable[bool]]

    async def fates(self) -> Mapping[NodeId, str]:
        """One that gossip has not heard of counts as down: a daemon that has just begun sees most nodes so, and decides
        nothing."""
        believed = {**self.believed(), self.me: ALIVE}
        nodes = [NodeId(str(node)) for (node,) in await self._rows(_NODES, self.region)]
        return {node: believed.get(node, DOWN) for node in sorted({*nodes, self.me})}

    async def watched(self, machine_id: MachineId) -> Watched | None:
        for node, machine, app, state, updated_at in await self._rows(_WATCHED, machine_id):
            return Watched(
                id=MachineId(str(machine)),
                app=AppName(str(app)),
                owner=NodeId(str(node)),
                runs=state in _RUNS,
                seen=_number(updated_at),
            )
        return None

    async def spares(self, machine_id: MachineId) -> Sequence[Spare]:
        rows = await self._rows(_SPARES, machine_id)
        return [Spare(id=MachineId(str(machine)), owner=NodeId(str(node))) for node, machine in rows]

    async def takeovers(self, machine_id: MachineId) -> Sequence[Takeover]:
        return [_takeover(row) for row in await self._rows(_TAKEOVERS, machine_id)]

    async def taken_from(self, owner: NodeId) -> Sequence[Takeover]:
        return [_takeover(row) for row in await self._rows(_TAKEN_FROM, owner)]

    async def witnesses(self, owner: NodeId) -> int:
        """Asks one after the other, and stops at the first who agrees: one is enough."""
        others = [node for node, fate in (await self.fates()).items() if fate == ALIVE and node not in (self.me, owner)]
        for other in others:
            try:
                if await self.ask(other, owner) == DOWN:
                    return 1
            except HawkerError:
                continue
        return 0

    async def is_away(self, owner: NodeId) -> bool:
        return await self.away(owner)

    async def _rows(self, query: str, *params: Value) -> tuple[tuple[Value, ...], ...]:
        return (await self.catalog.query(Statement(query=query, params=params), timeout_s=QUERY_S)).rows


def _takeover(row: tuple[Value, ...]) -> Takeover:
    machine, spare, seen = row
    return Takeover(machine=MachineId(str(machine)), spare=MachineId(str(spare)), seen=_number(seen))


def _number(value: Value) -> float:
    """Never of what no node of ours writes."""
    return float(value) if isinstance(value, int | float) else 0.0


def catalog_sight(node: NodeRecord, fleet: Fleet, catalog: CatalogQueries) -> CatalogView:
    """What a node sees through its fleet: gossip for the fates, calls to other nodes for witnesses."""

    async def ask(witness: NodeId, about: NodeId) -> str:
        caller = fleet.caller(witness, _CALLER)
        return (await caller.call(MEMBER_FATE, params=NodeParams(node_id=about))).fate

    return CatalogView(
        me=node.id,
        region=node.region,
        catalog=catalog,
        believed=lambda: {member.node: str(member.fate) for member in fleet.members},
        ask=ask,
        away=fleet.hosts.look,
    )
