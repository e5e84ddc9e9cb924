"""What the two nodes of a move ask each other. All calls are idempotent and carry the generation that the destination
is to own.
"""

from types import NoneType
from typing import Annotated

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.contract.image import PIECE_BYTES
from hawker.api.contract.market import OrderedApp
from hawker.api.contract.move import MoveParams
from hawker.api.route import Tag, Unary
from hawker.errors import (
    Conflict,
    Damaged,
    Moved,
    NoRoom,
    NotFound,
    NotServed,
    OverShare,
    Unavailable,
    WrongState,
)
from hawker.permission import Action

_PEER_S = 30.0


class IncomingRequest(Request, frozen=True, kw_only=True):
    """Hold room for this. `unit` is a `record.move.Delivered` as it is now, sealed under the cluster's key."""

    source: str
    """The id of the node that has the machine or volume."""
    generation: int
    """The generation under which the destination will own the machine or volume."""
    app: OrderedApp
    unit: bytes
    limit_mib_per_s: int = 0
    """The most MiB a second that the copy may take; 0: as fast as it can."""


class IncomingMove(Answer, frozen=True, kw_only=True):
    """What the destination has of a move: holding, ready, warm, copied, accepted, refused or dropped. It says copied
    once it has compared all of it. With `root` it takes the root filesystem that the machine keeps, too, and with
    `losses` it keeps what is lost of a volume, and starts no machine with it; with `memory` it takes the memory of a
    suspended machine, too: an older node does not say so."""

    state: str
    """One of the seven words above."""
    generation: int
    """The generation under which the destination will own the machine or volume, or owns it."""
    copied_bytes: int = 0
    """Bytes that the destination has received, 0 or more."""
    compared_bytes: int = 0
    """Bytes of them of which both nodes compared a digest, 0 or more."""
    root: bool = False
    losses: bool = False
    memory: bool = False
    reason: str = ""
    """The reason why the move was refused or dropped, for people; empty otherwise."""


class OutgoingMove(Answer, frozen=True, kw_only=True):
    """What the source says of a move. `stored_bytes` is what there is to be copied; with `hands_over` it may be read
    now, with `closed` nobody writes to it any more. While `paused` the destination copies nothing.
    `limit_mib_per_s` is the newest; None from a node that says none. `reclaimed` is the generation under which the
    source took it back, 0 when it did not; then `snapshots` are those of the volume that it has and keeps. With
    `settled` it did not, and never can, whatever happens to it; an older node does not say so."""

    state: str
    """The state of the move at its source: a word of `Move.state`."""
    generation: int
    """The generation under which the destination will own the machine or volume."""
    stored_bytes: int = 0
    hands_over: bool = False
    closed: bool = False
    paused: bool = False
    limit_mib_per_s: int | None = None
    reclaimed: int = 0
    snapshots: tuple[str, ...] = ()
    settled: bool = False
    to: str = ""
    """The id of the destination that is chosen now; empty before that, and from an older node."""


class DeliverRequest(Request, frozen=True, kw_only=True):
    """`generation` was granted to this node: what is sealed in `unit` is its own."""

    generation: int
    app: OrderedApp
    unit: bytes


class MovedPieceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The first stored bytes from `offset` on, at most 4 MiB; with `root` of the root filesystem that the machine
    keeps, with `snapshot` of that snapshot of the volume, with `memory` of that file of the suspended machine, else of
    the volume."""

    generation: int
    """The generation of the move, 1 or more; with another one nothing is found (404)."""
    root: bool | None = None
    snapshot: str | None = None
    memory: str | None = None
    offset: int = 0
    count: int = PIECE_BYTES
    """How many bytes from `offset` on are looked at, 1 or more."""


BLOCK_SPAN_LIMIT = 4096


class MovedBlocksRequest(Request, frozen=True, kw_only=True):
    """Blocks of 64 KiB of a file, as `spans`: the number of the first block and how many, in order. `root`, `snapshot`
    and `memory`: see `MovedPieceQuery`."""

    generation: int
    """The generation of the move, 1 or more; with another one nothing is found (404)."""
    root: bool | None = None
    snapshot: str | None = None
    memory: str | None = None
    spans: Annotated[tuple[tuple[int, int], ...], msgspec.Meta(max_length=BLOCK_SPAN_LIMIT)]


class ChangedBlocksQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`since` is the mark of an earlier answer. `root` and `memory`: see `MovedPieceQuery`."""

    generation: int
    """The generation of the move, 1 or more; with another one nothing is found (404)."""
    root: bool | None = None
    memory: str | None = None
    since: str = ""


class ChangedBlocksAnswer(Answer, frozen=True, kw_only=True):
    """Which blocks were written to since that mark: first and count of each span. Unless `known`, any may have been.
    `mark` is for the next question."""

    mark: str = ""
    known: bool = False
    spans: tuple[tuple[int, int], ...] = ()
    """The blocks of 64 KiB, in order, as pairs: the number of the first block, and how many."""


class MovedSnapshotParams(msgspec.Struct, frozen=True, kw_only=True):
    move_id: str
    """The id of the move, a ULID."""
    snapshot_id: str
    """The id of a snapshot of the volume that moved."""


class ReleaseSnapshotQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`generation` is that under which the volume left the node."""

    generation: int


class OfferedSnapshotsRequest(Request, frozen=True, kw_only=True):
    """Snapshots of a volume that was taken back from this node. `unit` is a tuple of `record.move.CarriedSnapshot`,
    sealed under the cluster's key: the move and the generation in each are those by which it is asked for here."""

    app: str
    """The name of the volume's app."""
    volume: str
    """The id of the volume; snapshots of another volume are passed over."""
    unit: bytes


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

OFFER_SNAPSHOTS = Unary(
    name="offer_snapshots",
    method="POST",
    path="/internal/v1/moves/{move_id}/snapshots",
    params=MoveParams,
    body=OfferedSnapshotsRequest,
    response=NoneType,
    tag=Tag.NODE,
    summary="Tell the owner of a volume that was taken back which snapshots of it the node has that lost it",
    errors=(NotFound, Moved, Unavailable, WrongState),
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
    OFFER_SNAPSHOTS,
)
