"""Moves of machines and volumes to other nodes: the calls of clients."""

from datetime import datetime
from typing import Annotated

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.contract.machine import MachineParams
from hawker.api.contract.volume import VolumeParams
from hawker.api.route import NoParams, Tag, Unary
from hawker.errors import (
    Conflict,
    LeaseHeld,
    Moved,
    MoveUnderWay,
    NoDestination,
    NoRoom,
    NotFound,
    NotServed,
    Unavailable,
    Unprocessable,
    WrongState,
)


class MoveParams(msgspec.Struct, frozen=True, kw_only=True):
    move_id: str
    """The id of the move, a ULID, as the answer to its order gave it."""


class MoveRequest(Request, frozen=True, kw_only=True):
    """`to` is a node; without it one of the machine's region is chosen, or of `region`. `mode` is `warm` (the volume is
    copied while the machine runs, and what it wrote meanwhile while it is off), `cold` (all of it while it is off) or
    `auto`: warm for a machine that runs and has a volume. `limit_mib_per_s` bounds the copy; with 0 or nothing, it goes
    as fast as it can, but beside a machine that runs at 100. With `source` it is moved only if it is at that node. With
    `cold_start` a suspended machine is stopped, moved and left stopped: its memory is dropped. With `accept_loss` what
    the disk cannot read of a volume goes as zeros, and is listed; such a move is cold. A dry run only says where it
    would go and how much is copied, or what the order would be refused for.

    With `at`, at most a year away, it begins then, and with `window` within that, each day (`02:00-04:00`) or on one
    of the week (`sun 02:00-04:00`), in UTC. What cannot begin then is tried for an hour, or in the next window."""

    to: str | None = None
    source: str | None = None
    region: str | None = None
    dry_run: bool | None = None
    """True moves nothing, and the answer says what the move would be."""
    cold_start: bool | None = None
    accept_loss: bool | None = None
    mode: str | None = None
    limit_mib_per_s: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] | None = None
    at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    window: str | None = None


class Move(Answer, frozen=True, kw_only=True):
    """A move, as its source tells it. `state` is planned (a dry run), scheduled, preparing, warming, stopping, copying,
    granted, reclaiming, done or aborted; from granted on `to` is the owner, unless it was taken back from a node that
    is lost: then `reclaimed` is the generation under which `node` owns it again, 0 otherwise. Bytes are those that the
    volume's file and a kept root filesystem store; those that a machine changed meanwhile are copied once more, and
    count again in `rate` alone. `rate` is bytes a second since the copy began, `eta_s` seconds until it is complete;
    with `paused` nothing is copied for now. `waits` says for which move of its app it waits before it begins. `away_ms`
    is how long the machine has been off for the move. `snapshots_left` are those of the volume that are to follow it
    from this node. `code` is `damaged` for a move that was aborted because the disk of its source cannot read all;
    `reason` names the volume and the byte. One that is scheduled begins at `at` or later; `reason` says why it did not
    when it was due. Its id answers for the move that it became, which has another. `back_of` is the move after which a
    machine did not start, for one that takes it back.

    With `accept_loss`, `lost` are ranges of bytes of the volume that go as zeros, in order: offset and count."""

    id: str
    """The id of the move, a ULID; the id of the plan for one that is scheduled; empty for a dry run."""
    app: str
    """The name of the app that has the machine or volume."""
    machine: str | None = None
    """The id of the machine that moves; null for a volume that moves alone."""
    volume: str | None = None
    """The id of the volume that moves; null for a machine without one."""
    node: str
    to: str = ""
    mode: str = "cold"
    """`warm` or `cold`, as it was chosen; `auto` while a scheduled move has not chosen yet."""
    state: str
    generation: int
    """The generation under which the destination will own it, 2 or more; 0 for one that is scheduled."""
    stored_bytes: int = 0
    """Bytes that there are to copy, 0 or more."""
    copied_bytes: int = 0
    """Bytes that are copied, 0 to `stored_bytes`."""
    rate: int = 0
    eta_s: float | None = None
    paused: bool = False
    away_ms: int | None = None
    snapshots_left: int = 0
    reclaimed: int = 0
    waits: str = ""
    code: str = ""
    reason: str = ""
    at: datetime | None = None
    window: str | None = None
    """The window of a scheduled move, as the order wrote it; null for a move without one."""
    accept_loss: bool = False
    lost: tuple[tuple[int, int], ...] = ()
    back_of: str | None = None
    created_at: datetime
    updated_at: datetime


class LimitMoveRequest(Request, frozen=True, kw_only=True):
    """The new limit of the copy, in MiB a second; 0: as fast as it can, but 100 beside a machine that runs."""

    limit_mib_per_s: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]


