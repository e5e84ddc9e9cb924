"""Reclaims, at the source of a move, as single transactions: the node takes back what it granted to one that is lost.
What is acknowledged is on disk when these return; the flow `reclaim` does the rest.

Invariant: a reclaim is a grant of this node to itself, under a generation greater than all that can have followed. So
the owner stays the end of the chain of grants, and a destination that returns learns that it is not its end.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import anyio
from msgspec.structs import replace

from hawker.api.contract.move import LIST_MOVES, ListMovesQuery, Move
from hawker.errors import Conflict, HawkerError, Moved, NoRoom, NotFound, Unprocessable, WrongState
from hawker.failpoint import reach
from hawker.ids import NodeId
from hawker.machine import State
from hawker.node import Capacity, shortfall, shortfall_text
from hawker.record.app import PINNED
from hawker.record.machine import BY_NAME, MACHINES
from hawker.record.move import (
    GRANTS,
    MOVED,
    MOVES,
    OPEN_MOVE_OF,
    RETIRED_UNITS,
    GrantRecord,
    MovePointer,
    MoveRecord,
    MoveState,
    RetiredUnit,
)
from hawker.record.node import used
from hawker.record.volume import VOLUMES
from hawker.store.contract import Tx
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.moves.outgoing import DeliverInput, change_move, migrated
from hawker.worker.moves.reclaim import RECLAIM
from hawker.worker.moves.unit import unit_resource

_ASKED_S = 10.0  # how long other nodes are asked what moved from them

GENERATIONS = 1000
"""The number by which the generation of what is taken back is greater: a node that was cut off may have granted it on
some times, one generation each, before it hears."""


class Reclaims:
    """`room` answers what the node has."""

    def __init__(self, deps: FlowDeps, room: Callable[[], Capacity]) -> None:
        self._deps = deps
        self._room = room

    async def order(self, move_id: str, *, accept_loss: bool = False, now: bool = False) -> MoveRecord:
        """Own it again, from this commit on. Asked again it is what it was. Raises `NotFound`, `NotServed`, `Conflict`
        while the move or its delivery goes on, `WrongState` for one that is not to be taken back or whose destination
        lives, `Unprocessable` when what was written there is to be given up, `NoRoom`."""
        deps, move = self._deps, self._found(self._deps.store.get(MOVES, move_id), move_id)
        if move.reclaimed:
            return move
        deps.others.check()
        await self._check_lost(move)
        seen = 0 if move.machine is None else deps.others.there.seen_generation(move.machine)
        reach("reclaim.order.before")
        made = await deps.store.write(lambda tx: self._order(tx, move_id, seen, accept_loss=accept_loss, now=now))
        reach("reclaim.order.after")
        return made

    def _found(self, move: MoveRecord | None, move_id: str) -> MoveRecord:
        if move is None:
            raise NotFound(f"move {move_id:.40} not found: see `hawker moves list`")
        return move

    async def _check_lost(self, move: MoveRecord) -> None:
        if move.state not in (MoveState.GRANTED, MoveState.DONE):
            raise WrongState(
                f"the move is {move.state}, and node {self._deps.others.there.me} has it: `hawker moves cancel` ends it"
            )
        others = self._deps.others.there
        at = others.volume_seen_at(move.volume) if move.machine is None and move.volume else None
        at = at if move.machine is None else others.seen_at(move.machine)
        if at not in (None, others.me, move.to):
            raise Moved(f"{move.unit} went on from node {move.to}, and node {at} has it", node=str(at))
        if move.machine is not None and others.seen_generation(move.machine) > move.generation:
            raise WrongState(
                f"{move.unit} has moved since: the node that it came from last takes it back, see `hawker moves list`"
            )
        await self._check_newest(move)
        if await others.lost_since(move.to) is None:
            raise WrongState(
                f"node {move.to}, or its host, answers: nothing is taken back from a node that lives. If it is to give"
                " it back, move it"
            )

    async def _check_newest(self, move: MoveRecord) -> None:
        """Nobody who answers gave the unit to somebody later: its destination may have had it twice. Raises
        `WrongState`."""
        others = self._deps.others.there
        asked = [node.id for node in others.nodes() if node.alive and node.id not in (others.me, move.to)]
        later: dict[NodeId, Move] = {}

        async def ask(node: NodeId) -> None:
            with suppress(HawkerError, TimeoutError), anyio.fail_after(_ASKED_S):
                for each in (await others.caller(node).call(LIST_MOVES, query=ListMovesQuery())).moves:
                    if (each.machine or each.volume) == move.unit and _newest_of(each) > move.generation:
                        later[node] = each

        async with anyio.create_task_group() as tasks:
            for node in asked:
                tasks.start_soon(ask, node)
        for node, each in sorted(later.items()):
            raise WrongState(
                f"{move.unit} has moved since: move {each.id} from node {node} followed, see `hawker moves list`"
            )

    def _order(self, tx: Tx, move_id: str, seen: int, *, accept_loss: bool, now: bool) -> MoveRecord:
        deps = self._deps
        move = self._found(tx.get(MOVES, move_id), move_id)
        if move.reclaimed:
            return move
        made = tx.get(GRANTS, move.unit)
        if made is None or made.move != move.id or move.state not in (MoveState.GRANTED, MoveState.DONE):
            raise WrongState(f"the move is {move.state}, and is not the last one of {move.unit} from here")
        if move.state is MoveState.GRANTED and move.heard_at is not None:
            raise Conflict(
                f"node {move.to} has accepted it, and what was here is being put aside: ask again in a moment"
            )
        accepted = move.state is MoveState.DONE or seen >= move.generation
        if accepted and not accept_loss:
            raise Unprocessable(_loss(move))
        if move.state is MoveState.DONE:
            self._bring_back(tx, move)
        generation = self._generation(move)
        at = deps.clock.now()
        grant = GrantRecord(unit=move.unit, generation=generation, to=deps.others.there.me, move=move.id, at=at)
        tx.put(GRANTS, move.unit, grant)
        for each in filter(None, (move.machine, move.volume)):
            tx.delete(MOVED, each)
            tx.put(OPEN_MOVE_OF, each, MovePointer(move=move.id))
        reason = f"node {move.to} is lost"
        changed = change_move(
            tx, deps, move.id, state=MoveState.RECLAIMING, reclaimed=generation, reclaims_now=now, reason=reason
        )
        record = None if move.machine is None else tx.get(MACHINES, move.machine)
        if record is not None:
            deps.table.change(tx, record, migrated("reclaiming", changed, reason), generation=generation)
        volume = None if move.volume is None else tx.get(VOLUMES, move.volume)
        if volume is not None:
            deps.volumes.change(tx, volume, generation=generation)
        deps.runs.accept(tx, RECLAIM.name, unit_resource(move), DeliverInput(move=move.id))
        return changed

    def _generation(self, move: MoveRecord) -> int:
        return move.generation + GENERATIONS

    def _bring_back(self, tx: Tx, move: MoveRecord) -> None:
        """The records that the unit had here, with the room that they hold. Raises `WrongState`, `NoRoom`."""
        deps = self._deps
        unit = tx.get(RETIRED_UNITS, move.id)
        if unit is None or unit.until <= deps.clock.now():
            raise WrongState(f"what was here of {move.unit} is kept for 24 hours, and is not here any more")
        if unit.machine is not None and tx.get(BY_NAME, f"{unit.machine.app}/{unit.machine.name}") is not None:
            raise WrongState(f"another machine of app '{unit.machine.app}' has the name '{unit.machine.name}' by now")
        missing = shortfall(self._room(), used(tx), unit.holds)
        if missing:
            raise NoRoom(f"short of {shortfall_text(missing)}", scope="host", shortfall=missing)
        if unit.machine is not None and move.memory is not None:  # until its memory is where it was
            unit = replace(unit, machine=replace(unit.machine, state=State.SUSPENDING, running=None))
        enter_retired(tx, deps, unit)
        tx.delete(RETIRED_UNITS, move.id)


def enter_retired(tx: Tx, deps: FlowDeps, unit: RetiredUnit) -> None:
    if unit.volume is not None:
        deps.volumes.insert(tx, unit.volume)
    if unit.machine is not None:
        unit.failover.enter(tx, unit.machine.id)
        deps.table.enter(tx, unit.machine, unit.versions, unit.events)
        if unit.secrets is not None:
            tx.put(PINNED, f"{unit.machine.id}/{unit.machine.version}", unit.secrets)


def _newest_of(move: Move) -> int:
    """The greatest generation under which somebody owned its unit by it; 0 for one that was never granted."""
    granted = move.state in (MoveState.GRANTED, MoveState.RECLAIMING, MoveState.DONE)
    return max(move.generation if granted else 0, move.reclaimed)


def _loss(move: MoveRecord) -> str:
    began = move.heard_at or move.granted_at or move.updated_at
    since = datetime.fromtimestamp(began, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        f"node {move.to} owned it, and what was written there since {since} is missing here: take it back without that"
        " with `--accept-loss` (`accept_loss`)"
    )
