"""What a node stores of moves of machines and volumes to another node: the move at its source, what is on its way to
this node, the grants by which owners change, and the signposts to where something went.

A unit is a machine with its volume and the root filesystem that it keeps, under the machine's id, or a volume that no
machine has, under its own.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from hawker.errors import Moved, MoveUnderWay
from hawker.fsm.contract import Resource
from hawker.ids import AppName, MachineId, NodeId, Version, VolumeId
from hawker.node import Resources
from hawker.record.app import Pinned
from hawker.record.machine import EventRecord, MachineRecord, Running, VersionRecord
from hawker.record.node import FailoverRecords
from hawker.record.volume import SealedKey, SnapshotRecord, VolumeRecord
from hawker.runtime.saved_memory import SavedBy
from hawker.store.contract import Bucket, Reader

RETIRED_KEPT_S = 86_400.0
"""How long the source keeps its file of a volume that went: seconds."""

SIGNPOSTS_KEPT_S = 30 * 86_400.0

TRIED_AT_MOST_S = 86_400.0
"""How long after it came a machine that does not start still goes back: seconds."""

BUSY = "busy: "
"""How the reason of a move begins that was aborted because others of its app moved for too long: it may be ordered
again."""

PAUSED_AT_MOST_S = 3600.0
"""A pause ends by itself after so many seconds, because the move holds room at both nodes."""


class MoveState(StrEnum):
    """Where a move is, at its source."""

    PREPARING = "preparing"  # the destination is chosen, and gets room and image
    WARMING = "warming"  # the volume is copied while the machine runs
    STOPPING = "stopping"
    COPYING = "copying"  # nobody writes to the volume
    GRANTED = "granted"  # the destination is the owner, and has to hear of it
    RECLAIMING = "reclaiming"  # the destination is lost: the source is the owner again, and waits for it to let go
    DONE = "done"
    ABORTED = "aborted"  # the source is the owner; the machine is as it was


PLANNED = "planned"
"""The state that a dry run answers; no record has it."""
SCHEDULED = "scheduled"
"""The state of a move that is to begin later; no record has it."""
OPEN_MOVES = frozenset(MoveState) - {MoveState.DONE, MoveState.ABORTED}
UNTOUCHED = frozenset({MoveState.PREPARING, MoveState.WARMING})
"""In these the machine is as it was before the move."""

CLOSED_MOVES = frozenset({MoveState.COPYING, MoveState.GRANTED, MoveState.RECLAIMING})
"""In these nobody at the source may write to the volume."""


class MoveMode(StrEnum):
    """How the bytes are copied."""

    COLD = "cold"  # while the machine is off
    WARM = "warm"  # while it runs, and what it wrote meanwhile while it is off


class KeptRoot(msgspec.Struct, frozen=True, kw_only=True):
    """The writable layer that a machine keeps (`rootfs.persist`), as a file that moves with it. `layer` is its name at
    every node; with `guest_written` a microVM wrote its blocks, and no host may mount it."""

    layer: str
    size_bytes: int  # bytes of the filesystem, 1 or more; the file stores no more than that
    guest_written: bool = False


class MemoryFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of what a suspended machine goes on from. `name` is its driver's own."""

    name: str
    size_bytes: int  # bytes of the file, 0 or more


class KeptMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a suspended machine, as files that move with it: nobody writes to them while a move has them.
    `image` is a digest of the image's file, which its guest has read some of; empty until it is known. `running` is the
    instance that goes on."""

    saved_by: SavedBy
    files: tuple[MemoryFile, ...]
    image: str = ""
    running: Running

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.files)


class MoveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One move, at its source; `id` is that of the run that began it. `generation` is what the destination will own.
    `ran`: the machine was running, and is to run afterwards. `away_at` and `back_at` are when the machine stopped and
    when another instance of it was on its way; from `closed_at` on nobody wrote to its files. `warm_at` is when the
    copy began beside the machine. Bytes are those that its files store; times are Unix seconds. `drops_memory`: the
    machine was suspended, and is stopped for the move. `memory` is that of one which stays suspended, `root` what the
    machine keeps of its root filesystem; None without either. `to` is empty until a node was chosen; with
    `limit_mib_per_s` 0 the copy goes as fast as it can, but at 100 beside a machine that runs. Until `paused_until`
    nothing is copied, and the machine is not stopped for the move. `damage` says what of its files the source's disk
    cannot read; empty when nothing is known of that. With `accept_loss` what cannot be read of the volume goes as
    zeros; `lost` has it before: ranges of bytes, in order, offset and count. `back_of` is the move after which the
    machine did not start, and because of which it goes back; empty for a move that somebody ordered.

    `heard_at` is when the destination was known to own it. `reclaimed` is the generation under which the source took it
    back from a destination that was lost, 0 when it did not; with `reclaims_now` it waits for nobody. `alone`: it
    begins in its app's turn; `has_turn`: the app's home has said that it is this move's."""

    id: str
    app: AppName
    machine: MachineId | None = None
    volume: VolumeId | None = None
    root: KeptRoot | None = None
    memory: KeptMemory | None = None
    to: NodeId = NodeId("")
    wanted: NodeId | None = None
    region: str | None = None  # region where the destination was asked to be; None: any
    limit_mib_per_s: int = 0
    mode: MoveMode = MoveMode.COLD
    state: MoveState = MoveState.PREPARING
    generation: int
    ran: bool = False
    drops_memory: bool = False
    stored_bytes: int = 0  # bytes that its files stored when the copy began, 0 or more
    copied_bytes: int = 0  # bytes that were copied so far, 0 or more, as the destination last told
    warm_at: float | None = None
    away_at: float | None = None
    closed_at: float | None = None
    granted_at: float | None = None
    back_at: float | None = None
    heard_at: float | None = None
    reclaimed: int = 0
    reclaims_now: bool = False
    paused_until: float | None = None
    damage: str = ""
    accept_loss: bool = False
    lost: tuple[tuple[int, int], ...] = ()
    back_of: str = ""
    alone: bool = False
    has_turn: bool = False
    waits: str = ""  # text for people about the move of its app that it waits for; empty once it does not wait
    reason: str = ""  # reason why it was aborted, for people; empty otherwise
    created_at: float
    updated_at: float

    @property
    def unit(self) -> str:
        unit = self.machine or self.volume
        assert unit is not None, "a move is of something"
        return unit

    def is_paused(self, now: float) -> bool:
        return self.paused_until is not None and now < self.paused_until and self.state in OPEN_MOVES

    @property
    def lost_bytes(self) -> int:
        return sum(count for _, count in self.lost)

    @property
    def hands_over(self) -> bool:
        """Whether the destination may read the volume's file now."""
        warm = self.mode is MoveMode.WARM and self.state in (MoveState.WARMING, MoveState.STOPPING)
        return warm or self.state in CLOSED_MOVES


class ScheduledMove(msgspec.Struct, frozen=True, kw_only=True):
    """A move that was ordered for later, at the node that has the machine or volume. It begins when `at` has come, and
    is tried again until `until`; one with a window is then due in the next one. Once it has begun, `move` names it.
    Times are Unix seconds. The rest is as in the order: see `MoveRequest`."""

    id: str  # id of the plan, a ULID; the move that it becomes has another one
    app: AppName
    machine: MachineId | None = None
    volume: VolumeId | None = None  # id of a volume that no machine has; None for a machine's move
    to: NodeId | None = None
    region: str | None = None  # region where it is to go; None: the unit's own region
    mode: str | None = None  # `auto`, `cold` or `warm`; None: auto
    limit_mib_per_s: int = 0  # MiB a second; 0: as fast as it can, but 100 beside a machine that runs
    cold_start: bool = False  # a suspended machine is stopped for the move
    accept_loss: bool = False  # bytes of a volume that the disk cannot read go as zeros
    at: float
    until: float
    window: str = ""  # window such as `sun 02:00-04:00`, in UTC; empty for a move with a time of its own
    move: str = ""
    ended_at: float | None = None  # when it became a move, or was given up; None before that
    reason: str = ""  # reason why it did not begin when it was due last, for people; empty for none
    created_at: float


class MovePointer(msgspec.Struct, frozen=True, kw_only=True):
    """The open move of a machine, or of a volume, also of one that goes with its machine."""

    move: str  # id of the move


class TurnRecord(msgspec.Struct, frozen=True, kw_only=True):
    """At an app's home: whose turn it is among the moves of the app's machines and volumes, over all nodes. `node` is
    the move's source, which asks again while the move is under way. Others may have the turn after `until`. Since
    `since` moves of this node have had it without a break; 0 is not known. Both are Unix seconds, by the home's
    clock."""

    move: str  # id of the move
    node: NodeId
    until: float
    since: float = 0.0


class GrantRecord(msgspec.Struct, frozen=True, kw_only=True):
    """From the durable commit of this record on, the node `to` owns the unit under `generation`, whether it has heard
    of it or not."""

    unit: str  # id of the machine, or of a volume that moves alone
    generation: int
    to: NodeId
    move: str  # id of the move
    at: float  # Unix seconds when the owner changed


class MovedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A signpost: the machine or volume was here, and went to the node `to`."""

    app: AppName
    to: NodeId
    generation: int  # under which the destination owns it, 2 or more
    at: float  # Unix seconds; the signpost is removed `SIGNPOSTS_KEPT_S` later


class IncomingState(StrEnum):
    """Where the move of what comes to this node is."""

    HOLDING = "holding"  # room is held, the image is fetched
    READY = "ready"
    WARM = "warm"  # but for what changes now, the draft is as the source; counts for nothing
    COPIED = "copied"  # the draft is whole and on disk; counts for nothing yet
    ACCEPTED = "accepted"
    REFUSED = "refused"  # for ever, whatever comes late
    DROPPED = "dropped"


AWAITED = frozenset({IncomingState.HOLDING, IncomingState.READY, IncomingState.WARM, IncomingState.COPIED})
FILLING = frozenset({IncomingState.READY, IncomingState.WARM})


class IncomingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What another node is about to move here. `holds` is room of this node until it is accepted or dropped. `machine`
    and `volume` are as the source had them when it asked, and so are `root` and `memory`. `upto` is how far the draft
    of the volume is filled and on disk, `root_upto` how far that of the root filesystem and `memory_upto`, by
    name, those of the memory's files; `compared_bytes` are those of which both nodes compared a digest. `settled`: its
    source has said that it can never take it back."""

    move: str  # id of the move, given by its source
    source: NodeId
    app: AppName
    generation: int  # under which this node will own it, 2 or more
    machine: MachineRecord | None = None
    volume: VolumeRecord | None = None
    root: KeptRoot | None = None
    memory: KeptMemory | None = None
    holds: Resources = Resources()
    limit_mib_per_s: int = 0  # MiB a second that the copy may take; 0 is no limit
    state: IncomingState = IncomingState.HOLDING
    upto: int = 0
    root_upto: int = 0
    memory_upto: dict[str, int] = {}
    copied_bytes: int = 0  # bytes received so far, 0 or more
    compared_bytes: int = 0
    back_of: str = ""  # id of the move that this one takes back: see `MoveRecord`
    settled: bool = False  # the source never takes it back: this node asks it no more
    reason: str = ""  # reason why it was refused or dropped, for people; empty otherwise
    created_at: float  # Unix seconds, by the clock of this node

    @property
    def unit(self) -> str:
        if self.machine is not None:
            return self.machine.id
        assert self.volume is not None, "a move is of something"
        return self.volume.id


class RetiredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The source's file of what is whole elsewhere, and what opens it; removed after `until`: Unix seconds."""

    volume: str  # id of the volume, or of the machine whose kept root filesystem or memory it is
    generation: int  # under which the destination owns it, 2 or more
    until: float
    key: SealedKey | None = None
    layer: str = ""  # name of the layer, for a kept root filesystem; empty for another file
    memory: str = ""  # name of the file of the machine's memory; empty for another file


class ComingSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a volume that moved here, which another node has still: `source`, which is asked for it by the
    move and the `generation` by which the volume left there. `upto` is how far its draft is filled and on disk, in
    bytes. `holds` is room of this node for all of it, from when it begins to come until it has arrived or will not.
    Once it has `arrived`, it is this node's own, and `source` has yet to hear of it."""

    snapshot: SnapshotRecord
    source: NodeId
    move: str  # id of the move
    generation: int
    upto: int = 0
    holds: Resources = Resources()
    arrived: bool = False


class CarriedSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot of a volume, as the volume's next owner is told of it. `key` opens an encrypted one; empty for
    another one."""

    coming: ComingSnapshot
    key: bytes = b""


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """All that the owner of a unit has of it, as it goes to the next one. `secrets` are those that the machine's
    version has, opened, and `volume_key` opens an encrypted volume; both are there only once it was granted, and so are
    the `snapshots` of the volume that are to follow it. It travels sealed."""

    machine: MachineRecord | None = None
    versions: tuple[VersionRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()
    secrets: dict[str, str] = {}
    volume: VolumeRecord | None = None
    volume_key: bytes = b""
    root: KeptRoot | None = None
    memory: KeptMemory | None = None
    snapshots: tuple[CarriedSnapshot, ...] = ()
    failover: FailoverRecords = FailoverRecords()
    ran: bool = False  # the machine was running, and is to be started at the destination
    back_of: str = ""  # id of the move that this one takes back: see `MoveRecord`


class TrialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that came to this node and has not started here yet: it goes back to the node `source` if it does not
    start. A machine that came back that way has no such record."""

    move: str  # id of the move by which it came
    source: NodeId
    version: Version  # version with which it came: once it has another one, what fails is not the move
    started: str = ""  # id of the event of its newest start, as it came; empty when its events say of none
    tried: int = 1  # how many starts were begun here, 1 or more
    until: float  # Unix seconds; from then on the machine stays here


