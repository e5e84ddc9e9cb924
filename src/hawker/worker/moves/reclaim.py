"""Flow `reclaim`, at the source of a move whose destination is lost. That this node owns the unit again is durable
before it begins. The destination is waited for, in case it lives: it stops what runs of it as soon as it hears.
"""

from hawker.api.contract.move import MoveParams
from hawker.api.contract.move_peer import DROP_INCOMING, SHOW_INCOMING
from hawker.errors import HawkerError, NotFound
from hawker.fsm.contract import Done, Flow, Outcome, Step
from hawker.record.move import AWAITED, GRANTS, RETIRED, IncomingState, MoveRecord, MoveState
from hawker.store.contract import Tx
from hawker.worker.lifecycle.deps import Context, FlowDeps
from hawker.worker.moves.outgoing import OFTEN, DeliverInput, give_back, move_in
from hawker.worker.moves.unit import files_of, memories_of, retired_key, reveal_suspended, unit_files

PATIENCE_S = 60.0
"""The seconds that a reclaim waits from when gossip called the destination down: a node that lives and was only cut off
asks each minute."""

_LOOK_S = 1.0


async def wait(context: Context[DeliverInput]) -> Outcome:
    """Waits until the destination has let go, or must be off."""
    deps, move = context.deps, move_in(context)
    while not await _has_let_go(deps, move):
        since = await deps.others.there.lost_since(move.to)
        if since is not None and (move.reclaims_now or context.clock.now() - since >= PATIENCE_S):
            break
        await context.clock.sleep(_LOOK_S)
    return Done()


async def _has_let_go(deps: FlowDeps, move: MoveRecord) -> bool:
    caller, params = deps.others.there.caller(move.to), MoveParams(move_id=move.id)
    try:
        found = await caller.call(SHOW_INCOMING, params=params)
        if found.state in AWAITED:
            await caller.call(DROP_INCOMING, params=params)
            found = await caller.call(SHOW_INCOMING, params=params)
    except NotFound:
        return True
    except HawkerError:
        return False
    return found.state in (IncomingState.DROPPED, IncomingState.REFUSED)


async def restore(context: Context[DeliverInput]) -> Outcome:
    """The files that were put aside are where they were."""
    deps, move = context.deps, move_in(context)
    memories = memories_of(deps)
    if move.memory is not None and move.machine is not None and memories is not None:
        await memories.make_place(move.machine)
    for each in unit_files(move):
        await files_of(deps).unwatch(each)
        await files_of(deps).restore(each, move.generation)
        context.reach("restored")
    await reveal_suspended(deps, move)
    return Done(commit=lambda tx: _restored(tx, move))


def _restored(tx: Tx, move: MoveRecord) -> None:
    for each in unit_files(move):
        tx.delete(RETIRED, retired_key(each, move.generation))


async def reopen(context: Context[DeliverInput]) -> Outcome:
    """Opens the unit again: from this commit on it may be used here; what ran is started."""
    deps, move = context.deps, move_in(context)
    return Done(commit=lambda tx: _reopened(tx, deps, move))


def _reopened(tx: Tx, deps: FlowDeps, move: MoveRecord) -> None:
    if move.state is MoveState.RECLAIMING:
        tx.delete(GRANTS, move.unit)
        give_back(tx, deps, move.id, f"node {move.to} is lost: taken back under generation {move.reclaimed}")


RECLAIM = Flow(
    name="reclaim",
    input=DeliverInput,
    steps=(
        Step("wait", wait, timeout_s=7 * 86_400.0, backoff=OFTEN, durable=True),
        Step("restore", restore, timeout_s=600, backoff=OFTEN, durable=True, points=("restored",)),
        Step("reopen", reopen, backoff=OFTEN, durable=True),
    ),
)
