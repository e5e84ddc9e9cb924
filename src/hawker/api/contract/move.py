"""Moves of machines and volumes to other nodes: the calls of clients, and those that the two nodes of a move make to
each other. All calls between nodes are idempotent and carry the generation that the destination is to own.
"""

from datetime import datetime
from types import NoneType
from typing import Annotated

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.contract.image import PIECE_BYTES
from hawker.api.contract.machine import MachineParams
from hawker.api.contract.market import OrderedApp
from hawker.api.contract.volume import VolumeParams
from hawker.api.route import NoParams, Tag, Unary
from hawker.errors import (
    Conflict,
    Damaged,
    LeaseHeld,
    Moved,
    MoveUnderWay,
    NoDestination,
    NoRoom,
    NotFound,
    NotServed,
    OverShare,
    Unavailable,
    WrongState,
)
from hawker.permission import Action

_PEER_S = 30.0


class MoveParams(msgspec.Struct, frozen=True, kw_only=True):
    move_id: str


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
    cold_start: bool | None = None
    accept_loss: bool | None = None
    mode: str | None = None
    limit_mib_per_s: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] | None = None
    at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    window: str | None = None


class Move(Answer, frozen=True, kw_only=True):
    """A move, as its source tells it. `state` is planned (a dry run), scheduled, preparing, warming, stopping, copying,
    granted, done or aborted; from granted on `to` is the owner. Bytes are those that the volume's file and a kept root
    filesystem store; those that a machine changed meanwhile are copied once more and count again. `rate` is bytes a
    second since the copy began, `eta_s` seconds until it is complete; with `paused` nothing is copied for now.
    `away_ms` is how long the machine has been off for the move. `snapshots_left` are those of the volume that are to
    follow it from this node. `code` is `damaged` for a move that was aborted because
    the disk of its source cannot read all; `reason` names the volume and the byte. One that is scheduled begins at `at`
    or later; `reason` says why it did not when it was due. Its id answers for the move that it became, which has
    another. `back_of` is the move after which a machine did not start, for one that takes it back.

    With `accept_loss`, `lost` are ranges of bytes of the volume that go as zeros, in order: offset and count."""

    id: str
    app: str
    machine: str | None = None
    volume: str | None = None
    node: str
    to: str = ""
    mode: str = "cold"
    state: str
    generation: int
    stored_bytes: int = 0
    copied_bytes: int = 0
    rate: int = 0
    eta_s: float | None = None
    paused: bool = False
    away_ms: int | None = None
    snapshots_left: int = 0
    code: str = ""
    reason: str = ""
    at: datetime | None = None
    window: str | None = None
    accept_loss: bool = False
    lost: tuple[tuple[int, int], ...] = ()
    back_of: str | None = None
    created_at: datetime
    updated_at: datetime


class LimitMoveRequest(Request, frozen=True, kw_only=True):
    """How many MiB a second are copied from now on; 0: as fast as it can, but 100 beside a machine that runs."""

    limit_mib_per_s: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]


class MoveList(Answer, frozen=True, kw_only=True):
    """The newest first."""

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

MOVE_CHANGES = (CANCEL_MOVE, PAUSE_MOVE, RESUME_MOVE)
"""What is ordered of a move by its id alone."""

MOVE_ROUTES = (MOVE_MACHINE, MOVE_FREE_VOLUME, LIST_MOVES, GET_MOVE, *MOVE_CHANGES, LIMIT_MOVE)


# Between the two nodes.


class IncomingRequest(Request, frozen=True, kw_only=True):
    """Hold room for this. `unit` is a `record.move.Delivered` as it is now, sealed under the cluster's key."""

    source: str
    generation: int
    app: OrderedApp
    unit: bytes
    limit_mib_per_s: int = 0


class IncomingMove(Answer, frozen=True, kw_only=True):
    """What the destination has of a move: holding, ready, warm, copied, accepted, refused or dropped. It says copied
    once it has compared all of it. With `root` it takes the root filesystem that the machine keeps, too, and with
    `losses` it keeps what is lost of a volume, and starts no machine with it: an older node does not say so."""

    state: str
    generation: int
    copied_bytes: int = 0
    compared_bytes: int = 0
    root: bool = False
    losses: bool = False
    reason: str = ""


class OutgoingMove(Answer, frozen=True, kw_only=True):
    """What the source says of a move. `stored_bytes` is what there is to be copied; with `hands_over` it may be read
    now, with `closed` nobody writes to it any more. While `paused` the destination copies nothing.
    `limit_mib_per_s` is the newest; None from a node that says none."""

    state: str
    generation: int
    stored_bytes: int = 0
    hands_over: bool = False
    closed: bool = False
    paused: bool = False
    limit_mib_per_s: int | None = None


class DeliverRequest(Request, frozen=True, kw_only=True):
    """`generation` was granted to this node: what is sealed in `unit` is its own."""

    generation: int
    app: OrderedApp
    unit: bytes


class MovedPieceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The first stored bytes from `offset` on, at most 4 MiB; with `root` of the root filesystem that the machine
    keeps, with `snapshot` of that snapshot of the volume, else of the volume."""

    generation: int
    root: bool | None = None
    snapshot: str | None = None
    offset: int = 0
    count: int = PIECE_BYTES


BLOCK_SPAN_LIMIT = 4096


class MovedBlocksRequest(Request, frozen=True, kw_only=True):
    """Blocks of 64 KiB: the first, and how many, in order. `root` and `snapshot`: see `MovedPieceQuery`."""

    generation: int
    root: bool | None = None
    snapshot: str | None = None
    spans: Annotated[tuple[tuple[int, int], ...], msgspec.Meta(max_length=BLOCK_SPAN_LIMIT)]


class ChangedBlocksQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`since` is the mark of an earlier answer. `root`: see `MovedPieceQuery`."""

    generation: int
    root: bool | None = None
    since: str = ""


