"""Stands by: starts this worker's spares when the hosts of what they stand by for are lost, and ends machines of this
worker that a spare elsewhere has taken over from while this node was away.

Whether a spare is to be started is a pure rule over what is seen of the region: rows of the catalog, fates of nodes,
witnesses. At most one side of a partition has most of the nodes, and on one side the spare with the least id goes
first; so of all spares of a machine one is started for each loss of its host, whatever the network does.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol

from hawker.api.contract.cluster import MEMBER_FATE, NodeParams
from hawker.catalog.change import Value
from hawker.catalog.contract import ResultTable, Statement
from hawker.clock import Clock
from hawker.errors import HawkerError, NotFound
from hawker.fleet.membership import Fleet
from hawker.ids import AppName, MachineId, NodeId
from hawker.log import bind
from hawker.machine import GONE, OFF, State
from hawker.record.machine import MACHINES, MachineRecord, MachineTarget, current_lease
from hawker.record.node import FENCED, TAKEOVERS, FencedRecord, NodeRecord, TakeoverRecord
from hawker.store.contract import Store, Tx
from hawker.value_object import ValueObject

ALIVE, DOWN = "alive", "down"
WITNESSES = 1
"""Other nodes that must have found the host down by themselves."""


class Watched(ValueObject, frozen=True, kw_only=True):
    """A machine that has spares, as its owner last published it. `seen` (Unix seconds) tells one loss from the next:
    the owner changes it whenever the machine changes."""

    id: MachineId
    app: AppName
    owner: NodeId
    runs: bool
    """Its owner last said that it runs or was to run; a spare is started for no other."""
    seen: float


class Spare(ValueObject, frozen=True, kw_only=True):
    id: MachineId
    owner: NodeId


class Takeover(ValueObject, frozen=True, kw_only=True):
    """The start of a spare in the place of a machine, as the machine was `seen`."""

    machine: MachineId
    spare: MachineId
    seen: float


class FailoverVerdict(Enum):
    """`MINORITY`: this side of the network may not decide. `WITNESS`: it may once enough others say the same.
    `AFTER`: another spare goes first. `AWAY`: the host is there, and only its daemon is not."""

    WATCH = "watch"
    DONE = "done"
    MINORITY = "minority"
    WITNESS = "witness"
    AFTER = "after"
    AWAY = "away"
    START = "start"


def judge(
    spare: Spare,
    watched: Watched,
    fates: Mapping[NodeId, str],
    spares: Sequence[Spare],
    takeovers: Sequence[Takeover],
    witnesses: int,
    *,
    away: bool = False,
) -> FailoverVerdict:
    """`fates` are those of the region's nodes, this one and the lost ones included; `spares` all of the machine's;
    `witnesses` how many other nodes have said that the owner is down; `away` says that its host is up."""
    if not watched.runs or fates.get(watched.owner) != DOWN:
        return FailoverVerdict.WATCH
    if any(each.machine == watched.id and each.seen >= watched.seen for each in takeovers):
        return FailoverVerdict.DONE
    if 2 * sum(fate == ALIVE for fate in fates.values()) <= len(fates):
        return FailoverVerdict.MINORITY
    if any(each.id < spare.id and fates.get(each.owner, DOWN) != DOWN for each in spares):
        return FailoverVerdict.AFTER
    if away:
        return FailoverVerdict.AWAY
    return FailoverVerdict.START if witnesses >= WITNESSES else FailoverVerdict.WITNESS


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
        """The fates of the region's nodes that are not forgotten, this one included."""

    async def watched(self, machine_id: MachineId) -> Watched | None: ...

    async def spares(self, machine_id: MachineId) -> Sequence[Spare]:
        """The spares of the machine that are of its own app; a machine of another app may name it, and is no spare."""

    async def takeovers(self, machine_id: MachineId) -> Sequence[Takeover]: ...

    async def taken_from(self, owner: NodeId) -> Sequence[Takeover]:
        """The takeovers of machines that this node has, by spares of their own apps."""

    async def witnesses(self, owner: NodeId) -> int:
        """The number of other living nodes of the region that say, asked now, that the owner is down."""

    async def is_away(self, owner: NodeId) -> bool:
        """Whether the owner's host answers, though its daemon does not."""