class TakeBackRequest(Request, frozen=True, kw_only=True):
    """`accept_loss`: what was written since the destination began to own it is given up. `now`: the destination's host
    is known to be off, so nobody waits until it must have let go."""

    accept_loss: bool | None = None
    now: bool | None = None


class MoveList(Answer, frozen=True, kw_only=True):
    """The moves, newest first."""

    moves: tuple[Move, ...]


class ListMovesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`app`, `node` and `state` narrow the list; `node` is where a move is from or to."""

    app: str | None = None
    node: str | None = None
    state: str | None = None


_REFUSED = (
    NotFound,
    Conflict,
    LeaseHeld,
    Moved,
    MoveUnderWay,
    NoDestination,
    NotServed,
    Unavailable,
    WrongState,
)

MOVE_MACHINE = Unary(
    name="move_machine",
    method="POST",
    path="/hawker/v1/apps/{app_name}/machines/{machine_id}/move",
    params=MachineParams,
    body=MoveRequest,
    response=Move,
    tag=Tag.MACHINES,
    summary="Move a machine with its volume to another node",
    status=202,
    errors=_REFUSED,
    body_optional=True,
    strict=True,
)

MOVE_FREE_VOLUME = Unary(
    name="move_volume_to_node",
    method="POST",
    path="/hawker/v1/apps/{app_name}/volumes/{volume_id}/moves",
    params=VolumeParams,
    body=MoveRequest,
    response=Move,
    tag=Tag.VOLUMES,
    summary="Move a free volume to another node",
    status=202,
    errors=_REFUSED,
    body_optional=True,
    strict=True,
)

LIST_MOVES = Unary(
    name="list_moves",
    method="GET",
    path="/hawker/v1/moves",
    params=NoParams,
    query=ListMovesQuery,
    response=MoveList,
    tag=Tag.NODE,
    summary="List the moves of machines and volumes between nodes",
    guarded=False,
)

GET_MOVE = Unary(
    name="get_move",
    method="GET",
    path="/hawker/v1/moves/{move_id}",
    params=MoveParams,
    response=Move,
    tag=Tag.NODE,
    summary="Show a move",
    errors=(NotFound, Unavailable),
    guarded=False,
)

CANCEL_MOVE = Unary(
    name="cancel_move",
    method="POST",
    path="/hawker/v1/moves/{move_id}/cancel",
    params=MoveParams,
    response=Move,
    tag=Tag.NODE,
    summary="Cancel a move: the machine runs again where it was",
    errors=(NotFound, Unavailable, WrongState),
    guarded=False,
)

PAUSE_MOVE = Unary(
    name="pause_move",
    method="POST",
    path="/hawker/v1/moves/{move_id}/pause",
    params=MoveParams,
    response=Move,
    tag=Tag.NODE,
    summary="Pause the copy of a move, for an hour at most",
    errors=(NotFound, Unavailable, WrongState),
    guarded=False,
)

RESUME_MOVE = Unary(
    name="resume_move",
    method="POST",
    path="/hawker/v1/moves/{move_id}/resume",
    params=MoveParams,
    response=Move,
    tag=Tag.NODE,
    summary="Go on with a move that was paused",
    errors=(NotFound, Unavailable, WrongState),
    guarded=False,
)

LIMIT_MOVE = Unary(
    name="limit_move",
    method="PATCH",
    path="/hawker/v1/moves/{move_id}",
    params=MoveParams,
    body=LimitMoveRequest,
    response=Move,
    tag=Tag.NODE,
    summary="Change how fast a move copies",
    errors=(NotFound, Unavailable, WrongState),
    strict=True,
    guarded=False,
)

RECLAIM_MOVE = Unary(
    name="reclaim_move",
    method="POST",
    path="/hawker/v1/moves/{move_id}/reclaim",
    params=MoveParams,
    body=TakeBackRequest,
    response=Move,
    tag=Tag.NODE,
    summary="Take back what was granted to a node that is lost",
    status=202,
    errors=(NotFound, Conflict, NoRoom, NotServed, Unavailable, Unprocessable, WrongState),
    body_optional=True,
    strict=True,
)

MOVE_CHANGES = (CANCEL_MOVE, PAUSE_MOVE, RESUME_MOVE)
"""What is ordered of a move by its id alone."""

MOVE_ROUTES = (MOVE_MACHINE, MOVE_FREE_VOLUME, LIST_MOVES, GET_MOVE, *MOVE_CHANGES, LIMIT_MOVE, RECLAIM_MOVE)