class ChangedBlocksAnswer(Answer, frozen=True, kw_only=True):
    """Which blocks were written to since that mark: first and count of each span. Unless `known`, any may have been.
    `mark` is for the next question."""

    mark: str = ""
    known: bool = False
    spans: tuple[tuple[int, int], ...] = ()


class MovedSnapshotParams(msgspec.Struct, frozen=True, kw_only=True):
    move_id: str
    snapshot_id: str


class ReleaseSnapshotQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`generation` is that under which the volume left the node."""

    generation: int


OFFER_MOVE = Unary(
    name="offer_move",
    method="PUT",
    path="/internal/v1/moves/{move_id}",
    params=MoveParams,
    body=IncomingRequest,
    response=IncomingMove,
    tag=Tag.NODE,
    summary="Hold room at this node for what is to move here",
    errors=(Conflict, NoRoom, NotServed, Unavailable, WrongState),
    action=Action.WRITE,
    timeout_s=_PEER_S,
)

SHOW_INCOMING = Unary(
    name="show_incoming_move",
    method="GET",
    path="/internal/v1/moves/{move_id}",
    params=MoveParams,
    response=IncomingMove,
    tag=Tag.NODE,
    summary="Show how far a move to this node is",
    errors=(NotFound,),
    timeout_s=5.0,
)

DROP_INCOMING = Unary(
    name="drop_incoming_move",
    method="DELETE",
    path="/internal/v1/moves/{move_id}",
    params=MoveParams,
    response=NoneType,
    tag=Tag.NODE,
    summary="Drop what was held here for a move that ended",
    action=Action.WRITE,
    timeout_s=5.0,
)

ACCEPT_MOVE = Unary(
    name="accept_move",
    method="POST",
    path="/internal/v1/moves/{move_id}/accept",
    params=MoveParams,
    body=DeliverRequest,
    response=IncomingMove,
    tag=Tag.NODE,
    summary="Own what was granted to this node, or refuse it for ever",
    errors=(NotFound, Conflict, NoRoom, Unavailable, WrongState),
    timeout_s=_PEER_S,
)

SHOW_OUTGOING = Unary(
    name="show_outgoing_move",
    method="GET",
    path="/internal/v1/moves/{move_id}/source",
    params=MoveParams,
    response=OutgoingMove,
    tag=Tag.NODE,
    summary="Show what this node, the source of a move, says of it",
    errors=(NotFound,),
    timeout_s=5.0,
)

HAND_VOLUME = Unary(
    name="hand_volume",
    method="GET",
    path="/internal/v1/moves/{move_id}/bytes",
    params=MoveParams,
    query=MovedPieceQuery,
    response=bytes,
    tag=Tag.NODE,
    summary="Hand a piece of a volume to its next node: eight bytes of offset, and what lies there",
    errors=(NotFound, Conflict, Damaged, OverShare, WrongState),
    timeout_s=_PEER_S,
    media="application/octet-stream",
    answer_bytes=PIECE_BYTES + 4096,
)

HAND_BLOCKS = Unary(
    name="hand_volume_blocks",
    method="POST",
    path="/internal/v1/moves/{move_id}/blocks",
    params=MoveParams,
    body=MovedBlocksRequest,
    response=bytes,
    tag=Tag.NODE,
    summary="Hand blocks of a volume to its next node: of each its number in four bytes, and its bytes; none of zeros",
    errors=(NotFound, Conflict, Damaged, OverShare, WrongState),
    timeout_s=_PEER_S,
    media="application/octet-stream",
    answer_bytes=PIECE_BYTES + 4096,
)

DIGEST_BLOCKS = Unary(
    name="digest_volume_blocks",
    method="POST",
    path="/internal/v1/moves/{move_id}/digests",
    params=MoveParams,
    body=MovedBlocksRequest,
    response=bytes,
    tag=Tag.NODE,
    summary="Digest blocks of a volume: up to which in eight bytes, then number and digest of each; none of zeros",
    errors=(NotFound, Conflict, Damaged, OverShare, WrongState),
    timeout_s=_PEER_S,
    media="application/octet-stream",
)

CHANGED_BLOCKS = Unary(
    name="list_changed_blocks",
    method="GET",
    path="/internal/v1/moves/{move_id}/changed",
    params=MoveParams,
    query=ChangedBlocksQuery,
    response=ChangedBlocksAnswer,
    tag=Tag.NODE,
    summary="List the blocks of a volume that changed while it is copied",
    errors=(NotFound, WrongState),
    timeout_s=_PEER_S,
    answer_bytes=16 << 20,
)

RELEASE_SNAPSHOT = Unary(
    name="release_moved_snapshot",
    method="DELETE",
    path="/internal/v1/moves/{move_id}/snapshots/{snapshot_id}",
    params=MovedSnapshotParams,
    query=ReleaseSnapshotQuery,
    response=NoneType,
    tag=Tag.NODE,
    summary="Let go of a snapshot that the volume's new owner has",
    errors=(NotFound,),
    action=Action.WRITE,
    timeout_s=_PEER_S,
)

MOVE_PEER_ROUTES = (
    OFFER_MOVE,
    SHOW_INCOMING,
    DROP_INCOMING,
    ACCEPT_MOVE,
    SHOW_OUTGOING,
    HAND_VOLUME,
    HAND_BLOCKS,
    DIGEST_BLOCKS,
    CHANGED_BLOCKS,
    RELEASE_SNAPSHOT,
)
