"""Whether what came to this node by a move is its own still: while the node was away, who granted it may have taken it
back. The granter is asked before the first use of each such unit in the life of a daemon, and once a minute; when it is
silent, the catalog is. What was taken back is given up at once: see `surrender`. Once the granter has said that it
never can take it back, nobody is asked any more; time says no such thing, for this node may have been away meanwhile.
A granter that was forgotten is not waited for; it is asked still, for it may have taken it back before, and return.
"""

import msgspec

from hawker.api.contract.move import MoveParams
from hawker.api.contract.move_peer import SHOW_OUTGOING
from hawker.errors import HawkerError, Moved, NotFound
from hawker.fsm.contract import Abort
from hawker.ids import NodeId
from hawker.log import bind
from hawker.machine import GONE, OFF, State
from hawker.record.machine import MACHINES, Detail
from hawker.record.move import (
    GRANTS,
    INCOMING,
    MOVED,
    MOVES,
    OPEN_MOVE_OF,
    GrantRecord,
    IncomingRecord,
    IncomingState,
    MovedRecord,
    MoveState,
)
from hawker.record.volume import VOLUMES
from hawker.store.contract import Reader, Tx
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.moves.unit import unit_resource
from hawker.worker.table import Happened

_TRIES, _AGAIN_S = 5, 2.0
SURRENDER_FLOW = "surrender"
_log = bind("hawker.moves")


class SurrenderInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the run that surrenders a unit: the move by which it came."""

    move: str
    """The id of the move; another move that brought the machine here since has nothing to do with this run."""


def came_by(reader: Reader, unit: str) -> IncomingRecord | None:
    """The move by which this node owns a unit; None for one that began here, that is not here, or was given up."""
    record = reader.get(MACHINES, unit) or reader.get(VOLUMES, unit)
    if record is None:
        return None
    accepted = [each for _, each in reader.scan(INCOMING) if each.state is IncomingState.ACCEPTED]
    found = [each for each in accepted if each.unit == unit and each.generation <= record.generation]
    return max(found, key=lambda each: each.generation, default=None)


def is_given_up(reader: Reader, came: IncomingRecord) -> bool:
    made = reader.get(GRANTS, came.unit)
    return made is not None and made.move == came.move


async def taken_back(deps: FlowDeps, unit: str) -> Abort | None:
    """The end of a run that was to use a unit, when the unit was taken back; None when it was not. Asked before the
    unit is used; one that was taken back is given up."""
    came = came_by(deps.store, unit)
    if came is None or ((came.settled or came.move in deps.claims) and not is_given_up(deps.store, came)):
        return None
    taken, tries = 0 if not is_given_up(deps.store, came) else came.generation, 0
    while not taken and tries < _TRIES:
        said = await _generation_elsewhere(deps, came)
        if said is not None:
            taken = said
            break
        tries += 1
        await deps.clock.sleep(_AGAIN_S)  # the catalog hears meanwhile of one that has returned
        if _is_forgotten(deps, came.source):
            break
    taken = taken or _generation_seen(deps, came)
    if taken:
        await _give_up(deps, came, taken)
        return Abort(Moved(f"{unit} was taken back by node {came.source} while this node was away", node=came.source))
    deps.claims.add(came.move)
    return None


async def look(deps: FlowDeps) -> None:
    """Ask for all that came, and give up what was taken back."""
    for _, came in list(deps.store.scan(INCOMING)):
        if came.state is IncomingState.ACCEPTED and not came.settled and came_by(deps.store, came.unit) == came:
            taken = 0 if is_given_up(deps.store, came) else await _generation_elsewhere(deps, came)
            if taken:
                await _give_up(deps, came, taken)


async def _generation_elsewhere(deps: FlowDeps, came: IncomingRecord) -> int | None:
    """Under which its granter took it back, 0 when it did not, for good or so far; None when it says nothing."""
    try:
        caller = deps.others.there.caller(came.source)
        said = await caller.call(SHOW_OUTGOING, params=MoveParams(move_id=came.move))
    except NotFound:  # it was long ago
        return 0
    except HawkerError:
        return None
    if said.settled and not said.reclaimed:
        await deps.store.write(lambda tx: _settled(tx, came))
    return said.reclaimed


def _is_forgotten(deps: FlowDeps, node: NodeId) -> bool:
    return deps.others.are_there and deps.others.there.is_forgotten(node)


def _settled(tx: Tx, came: IncomingRecord) -> None:
    record = tx.get(INCOMING, came.move)
    if record is not None:
        tx.put(INCOMING, record.move, msgspec.structs.replace(record, settled=True))


def _generation_seen(deps: FlowDeps, came: IncomingRecord) -> int:
    """That of the catalog, where it is greater than this node's. Of what this node has granted on its new owner may be
    there already; another node, under no smaller generation than was granted, took it back."""
    record = deps.store.get(MACHINES, came.unit)
    if record is None or not deps.others.are_there:
        return 0
    others, granted = deps.others.there, deps.store.get(GRANTS, came.unit)
    seen = others.seen_generation(record.id)
    if granted is None:
        return seen if seen > record.generation else 0
    elsewhere = others.seen_at(record.id) not in (None, others.me, granted.to)
    return seen if elsewhere and seen >= granted.generation else 0


async def _give_up(deps: FlowDeps, came: IncomingRecord, generation: int) -> None:
    _log.warning("taken back by its granter", extra={"unit": came.unit, "node": came.source})
    await deps.store.write(lambda tx: _given_up(tx, deps, came, generation))


def _given_up(tx: Tx, deps: FlowDeps, came: IncomingRecord, generation: int) -> None:
    """From this commit on this node owns it no more, by its own records too."""
    if came_by(tx, came.unit) != came or is_given_up(tx, came):
        return
    now = deps.clock.now()
    opened = tx.get(OPEN_MOVE_OF, came.unit)
    move = None if opened is None else tx.get(MOVES, opened.move)
    if move is not None and move.state is MoveState.GRANTED:  # to a node that has not heard of it
        reason = f"node {came.source} took it back"
        tx.put(MOVES, move.id, msgspec.structs.replace(move, state=MoveState.ABORTED, reason=reason, updated_at=now))
        for each in filter(None, (move.machine, move.volume)):
            tx.delete(OPEN_MOVE_OF, each)
    tx.put(
        GRANTS,
        came.unit,
        GrantRecord(unit=came.unit, generation=generation, to=came.source, move=came.move, at=now),
    )
    for id in (each.id for each in (came.machine, came.volume) if each is not None):
        tx.put(MOVED, id, MovedRecord(app=came.app, to=came.source, generation=generation, at=now))
    record = None if came.machine is None else tx.get(MACHINES, came.machine.id)
    if record is not None and record.state not in OFF | GONE:
        why = Detail(error=f"node {came.source} took the machine back while this node was away")
        deps.table.change(tx, record, Happened("stop", "stopping", detail=why), state=State.STOPPING, awaited=None)
    resource = unit_resource(came)
    deps.runs.accept(tx, SURRENDER_FLOW, resource, SurrenderInput(move=came.move))
