"""Answers about moves: to clients at the source of a move, and between its two nodes."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from hawker.api.contract.body import instant
from hawker.api.contract.image import PIECE_BYTES
from hawker.api.contract.machine import MachineParams
from hawker.api.contract.move import (
    CANCEL_MOVE,
    GET_MOVE,
    LIMIT_MOVE,
    LIST_MOVES,
    MOVE_FREE_VOLUME,
    MOVE_MACHINE,
    PAUSE_MOVE,
    RECLAIM_MOVE,
    RESUME_MOVE,
    LimitMoveRequest,
    ListMovesQuery,
    Move,
    MoveList,
    MoveParams,
    MoveRequest,
    TakeBackRequest,
)
from hawker.api.contract.move_peer import (
    ACCEPT_MOVE,
    CHANGED_BLOCKS,
    DIGEST_BLOCKS,
    DROP_INCOMING,
    HAND_BLOCKS,
    HAND_VOLUME,
    OFFER_MOVE,
    OFFER_SNAPSHOTS,
    RELEASE_SNAPSHOT,
    SHOW_INCOMING,
    SHOW_OUTGOING,
    ChangedBlocksAnswer,
    ChangedBlocksQuery,
    DeliverRequest,
    IncomingMove,
    IncomingRequest,
    MovedBlocksRequest,
    MovedPieceQuery,
    MovedSnapshotParams,
    OfferedSnapshotsRequest,
    OutgoingMove,
    ReleaseSnapshotQuery,
)
from hawker.api.contract.move_turn import LEAVE_TURN, TAKE_TURN, MoveTurn, TurnQuery, TurnRequest
from hawker.api.contract.volume import VolumeParams
from hawker.api.handlers import answers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.clock import Clock
from hawker.errors import BadRequest, Damaged, HawkerError, NotFound
from hawker.fair.table import VOLUME_HANDOVERS
from hawker.fair.turns import Turns
from hawker.fsm.runner import Runner
from hawker.handlers.machines import target_of
from hawker.host.changed_blocks import BlockRange
from hawker.host.unreadable import UnreadableBytes
from hawker.ids import AppName, NodeId, RunId
from hawker.permission import Action, Attempt
from hawker.record.move import (
    CLOSED_MOVES,
    OPEN_MOVES,
    PLANNED,
    SCHEDULED,
    IncomingRecord,
    MoveRecord,
    MoveState,
    ScheduledMove,
)
from hawker.volume.moved_blocks import HANDED_BLOCKS, Digests, groups
from hawker.volume.moved_files import Lost, MovedFile, StoredPiece
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.moves.deliver import DELIVER
from hawker.worker.moves.orders import MachineMoves, PlannedMove
from hawker.worker.moves.scheduled import ScheduledMoves
from hawker.worker.moves.unit import unit_resource

CANCEL_S = 25.0
"""The seconds that the answer to a cancel waits for the machine to be as it was."""


T = TypeVar("T")

_COPIED_IN = frozenset({MoveState.WARMING, MoveState.STOPPING, MoveState.COPYING})


class MoveHandlers:
    def __init__(
        self, node: NodeId, moves: MachineMoves, scheduled: ScheduledMoves, runner: Runner[FlowDeps], clock: Clock
    ) -> None:
        self._node = node
        self._moves = moves
        self._scheduled = scheduled
        self._runner = runner
        self._clock = clock
        self._handovers = Turns(VOLUME_HANDOVERS)

    @answers(MOVE_MACHINE)
    async def machine(self, call: Call[MachineParams, NoQuery, MoveRequest]) -> Move:
        target = target_of(call.params, call.nonce)
        if _is_for_later(call.body):
            return self._show_scheduled(await self._scheduled.of_machine(target, call.body))
        made = await self._moves.of_machine(target, call.body)
        return self._show(made) if isinstance(made, MoveRecord) else self._show_planned(made)

    @answers(MOVE_FREE_VOLUME)
    async def volume(self, call: Call[VolumeParams, NoQuery, MoveRequest]) -> Move:
        app, volume = AppName(call.params.app_name), call.params.volume_id
        if _is_for_later(call.body):
            return self._show_scheduled(await self._scheduled.of_volume(app, volume, call.body))
        made = await self._moves.of_volume(app, volume, call.body)
        return self._show(made) if isinstance(made, MoveRecord) else self._show_planned(made)

    @answers(LIST_MOVES)
    async def list(self, call: Call[NoParams, ListMovesQuery, None]) -> MoveList:
        query = call.query
        later = [self._show_scheduled(each) for each in self._scheduled.list()]
        shown = [
            each
            for each in [*later, *map(self._show, self._moves.list())]
            if query.app in (None, each.app)
            and query.state in (None, each.state)
            and query.node in (None, each.to, self._node)
            and call.grant.permits(Attempt(Action.READ, app=each.app))
        ]
        return MoveList(moves=tuple(sorted(shown, key=lambda each: each.id, reverse=True)))

    @answers(GET_MOVE)
    async def get(self, call: Call[MoveParams, NoQuery, None]) -> Move:
        move = self._shown(call.params.move_id)
        if not call.grant.permits(Attempt(Action.READ, app=move.app)):
            raise NotFound(f"move {move.id} not found")
        return move

    def _shown(self, id: str) -> Move:
        scheduled = self._scheduled.get(id)
        if scheduled is not None and not scheduled.move:
            return self._show_scheduled(scheduled)
        return self._show(self._moves.get(id if scheduled is None else scheduled.move))

    @answers(CANCEL_MOVE)
    async def cancel(self, call: Call[MoveParams, NoQuery, None]) -> Move:
        move_id = self._check_writer(call)
        if self._scheduled.get(move_id) is not None:
            ended = await self._scheduled.cancel(move_id)
            if not ended.move:
                return self._show_scheduled(ended)
            move_id = ended.move
        move = self._moves.check_cancellable(move_id)
        if move.state in OPEN_MOVES:
            run = RunId(move.id)
            await self._runner.cancel(run, "cancelled by the user")
            with suppress(HawkerError):  # it is promised, and takes longer
                await self._runner.wait(run, CANCEL_S)
        return self._show(self._moves.get(move.id))

    @answers(PAUSE_MOVE)
    async def pause(self, call: Call[MoveParams, NoQuery, None]) -> Move:
        return self._show(await self._moves.pause(self._check_writer(call)))

    @answers(RESUME_MOVE)
    async def resume(self, call: Call[MoveParams, NoQuery, None]) -> Move:
        return self._show(await self._moves.pause(self._check_writer(call), on=False))

    @answers(LIMIT_MOVE)
    async def limit(self, call: Call[MoveParams, NoQuery, LimitMoveRequest]) -> Move:
        return self._show(await self._moves.limit(self._check_writer(call), call.body.limit_mib_per_s))

    @answers(RECLAIM_MOVE)
    async def reclaim(self, call: Call[MoveParams, NoQuery, TakeBackRequest]) -> Move:
        wish, reclaims = call.body, self._moves.reclaims
        move_id = self._check_writer(call)
        move = await reclaims.order(move_id, accept_loss=bool(wish.accept_loss), now=bool(wish.now))
        run = self._runner.active(unit_resource(move))
        if run is not None and run.flow == DELIVER.name:  # it would notice by itself, once its call is over
            await self._runner.cancel(run.run_id, "taken back")
        return self._show(move)

    def _check_writer(self, call: Call[MoveParams, NoQuery, Any]) -> str:
        """The id of the move, which one that was scheduled has once it has begun. Raises `NotFound`, and what the grant
        raises."""
        move = self._shown(call.params.move_id)
        call.grant.check(Attempt(Action.WRITE, app=move.app))
        return move.id

    @answers(TAKE_TURN)
    async def take_turn(self, call: Call[MoveParams, NoQuery, TurnRequest]) -> MoveTurn:
        return await self._moves.turns.take(call.params.move_id, call.body, call.certified)

    @answers(LEAVE_TURN)
    async def leave_turn(self, call: Call[MoveParams, TurnQuery, None]) -> None:
        await self._moves.turns.leave(call.params.move_id, call.query.app, call.certified)

    @answers(OFFER_MOVE)
    async def offer(self, call: Call[MoveParams, NoQuery, IncomingRequest]) -> IncomingMove:
        return _incoming(await self._moves.hold(call.params.move_id, call.body))

    @answers(SHOW_INCOMING)
    async def incoming(self, call: Call[MoveParams, NoQuery, None]) -> IncomingMove:
        return _incoming(self._moves.incoming(call.params.move_id))

    @answers(DROP_INCOMING)
    async def drop(self, call: Call[MoveParams, NoQuery, None]) -> None:
        await self._moves.drop(call.params.move_id)

    @answers(ACCEPT_MOVE)
    async def accept(self, call: Call[MoveParams, NoQuery, DeliverRequest]) -> IncomingMove:
        return _incoming(await self._moves.accept(call.params.move_id, call.body))

    @answers(SHOW_OUTGOING)
    async def outgoing(self, call: Call[MoveParams, NoQuery, None]) -> OutgoingMove:
        move = self._moves.get(call.params.move_id)
        return OutgoingMove(
            state=move.state,
            generation=move.generation,
            stored_bytes=move.stored_bytes,
            hands_over=move.hands_over,
            closed=move.state in CLOSED_MOVES,
            paused=move.is_paused(self._clock.now()),
            limit_mib_per_s=move.limit_mib_per_s,
            reclaimed=move.reclaimed,
            snapshots=self._moves.snapshots_kept(move) if move.reclaimed else (),
            settled=self._moves.is_settled(move),
            to=move.to or "",
        )

    @answers(HAND_VOLUME)
    async def hand(self, call: Call[MoveParams, MovedPieceQuery, None]) -> bytes:
        query, count = call.query, min(max(1, call.query.count), PIECE_BYTES)

        def read(file: MovedFile, lost: Lost) -> Awaitable[StoredPiece | None]:
            return self._moves.files.piece(file, max(0, query.offset), count, lost)

        piece = await self._read(call.share, call.params.move_id, query, read)
        return b"" if piece is None else piece.offset.to_bytes(8, "big") + piece.data

    @answers(HAND_BLOCKS)
    async def blocks(self, call: Call[MoveParams, NoQuery, MovedBlocksRequest]) -> bytes:
        spans = next(groups(_spans(call.body), HANDED_BLOCKS), ())

        def read(file: MovedFile, lost: Lost) -> Awaitable[Mapping[int, bytes]]:
            return self._moves.files.blocks(file, spans, lost)

        found = await self._read(call.share, call.params.move_id, call.body, read)
        return b"".join(block.to_bytes(4, "big") + data for block, data in found.items())

    @answers(DIGEST_BLOCKS)
    async def digests(self, call: Call[MoveParams, NoQuery, MovedBlocksRequest]) -> bytes:
        spans = _spans(call.body)

        def read(file: MovedFile, lost: Lost) -> Awaitable[Digests]:
            return self._moves.files.digests(file, spans, lost)

        found = await self._read(call.share, call.params.move_id, call.body, read)
        entries = (block.to_bytes(4, "big") + digest for block, digest in found.of.items())
        return found.upto.to_bytes(8, "big") + b"".join(entries)

    async def _read(
        self,
        share: str,
        move_id: str,
        asked: MovedPieceQuery | MovedBlocksRequest,
        read: Callable[[MovedFile, Lost], Awaitable[T]],
    ) -> T:
        """What its disk cannot read is noted before the destination hears anything of it: as lost, and read as zeros
        from then on, or as what ends the move. Raises `Damaged`."""
        async with self._handovers.hold(f"node {share}"):
            while True:
                file, lost = self._moves.handed_over(move_id, asked)
                try:
                    return await read(file, lost)
                except UnreadableBytes as error:
                    await self._moves.note_unreadable(move_id, file, error)

    @answers(RELEASE_SNAPSHOT)
    async def release(self, call: Call[MovedSnapshotParams, ReleaseSnapshotQuery, None]) -> None:
        await self._moves.release_snapshot(call.params.move_id, call.query.generation, call.params.snapshot_id)

    @answers(OFFER_SNAPSHOTS)
    async def offer_snapshots(self, call: Call[MoveParams, NoQuery, OfferedSnapshotsRequest]) -> None:
        await self._moves.expect_snapshots(call.body)

    @answers(CHANGED_BLOCKS)
    async def changed(self, call: Call[MoveParams, ChangedBlocksQuery, None]) -> ChangedBlocksAnswer:
        file, _ = self._moves.handed_over(call.params.move_id, call.query)
        found = await self._moves.files.changed(file, call.query.since)
        spans = tuple((each.first, each.count) for each in found.spans or ())
        return ChangedBlocksAnswer(mark=found.mark, known=found.spans is not None, spans=spans)

    def _show_planned(self, planned: PlannedMove) -> Move:
        """It has no id: there is no such move."""
        said = f"nothing was done; node {planned.move.to} has {planned.free_mib} MiB of disk free, and may still refuse"
        shown = self._show(planned.move)
        return msgspec.structs.replace(shown, id="", state=PLANNED, eta_s=planned.eta_s, reason=said)

    def _show_scheduled(self, scheduled: ScheduledMove) -> Move:
        return Move(
            id=scheduled.id,
            app=scheduled.app,
            machine=scheduled.machine,
            volume=scheduled.volume,
            node=self._node,
            to=scheduled.to or "",
            mode=scheduled.mode or "auto",
            state=SCHEDULED if scheduled.ended_at is None else MoveState.ABORTED,
            generation=0,
            reason=scheduled.reason,
            accept_loss=scheduled.accept_loss,
            at=instant(scheduled.at),
            window=scheduled.window or None,
            created_at=instant(scheduled.created_at),
            updated_at=instant(scheduled.ended_at or scheduled.created_at),
        )

    def _undelivered(self, move: MoveRecord) -> str:
        """Why its owner has not heard of a grant; empty while there is nothing to say."""
        run = self._runner.active(unit_resource(move)) if move.state is MoveState.GRANTED else None
        failed = [] if run is None else [each.error for each in self._runner.history(run.run_id) if each.error]
        if not failed:
            return ""
        what = f"machine move {move.machine}" if move.machine else f"volumes move {move.volume}"
        return f"{failed[-1]}; if node {move.to} is lost for good, `hawker {what} --reclaim` takes it back"

    def _show(self, move: MoveRecord) -> Move:
        now = self._clock.now()
        rate, paused = _rate(move, now), move.is_paused(now)
        left = move.stored_bytes - move.copied_bytes
        return Move(
            id=move.id,
            app=move.app,
            machine=move.machine,
            volume=move.volume,
            node=self._node,
            to=move.to or move.wanted or "",
            mode=move.mode,
            state=move.state,
            generation=move.generation,
            stored_bytes=move.stored_bytes,
            copied_bytes=min(move.copied_bytes, move.stored_bytes),
            rate=rate,
            eta_s=max(0, left) / rate if rate and move.state in _COPIED_IN and not paused else None,
            paused=paused,
            away_ms=_away_ms(move, now),
            snapshots_left=self._moves.snapshots_left(move),
            waits=move.waits,
            code=Damaged.code if move.damage and move.state is MoveState.ABORTED else "",
            accept_loss=move.accept_loss,
            lost=move.lost,
            back_of=move.back_of or None,
            reclaimed=move.reclaimed,
            reason=self._undelivered(move) or move.reason,
            created_at=instant(move.created_at),
            updated_at=instant(move.updated_at),
        )


def _is_for_later(wish: MoveRequest) -> bool:
    return not wish.dry_run and (wish.at is not None or wish.window is not None)


def _rate(move: MoveRecord, now: float) -> int:
    """Bytes a second since the copy began."""
    began = move.warm_at or move.closed_at
    if began is None or not move.copied_bytes:
        return 0
    until = now if move.state in _COPIED_IN else move.granted_at or move.updated_at
    return int(move.copied_bytes / max(0.001, until - began))


def _away_ms(move: MoveRecord, now: float) -> int | None:
    if move.away_at is None:
        return None
    return max(0, int(1000 * ((now if move.back_at is None else move.back_at) - move.away_at)))


def _spans(asked: MovedBlocksRequest) -> tuple[BlockRange, ...]:
    """In order, and none of them empty. Raises `BadRequest`."""
    spans = tuple(BlockRange(*each) for each in asked.spans)
    ends = [0, *(each.end for each in spans)]
    if any(span.first < end or span.count < 1 for span, end in zip(spans, ends, strict=False)):
        raise BadRequest("spans: they are in order, and each has a block")
    return spans


def _incoming(record: IncomingRecord) -> IncomingMove:
    return IncomingMove(
        state=record.state,
        generation=record.generation,
        copied_bytes=record.copied_bytes,
        compared_bytes=record.compared_bytes,
        root=record.root is not None,
        losses=True,
        memory=record.memory is not None,
        reason=record.reason,
    )