class CatalogView(ValueObject, frozen=True):
    """`believed` is what gossip says of nodes, `ask` asks a node what it believes of another, `away`
    whether a host is up without its daemon. Rows are read with a
    deadline; what cannot be read is raised."""

    me: NodeId
    region: str
    """The region of the node; its nodes alone are witnesses and count for the majority."""
    catalog: CatalogQueries
    believed: Callable[[], Mapping[NodeId, str]]
    ask: Callable[[NodeId, NodeId], Awaitable[str]]
    away: Callable[[NodeId], Awaitable[bool]]

    async def fates(self) -> Mapping[NodeId, str]:
        """The fates of the region's nodes. A node that gossip has not heard of counts as down: a daemon that has just
        begun sees most nodes so, and decides nothing."""
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
        """Asks one node after the other, and stops at the first that agrees: one witness is enough."""
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
    """The view of a node that its fleet gives: gossip for the fates, calls to other nodes for witnesses."""

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


LOOK_S = 1.0
"""The seconds between two looks. Nothing is asked of anybody while every node of the region is there."""

_log = bind("hawker.spares")
_READY = OFF | {State.CREATED}


class MachineOperations(Protocol):
    """The operations that failover does on this worker's machines. `also` is done in the transaction of the operation.
    Both raise `HawkerError`, `stop` raises `NotFound` once the machine is destroyed."""

    async def start(self, target: MachineTarget, *, also: Callable[[Tx], None]) -> State: ...

    async def stop(
        self, target: MachineTarget, *, signal: str | None, timeout_s: float | None, also: Callable[[Tx], None]
    ) -> None: ...


