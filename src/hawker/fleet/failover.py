"""Stands by: starts this worker's spares when the hosts of what they stand by for are lost, and ends machines of this
worker that a spare elsewhere has taken over from while this node was away."""

from collections.abc import Callable, Sequence
from typing import Protocol

from hawker.clock import Clock
from hawker.errors import HawkerError, NotFound
from hawker.fleet.failover_rule import DOWN, FailoverVerdict, Spare, Takeover, Watched, judge
from hawker.fleet.failover_view import FailoverView
from hawker.ids import MachineId, NodeId
from hawker.log import bind
from hawker.machine import GONE, OFF, State
from hawker.record.machine import MACHINES, MachineRecord, MachineTarget, current_lease
from hawker.record.node import FENCED, TAKEOVERS, FencedRecord, TakeoverRecord
from hawker.store.contract import Store, Tx

LOOK_S = 1.0
"""Between two looks. Nothing is asked of anybody while every node of the region is there."""

_log = bind("hawker.spares")
_READY = OFF | {State.CREATED}


class MachineOperations(Protocol):
    """What failover does to this worker's machines. `also` is done in the transaction of the operation. Both raise
    `HawkerError`, `stop` raises `NotFound` once the machine is destroyed."""

    async def start(self, target: MachineTarget, *, also: Callable[[Tx], None]) -> State: ...

    async def stop(
        self, target: MachineTarget, *, signal: str | None, timeout_s: float | None, also: Callable[[Tx], None]
    ) -> None: ...


class Failover:
    """One task of a worker that is part of a fleet. `hear` has a listener called after each change of a machine."""

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
        hear(self._note)

    async def serve(self) -> None:
        """Until cancelled."""
        for _, record in list(self._store.scan(MACHINES)):
            self._sort(record.id, record)
        while True:
            try:
                await self.look()
            except (HawkerError, OSError) as error:
                _log.warning("cannot look at the fleet", extra={"error": str(error)})
            await self._clock.sleep(LOOK_S)

    async def look(self) -> None:
        """Once at everything."""
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
        for takeover in await self._sight.taken_from(self._me):
            record = self._store.get(MACHINES, takeover.machine)
            fenced = self._store.get(FENCED, takeover.machine)
            if record is None or record.state in GONE or (fenced is not None and fenced.seen >= takeover.seen):
                continue
            await self._fence(record, takeover)

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
