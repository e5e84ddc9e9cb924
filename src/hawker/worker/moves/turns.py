"""The turn of an app's moves: over all nodes one machine or free volume of an app moves at a time. The app's home keeps
whose turn it is; a move asks for it before anything is begun, and once more before its machine is stopped.

A home that is away, or too old to know of turns, keeps nobody from moving. A turn is left when its move ends; who waits
for one asks the move's source, too, and takes it over from a move that has ended. The home believes no node but of its
own moves, and lets none have the turn without an end: one that an attacker took keeps others from moving for a while.
"""

from functools import partial

import msgspec

from hawker.api.contract.move import MoveParams
from hawker.api.contract.move_peer import SHOW_OUTGOING
from hawker.api.contract.move_turn import LEAVE_TURN, TAKE_TURN, MoveTurn, TurnQuery, TurnRequest
from hawker.errors import Conflict, DeadlineExceeded, Fault, Forbidden, HawkerError, NotFound, Unavailable
from hawker.fsm.contract import Abort, Done, Outcome
from hawker.ids import AppName, NodeId
from hawker.log import bind
from hawker.record.app import APPS
from hawker.record.move import BUSY, MOVES, OPEN_MOVES, TURNS, MoveRecord, TurnRecord
from hawker.store.contract import Durability, Tx
from hawker.worker.lifecycle.deps import Context, FlowDeps

TURN_S = 600.0
"""The seconds for which a turn is kept for a move whose source is not heard of."""

PATIENCE_S = 600.0
"""The seconds that a move waits for its turn."""

LONGEST_S = 7200.0
"""The seconds for which moves of one node have the turn of an app, one after the other or one alone."""

REST_S = 60.0
"""Then it is for others; also a node that has left its turn goes on with its time if it asks within this."""

_LOOK_S = 1.0
_TRIES = 3  # of a home that does not answer
_CHECK_S = 2.0  # less than who asks the home waits for it
_AWAY = (DeadlineExceeded, Fault, Unavailable)

_log = bind("hawker.moves")


class AppTurns:
    """The turns of moves, kept at the home of their apps."""

    def __init__(self, deps: FlowDeps) -> None:
        self._deps = deps

    async def take(self, move_id: str, asked: TurnRequest, certified: str = "") -> MoveTurn:
        """Asks for the turn of a move, and says whose turn it is then. Durably. `certified` is the node that asks, if
        it has shown who it is. Raises `NotFound` where this is not the app's home, and `Forbidden` for another node's
        move."""
        if certified not in ("", asked.node):
            raise Forbidden(f"node {certified} asks for the turn of a move of node {asked.node:.40}")
        node, now = NodeId(asked.node), self._deps.clock.now()
        ended = await self._ended(asked)

        def apply(tx: Tx) -> TurnRecord | None:
            app = tx.get(APPS, asked.app)
            if app is None or app.home is not None:
                raise NotFound(f"this node is not the home of app '{asked.app:.80}'")
            held = tx.get(TURNS, app.name)
            if held is not None and held.until > now and (held.move, held.node) not in ((move_id, node), ended):
                return held
            given = next_turn(held, move_id, node, now)
            if given is not None:
                tx.put(TURNS, app.name, given)
            return given

        found = await self._deps.store.write(apply)
        return MoveTurn(move="", node=node) if found is None else MoveTurn(move=found.move, node=found.node)

    async def _ended(self, asked: TurnRequest) -> tuple[str, NodeId] | None:
        """The move that has the turn and its source, if this one is to follow it and it has ended: who asks may lie."""
        held = None if asked.instead_of is None else self._deps.store.get(TURNS, AppName(asked.app))
        if held is None or held.move != asked.instead_of:
            return None
        there = MoveTurn(move=held.move, node=held.node)
        return (held.move, held.node) if await _has_ended(self._deps, there, _CHECK_S) else None

    async def leave(self, move_id: str, app: str, certified: str = "") -> None:
        """Ends the turn of a move, when the move's node says so. The turn's record stays for a while: `next_turn` reads
        it."""
        now = self._deps.clock.now()

        def apply(tx: Tx) -> None:
            held = tx.get(TURNS, AppName(app))
            if held is not None and held.move == move_id and certified in ("", held.node) and held.until > now:
                tx.put(TURNS, AppName(app), msgspec.structs.replace(held, until=now))

        await self._deps.store.write(apply)


def next_turn(held: TurnRecord | None, move_id: str, node: NodeId, now: float) -> TurnRecord | None:
    """The turn of a move for which nobody else has it; `held` is the last one. None while it is for other nodes.
    Pure."""
    since = now
    if held is not None and held.node == node and now < held.until + REST_S:
        since = held.since or now
        if now >= since + LONGEST_S:
            return None
    return TurnRecord(move=move_id, node=node, until=min(now + TURN_S, since + LONGEST_S), since=since)


def forget_turns(tx: Tx, now: float) -> None:
    """Forgets turns, at their home: those that are over, and from which nothing follows."""
    for app, turn in list(tx.scan(TURNS)):
        if turn.until + REST_S <= now:
            tx.delete(TURNS, app)


# At the source of a move.