class Failover:
    """The task of a worker in a fleet that starts spares of lost machines. `hear` has a listener called after each
    change of a machine."""

    def __init__(
        self,
        node: NodeId,
        store: Store,
        clock: Clock,
        operations: MachineOperations,
        sight: FailoverView,
        hear: Callable[[Callable[[MachineId], None]], None],
    ) -> None:
        self._me = node
        self._store = store
        self._clock = clock
        self._operations = operations
        self._sight = sight
        self._spares: dict[MachineId, None] = {}
        self._told: dict[MachineId, FailoverVerdict] = {}
        self._by_hand: dict[MachineId, None] = {}
        self._refused: dict[MachineId, str] = {}
        hear(self._note)

    async def serve(self) -> None:
        """Looks every `LOOK_S`, until cancelled."""
        for _, record in list(self._store.scan(MACHINES)):
            self._sort(record.id, record)
        while True:
            try:
                await self.look()
            except (HawkerError, OSError) as error:
                _log.warning("cannot look at the fleet", extra={"error": str(error)})
            await self._clock.sleep(LOOK_S)

    async def look(self) -> None:
        """Looks once: it gives way to spares that took over, and takes over what lost nodes leave."""
        await self._forget_gone()
        await self._give_way()
        lost = {node for node, fate in (await self._sight.fates()).items() if fate == DOWN}
        if lost:
            await self._note_by_hand(lost)
            for machine_id in sorted(self._spares):
                await self._stand_by(machine_id, lost)
        self._by_hand.clear()

    async def _forget_gone(self) -> None:
        """What is remembered of machines that are destroyed."""
        made = [key for key, record in self._store.scan(TAKEOVERS) if self._is_gone(record.spare)]
        given = [key for key, _ in self._store.scan(FENCED) if self._is_gone(MachineId(key))]
        if not made and not given:
            return

        def apply(tx: Tx) -> None:
            for key in made:
                tx.delete(TAKEOVERS, key)
            for key in given:
                tx.delete(FENCED, key)

        await self._store.write(apply)

    def _is_gone(self, machine_id: MachineId) -> bool:
        return self._store.get(MACHINES, machine_id) is None

    def _note(self, machine_id: MachineId) -> None:
        record = self._store.get(MACHINES, machine_id)
        if machine_id in self._told and record is not None and record.state not in _READY | GONE:
            self._by_hand[machine_id] = None
        self._sort(machine_id, record)

    def _sort(self, machine_id: MachineId, record: MachineRecord | None) -> None:
        if record is not None and record.config.standbys and record.state in _READY:
            self._spares[machine_id] = None
        else:
            self._spares.pop(machine_id, None)
            self._told.pop(machine_id, None)

    async def _stand_by(self, spare_id: MachineId, lost: set[NodeId]) -> None:
        record = self._store.get(MACHINES, spare_id)
        if record is None or record.state not in _READY:
            return
        for machine_id in record.config.standbys or ():
            watched = await self._sight.watched(MachineId(machine_id))
            if watched is None or watched.app != record.app or watched.owner not in lost:
                continue
            verdict = await self._judge(record, watched)
            if verdict is FailoverVerdict.START:
                await self._start(record, watched)
                return
            self._tell(record.id, verdict, watched)

    async def _judge(self, record: MachineRecord, watched: Watched) -> FailoverVerdict:
        """Witnesses are asked last, since that is a call."""
        spare = Spare(id=record.id, owner=self._me)
        fates, spares = await self._sight.fates(), await self._sight.spares(watched.id)
        takeovers = [*await self._sight.takeovers(watched.id), *self._own(watched.id)]
        verdict = judge(spare, watched, fates, spares, takeovers, 0)
        if verdict is not FailoverVerdict.WITNESS:
            return verdict
        away = await self._sight.is_away(watched.owner)
        witnesses = 0 if away else await self._sight.witnesses(watched.owner)
        return judge(spare, watched, await self._sight.fates(), spares, takeovers, witnesses, away=away)

    def _own(self, machine_id: MachineId) -> Sequence[Takeover]:
        records = [record for _, record in self._store.scan(TAKEOVERS, f"{machine_id}/")]
        return [Takeover(machine=each.machine, spare=each.spare, seen=each.seen) for each in records]

    async def _start(self, record: MachineRecord, watched: Watched) -> None:
        """A takeover and the start that it is for are one transaction. The lease of a client does not keep a spare from
        being started: its holder may be lost with the host."""
        now = self._clock.now()
        takeover = TakeoverRecord(machine=watched.id, spare=record.id, owner=watched.owner, seen=watched.seen, at=now)

        def also(tx: Tx) -> None:
            tx.put(TAKEOVERS, f"{watched.id}/{record.id}", takeover)

        try:
            await self._operations.start(self._target(record), also=also)
        except HawkerError as error:
            _log.error("spare cannot be started", extra={"machine": record.id, "for": watched.id, "error": str(error)})
            return
        _log.warning("spare started", extra={"machine": record.id, "for": watched.id, "lost": watched.owner})

    async def _note_by_hand(self, lost: set[NodeId]) -> None:
        """A spare that somebody started while it waited, since the host of what it stands by for is lost, has taken
        over, too: else both would run once that host is back."""
        for spare_id in sorted(self._by_hand):
            record = self._store.get(MACHINES, spare_id)
            if record is None:
                continue
            for machine_id in record.config.standbys or ():
                watched = await self._sight.watched(MachineId(machine_id))
                if watched is None or watched.app != record.app or not watched.runs or watched.owner not in lost:
                    continue
                if not any(each.seen >= watched.seen for each in self._own(watched.id)):
                    await self._took_over(spare_id, watched)

    async def _took_over(self, spare_id: MachineId, watched: Watched) -> None:
        takeover = TakeoverRecord(
            machine=watched.id, spare=spare_id, owner=watched.owner, seen=watched.seen, at=self._clock.now()
        )
        await self._store.write(lambda tx: tx.put(TAKEOVERS, f"{watched.id}/{spare_id}", takeover))
        _log.warning("spare was started by hand", extra={"machine": spare_id, "for": watched.id, "lost": watched.owner})

    async def _give_way(self) -> None:
        """A machine that cannot be stopped now keeps no other from being stopped, and no spare from being started. It
        is tried again in each look: one that is on its way to another node is stopped where its move ends, here or by
        the node that has it then."""
        refused: dict[MachineId, str] = {}
        for takeover in await self._sight.taken_from(self._me):
            record = self._store.get(MACHINES, takeover.machine)
            fenced = self._store.get(FENCED, takeover.machine)
            if record is None or record.state in GONE or (fenced is not None and fenced.seen >= takeover.seen):
                continue
            try:
                await self._fence(record, takeover)
            except HawkerError as error:
                refused[record.id] = str(error)
                if self._refused.get(record.id) != str(error):
                    fields = {"machine": record.id, "spare": takeover.spare, "error": str(error)}
                    _log.error("machine cannot give way to its spare", extra=fields)
        self._refused = refused

    async def _fence(self, record: MachineRecord, takeover: Takeover) -> None:
        fenced = FencedRecord(spare=takeover.spare, seen=takeover.seen, at=self._clock.now())

        def also(tx: Tx) -> None:
            tx.put(FENCED, record.id, fenced)

        try:
            await self._operations.stop(self._target(record), signal=None, timeout_s=None, also=also)
        except NotFound:
            return
        _log.warning("machine gave way to its spare", extra={"machine": record.id, "spare": takeover.spare})

    def _target(self, record: MachineRecord) -> MachineTarget:
        lease = current_lease(record, self._clock.now())
        return MachineTarget(record.app, record.id, lease.nonce if lease else None)

    def _tell(self, spare_id: MachineId, verdict: FailoverVerdict, watched: Watched) -> None:
        if self._told.get(spare_id) is not verdict:
            self._told[spare_id] = verdict
            fields = {"machine": spare_id, "for": watched.id, "lost": watched.owner, "because": verdict.value}
            if verdict is FailoverVerdict.MINORITY:
                fields["to_do"] = f"if node {watched.owner} is gone for good: hawker machine start {spare_id}"
            _log.warning("spare is not started", extra=fields)