def newest_start(events: Iterable[EventRecord]) -> str:
    """The id of the last of them that says that it started; empty without one. Old events go, so a count says less."""
    return max((event.id for event in events if (event.type, event.status) == ("start", "started")), default="")


class RetiredUnit(msgspec.Struct, frozen=True, kw_only=True):
    """What the source had of a unit when it went, beside its files: with it the unit comes back as it was. Removed
    after `until`: Unix seconds."""

    machine: MachineRecord | None = None
    versions: tuple[VersionRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()
    secrets: Pinned | None = None  # secrets that the machine's version had, sealed by this node
    volume: VolumeRecord | None = None
    failover: FailoverRecords = FailoverRecords()
    until: float

    @property
    def holds(self) -> Resources:
        held = [each.holds for each in (self.machine, self.volume) if each is not None]
        return held[0] if len(held) == 1 else held[0].plus(held[1])


MOVES = Bucket("moves", MoveRecord)  # move id
SCHEDULED_MOVES = Bucket("scheduled_moves", ScheduledMove)  # its own id, a ULID
OPEN_MOVE_OF = Bucket("open_moves", MovePointer)  # machine id, volume id
TURNS = Bucket("move_turns", TurnRecord)  # app name
GRANTS = Bucket("grants", GrantRecord)  # unit; until it comes back
MOVED = Bucket("moved", MovedRecord)  # machine id, volume id
INCOMING = Bucket("incoming", IncomingRecord)  # move id
TRIALS = Bucket("trials", TrialRecord)  # machine id
RETIRED = Bucket("retired_volumes", RetiredRecord)  # volume or machine id/generation, and the name of a memory's file
RETIRED_UNITS = Bucket("retired_units", RetiredUnit)  # move id

COMING_SNAPSHOTS = Bucket("snapshots_coming", ComingSnapshot)  # snapshot id; until its former node let it go


def coming_snapshots(reader: Reader, volume_id: VolumeId) -> list[ComingSnapshot]:
    """Of this volume, the newest first."""
    found = [each for _, each in reader.scan(COMING_SNAPSHOTS) if each.snapshot.volume == volume_id]
    return sorted(found, key=lambda each: (each.snapshot.created_at, each.snapshot.id), reverse=True)


def awaited_snapshots(reader: Reader, volume_id: VolumeId) -> list[ComingSnapshot]:
    """Those that have not arrived."""
    return [each for each in coming_snapshots(reader, volume_id) if not each.arrived]


def held_by_incoming(reader: Reader) -> Resources:
    """By what is on its way here, and by the snapshots that follow it."""
    total = Resources()
    for _, incoming in reader.scan(INCOMING):
        total = total.plus(incoming.holds)
    for _, coming in reader.scan(COMING_SNAPSHOTS):
        total = total.plus(coming.holds)
    return total


INCOMING_KIND = "move"
SNAPSHOTS_KIND = "snapshots"


def snapshots_resource(volume_id: VolumeId) -> Resource:
    """Of its own kind: the volume can be changed while its snapshots follow it."""
    return Resource(kind=SNAPSHOTS_KIND, id=volume_id)


def incoming_resource(move_id: str) -> Resource:
    return Resource(kind=INCOMING_KIND, id=move_id)


def check_here(reader: Reader, *ids: str | None) -> None:
    """Raises `MoveUnderWay` while a machine or volume is on its way to another node, `Moved` once it has gone."""
    for each in ids:
        if each is None:
            continue
        went = reader.get(MOVED, each)
        if went is not None:
            raise Moved(f"{each} has moved to node {went.to}", node=went.to)
        opened = reader.get(OPEN_MOVE_OF, each)
        if opened is not None:
            raise MoveUnderWay(
                f"{each} is being moved to another node: wait for its end, or end it with"
                f" `hawker moves cancel {opened.move}`"
            )


def check_not_gone(reader: Reader, id: str, app: AppName) -> None:
    """Raises `Moved` once another node owns it, if it is of this app."""
    went = reader.get(MOVED, id)
    if went is not None and went.app == app:
        raise Moved(f"{id} has moved to node {went.to}", node=went.to)


def is_granted(reader: Reader, unit: str) -> bool:
    """Whether another node owns it."""
    return reader.get(GRANTS, unit) is not None