async def turn(context: Context[msgspec.Struct]) -> Outcome:
    """Waits until it is this move's turn, or its app's home does not say whose it is."""
    deps, move, last = context.deps, _move(context), context.clock.monotonic() + PATIENCE_S
    tries, _ = _TRIES, deps.others.there  # raises, and so is tried again, while the daemon has met nobody
    while move.alone:
        try:
            waits, tries = await _ask(deps, move), _TRIES
        except HawkerError as error:
            tries -= 1
            if not tries or not isinstance(error, _AWAY):
                said = {"move": move.id, "app": move.app, "reason": str(error)}
                _log.warning("a move begins without the turn of its app", extra=said)
                return Done(commit=lambda tx: _note(tx, deps, move.id))
        else:
            if not waits:
                return Done(commit=lambda tx: _note(tx, deps, move.id, has_turn=True))
            if context.clock.monotonic() >= last:
                return Abort(Conflict(f"{BUSY}{waits}, and did so for {PATIENCE_S / 60:g} minutes"))
            await _say(deps, move, waits)
        await context.clock.sleep(_LOOK_S)
    return Done()


async def turn_lost(deps: FlowDeps, move: MoveRecord) -> str:
    """For whom a move has to wait after all, in words; empty when for nobody. Asked before the machine is stopped."""
    if not move.alone:
        return ""
    try:
        waits = await _ask(deps, move)
    except HawkerError:
        return ""  # who is away keeps nobody from moving
    await _say(deps, move, waits)
    return waits


async def leave_turn(deps: FlowDeps, move: MoveRecord) -> None:
    """Leaves the turn before the move's end is written. A home that does not hear it learns it from who waits."""
    if not move.alone:
        return
    await deps.store.write(lambda tx: _note(tx, deps, move.id, alone=False))
    try:
        home = _home_of(deps, move)
        if home is None:
            await AppTurns(deps).leave(move.id, move.app)
        else:
            params = MoveParams(move_id=move.id)
            await deps.others.there.caller(home).call(LEAVE_TURN, params=params, query=TurnQuery(app=move.app))
    except HawkerError:
        return


async def undo_turn(context: Context[msgspec.Struct]) -> None:
    found = context.deps.store.get(MOVES, context.run_id)
    if found is not None:
        await leave_turn(context.deps, found)


async def keep_turn(deps: FlowDeps, move: MoveRecord) -> None:
    """Asks the home for the turn of a move that goes on, now and then, and notes what the home says."""
    if move.alone and move.state in OPEN_MOVES:
        try:
            await _say(deps, move, await _ask(deps, move))
        except HawkerError:
            return


async def _ask(deps: FlowDeps, move: MoveRecord) -> str:
    """For whom it waits; empty when it is its turn. Raises what the home's node raises."""
    held = await _take(deps, move, None)
    if held.move not in ("", move.id) and await _has_ended(deps, held):
        held = await _take(deps, move, held.move)
    if held.move == move.id:
        return ""
    if not held.move:
        return f"it waits for its turn: moves of app '{move.app}' from this node let those of others go first"
    return f"it waits for its turn: move {held.move} of app '{move.app}' is under way at node {held.node}"


async def _take(deps: FlowDeps, move: MoveRecord, instead_of: str | None) -> MoveTurn:
    asked = TurnRequest(app=move.app, node=deps.others.there.me, instead_of=instead_of)
    home = _home_of(deps, move)
    if home is None:
        return await AppTurns(deps).take(move.id, asked)
    return await deps.others.there.caller(home).call(TAKE_TURN, params=MoveParams(move_id=move.id), body=asked)


async def _has_ended(deps: FlowDeps, held: MoveTurn, wait_s: float | None = None) -> bool:
    """As its source says, which is waited for so long, or as long as for any call."""
    if held.node == deps.others.there.me:
        found = deps.store.get(MOVES, held.move)
        return found is None or found.state not in OPEN_MOVES
    try:
        caller = deps.others.there.caller(NodeId(held.node))
        shown = await caller.call(SHOW_OUTGOING, params=MoveParams(move_id=held.move), timeout_s=wait_s)
        return shown.state not in OPEN_MOVES
    except NotFound:
        return True
    except HawkerError:
        return False


def _home_of(deps: FlowDeps, move: MoveRecord) -> NodeId | None:
    """None when it is this node. Raises `NotFound` for an app that is gone."""
    app = deps.store.get(APPS, move.app)
    if app is None:
        raise NotFound("app not found")
    return app.home


def _move(context: Context[msgspec.Struct]) -> MoveRecord:
    found = context.deps.store.get(MOVES, context.run_id)
    if found is None:
        raise NotFound(f"move {context.run_id} not found")
    return found


async def _say(deps: FlowDeps, move: MoveRecord, waits: str) -> None:
    """What is shown while it waits."""
    found = deps.store.get(MOVES, move.id)
    if found is not None and (found.has_turn, found.waits) != (not waits, waits):
        note = partial(_note, deps=deps, move_id=move.id, has_turn=not waits, waits=waits)
        await deps.store.write(note, Durability.ORDERED)


def _note(tx: Tx, deps: FlowDeps, move_id: str, *, alone: bool = True, has_turn: bool = False, waits: str = "") -> None:
    """Unless it has left its turn."""
    move = tx.get(MOVES, move_id)
    if move is not None and move.alone and move.state in OPEN_MOVES:
        now = deps.clock.now()
        changed = msgspec.structs.replace(move, alone=alone, has_turn=has_turn, waits=waits, updated_at=now)
        tx.put(MOVES, move_id, changed)
