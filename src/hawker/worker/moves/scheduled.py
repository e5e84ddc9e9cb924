"""Moves that are ordered now and begin later: kept durably until their time, then ordered as any move is, in the one
transaction that also ends them here. So none begins twice, whenever the daemon is killed.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from hawker.api.contract.move import MoveRequest
from hawker.clock import Clock
from hawker.errors import (
    BadRequest,
    Conflict,
    HawkerError,
    Moved,
    NotFound,
    NotServed,
    Unprocessable,
    WrongState,
)
from hawker.failpoint import reach
from hawker.ids import AppName, MachineId, NodeId, VolumeId, new_ulid
from hawker.log import bind
from hawker.record.machine import MachineTarget
from hawker.record.move import SCHEDULED_MOVES, SIGNPOSTS_KEPT_S, MoveRecord, ScheduledMove, check_here
from hawker.store.contract import Durability, Reader, Tx
from hawker.time_window import TimeWindow, parse_window
from hawker.worker import leases
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.moves.orders import MachineMoves

FARTHEST_S = 366 * 86_400.0
"""The most seconds before its time at which a move may be ordered."""

TRIED_S = 3600.0
"""The seconds for which a move with a time of its own is tried once that has come."""

_LATE_S = 60.0
"""A time that is past by less than this is now: clocks of clients differ."""

_FOR_EVER = (BadRequest, Moved, NotFound, NotServed, Unprocessable)
"""The errors that do not go away by waiting."""

_log = bind("hawker.moves")


class ScheduledMoves:
    """`begin_due` is to be called again and again."""

    def __init__(self, deps: FlowDeps, moves: MachineMoves) -> None:
        self._deps = deps
        self._moves = moves

    async def of_machine(self, target: MachineTarget, wish: MoveRequest) -> ScheduledMove:
        """Keeps an order to move a machine later. Raises what is known now to stand against it: what may be otherwise
        when its time has come does not."""
        deps = self._deps

        def apply(tx: Tx) -> ScheduledMove:
            record = deps.table.find(tx, target.app, target.machine_id)
            leases.check(record, target.nonce, deps.clock.now())
            return self._keep(tx, wish, record.app, machine=record.id)

        return await self._accepted(apply)

    async def of_volume(self, app: AppName, volume_id: str, wish: MoveRequest) -> ScheduledMove:
        """Keeps an order to move a volume later that no machine has."""
        deps = self._deps

        def apply(tx: Tx) -> ScheduledMove:
            record = deps.volumes.find(tx, app, volume_id)
            self._moves.check_free(record)
            return self._keep(tx, wish, record.app, volume=record.id)

        return await self._accepted(apply)

    async def _accepted(self, apply: Callable[[Tx], ScheduledMove]) -> ScheduledMove:
        reach("scheduled_move.accept.before")
        scheduled = await self._deps.store.write(apply)
        reach("scheduled_move.accept.after")
        return scheduled

    def _keep(
        self, tx: Tx, wish: MoveRequest, app: AppName, machine: MachineId | None = None, volume: VolumeId | None = None
    ) -> ScheduledMove:
        deps = self._deps
        self._moves.check(wish)
        deps.others.check()
        unit = machine or volume
        check_here(tx, unit)
        known = next((each for each in _waiting(tx) if unit in (each.machine, each.volume)), None)
        if known is not None:
            raise Conflict(
                f"move {known.id} of {unit} is scheduled: end it first with `hawker moves cancel {known.id}`"
            )
        at, until = _due(wish, deps.clock)
        scheduled = ScheduledMove(
            id=new_ulid(deps.clock),
            app=app,
            machine=machine,
            volume=volume,
            to=NodeId(wish.to) if wish.to else None,
            region=wish.region,
            mode=wish.mode,
            limit_mib_per_s=wish.limit_mib_per_s or 0,
            cold_start=bool(wish.cold_start),
            accept_loss=bool(wish.accept_loss),
            at=at,
            until=until,
            window=wish.window or "",
            created_at=deps.clock.now(),
        )
        tx.put(SCHEDULED_MOVES, scheduled.id, scheduled)
        return scheduled

    def get(self, id: str) -> ScheduledMove | None:
        return self._deps.store.get(SCHEDULED_MOVES, id)

    def list(self) -> Sequence[ScheduledMove]:
        """The orders that have not become a move, the newest first."""
        return [each for _, each in self._deps.store.scan(SCHEDULED_MOVES, reverse=True) if not each.move]

    async def cancel(self, id: str) -> ScheduledMove:
        """Cancels an order and returns it as it is afterwards: one that has begun meanwhile is as it was. Raises
        `NotFound`."""

        def apply(tx: Tx) -> ScheduledMove:
            found = tx.get(SCHEDULED_MOVES, id)
            if found is None:
                raise NotFound(f"move {id:.40} not found: see `hawker moves list`")
            if found.ended_at is not None:
                return found
            tx.delete(SCHEDULED_MOVES, id)
            return msgspec.structs.replace(found, ended_at=self._deps.clock.now(), reason="cancelled by the user")

        return await self._deps.store.write(apply)

    async def begin_due(self) -> None:
        """Begins the orders whose time has come, the oldest order first; and forgets those that ended long ago."""
        deps = self._deps
        for scheduled in list(_waiting(deps.store)):
            if scheduled.at <= deps.clock.now():
                await self._begin(scheduled)
        oldest = deps.clock.now() - SIGNPOSTS_KEPT_S
        old = [key for key, each in deps.store.scan(SCHEDULED_MOVES) if (each.ended_at or oldest) < oldest]
        for key in old:
            await deps.store.write(lambda tx, key=key: tx.delete(SCHEDULED_MOVES, key), Durability.ORDERED)  # type: ignore[misc]

    async def _begin(self, scheduled: ScheduledMove) -> None:
        deps = self._deps
        wish = MoveRequest(
            to=scheduled.to,
            region=scheduled.region,
            mode=scheduled.mode,
            limit_mib_per_s=scheduled.limit_mib_per_s,
            cold_start=scheduled.cold_start,
            accept_loss=scheduled.accept_loss,
        )

        def begun(tx: Tx, move: MoveRecord) -> None:
            if self._still(tx, scheduled) is None:
                raise NotFound("it was cancelled")
            ended = msgspec.structs.replace(scheduled, move=move.id, ended_at=deps.clock.now(), reason="")
            tx.put(SCHEDULED_MOVES, scheduled.id, ended)

        try:
            if deps.clock.now() >= scheduled.until:
                raise WrongState(scheduled.reason or "the node was down when it was due")
            reach("scheduled_move.begin.before")
            if scheduled.machine is not None:
                await self._moves.of_machine(MachineTarget(scheduled.app, scheduled.machine, None), wish, begun)
            else:
                assert scheduled.volume is not None, "a move is of something"
                await self._moves.of_volume(scheduled.app, scheduled.volume, wish, begun)
            reach("scheduled_move.begin.after")
        except HawkerError as error:
            _log.warning("a move that is due has not begun", extra={"move": scheduled.id, "reason": str(error)})
            after = self._after(scheduled, error)
            await deps.store.write(lambda tx: self._put_off(tx, scheduled, after))

    def _after(self, scheduled: ScheduledMove, error: HawkerError) -> ScheduledMove:
        """It is tried again: soon, in the next window, or never."""
        now = self._deps.clock.now()
        changed = msgspec.structs.replace(scheduled, reason=str(error))
        if isinstance(error, _FOR_EVER) or (now >= scheduled.until and not scheduled.window):
            return msgspec.structs.replace(changed, ended_at=now)
        if now < scheduled.until:
            return changed
        at, until = _next(parse_window(scheduled.window), now)
        return msgspec.structs.replace(changed, at=at, until=until)

    def _put_off(self, tx: Tx, scheduled: ScheduledMove, after: ScheduledMove) -> None:
        if self._still(tx, scheduled) is not None and after != scheduled:
            tx.put(SCHEDULED_MOVES, scheduled.id, after)

    def _still(self, reader: Reader, scheduled: ScheduledMove) -> ScheduledMove | None:
        found = reader.get(SCHEDULED_MOVES, scheduled.id)
        return found if found is not None and found.ended_at is None else None


def _waiting(reader: Reader) -> Sequence[ScheduledMove]:
    return [each for _, each in reader.scan(SCHEDULED_MOVES) if each.ended_at is None]


def _due(wish: MoveRequest, clock: Clock) -> tuple[float, float]:
    """From when on and until when it may begin. Raises `BadRequest`."""
    now = clock.now()
    if wish.at is not None and wish.window is not None:
        raise BadRequest("at, window: give one of them")
    if wish.at is not None:
        return _due_at(wish.at, now)
    try:
        return _next(parse_window(wish.window or ""), now)
    except ValueError as error:
        raise BadRequest(f"window: {error}") from None


def _due_at(moment: datetime, now: float) -> tuple[float, float]:
    at = moment.timestamp()
    if at < now - _LATE_S:
        raise BadRequest("at: it is past")
    if at > now + FARTHEST_S:
        raise BadRequest(f"at: it is more than {FARTHEST_S / 86_400:.0f} days away")
    return at, max(at, now) + TRIED_S


def _next(window: TimeWindow, now: float) -> tuple[float, float]:
    at = window.opens(now)
    return at, at + window.length_s
