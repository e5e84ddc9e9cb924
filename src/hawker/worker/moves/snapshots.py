"""Snapshots of a volume that has moved: they travel after it, one at a time and behind all moves, from the node that
has them to the volume's owner, where the flow `bring_snapshots` runs. Whoever has one keeps it until the owner has it
on disk and in a durable record. A node from which a volume was taken back offers the owner those that it has.

Invariants: a snapshot comes into room that is held for all of it. From the grant of a volume on, nothing arrives at the
node that granted it, so what the grant says of snapshots stays true until its new owner has heard.
"""

from typing import Any

import msgspec

from hawker.api.contract.move import MoveParams
from hawker.api.contract.move_peer import (
    OFFER_SNAPSHOTS,
    RELEASE_SNAPSHOT,
    SHOW_OUTGOING,
    MovedSnapshotParams,
    OfferedSnapshotsRequest,
    ReleaseSnapshotQuery,
)
from hawker.errors import Fault, HawkerError, Moved, NoRoom, NotFound, Unavailable, WrongState
from hawker.failpoint import inside
from hawker.fsm.contract import Backoff, Done, Flow, HandOff, Outcome, Retry, Step
from hawker.ids import AppName, NodeId, SnapshotId, VolumeId
from hawker.log import bind
from hawker.node import Resources, shortfall, shortfall_text
from hawker.record.move import (
    AWAITED,
    COMING_SNAPSHOTS,
    GRANTS,
    INCOMING,
    MOVED,
    MOVES,
    OPEN_MOVES,
    CarriedSnapshot,
    ComingSnapshot,
    Delivered,
    IncomingRecord,
    IncomingState,
    MoveRecord,
    awaited_snapshots,
    check_not_gone,
    coming_snapshots,
    snapshots_resource,
)
from hawker.record.node import hold, used
from hawker.record.volume import (
    GB,
    GONE_SNAPSHOTS,
    GONE_VOLUMES,
    SNAPSHOTS,
    SNAPSHOTS_BY_VOLUME,
    VOLUMES,
    SnapshotKey,
    SnapshotRecord,
    SnapshotStatus,
)
from hawker.store.contract import Durability, Reader, Tx
from hawker.volume.disks import CopyRoom, check_room
from hawker.volume.moved_files import MovedFile
from hawker.volume.snapshots import let_go
from hawker.worker.lifecycle.deps import Context, FlowDeps
from hawker.worker.lifecycle.draft import FileDraft, Upto
from hawker.worker.moves.unit import files_of

SNAPSHOT_MIB_PER_S = 50
"""The speed in MiB/s at which a snapshot travels at most."""

_COMPARED_FASTER = 4  # than it is copied: it is read, and does not travel
_BEHIND_S = 1.0  # how often it looks whether moves to this node have ended
_MIB = 1 << 20
_ELSEWHERE = "it is to come from elsewhere now"
_ASKED = 900  # times, of one run, before the next takes over
_OWNERS = 16  # of a volume, one after the other, that are told of snapshots at once

_CARRIED = msgspec.msgpack.Decoder(tuple[CarriedSnapshot, ...])
_log = bind("hawker.moves")


class BringInput(msgspec.Struct, frozen=True, kw_only=True):
    """The run's resource names the volume; what comes is in records."""


# At a node that a volume leaves.


def carried_snapshots(deps: FlowDeps, move: MoveRecord) -> tuple[CarriedSnapshot, ...]:
    """The snapshots that a volume's new owner is told of: those that are here, and those that this node was to have and
    others have still."""
    if move.volume is None:
        return ()
    here = _carried_from_here(deps, move.volume, move.id, move.generation)
    away = awaited_snapshots(deps.store, move.volume)
    return (*here, *filter(None, (_carried(deps, each) for each in away)))


def _carried_from_here(
    deps: FlowDeps, volume_id: VolumeId, move_id: str, generation: int
) -> tuple[CarriedSnapshot, ...]:
    me = deps.others.there.me
    here = [
        ComingSnapshot(snapshot=each, source=me, move=move_id, generation=generation)
        for each in _whole(deps.store, volume_id)
    ]
    return tuple(filter(None, (_carried(deps, each) for each in here)))


def _carried(deps: FlowDeps, coming: ComingSnapshot) -> CarriedSnapshot | None:
    """None for one whose key cannot be opened: it stays, and its volume goes all the same."""
    key, keys, opened = coming.snapshot.key, deps.volume_keys, b""
    try:
        opened = b"" if key is None or keys is None else keys.open(key)
    except Fault as error:
        _log.warning("snapshot cannot follow", extra={"snapshot": coming.snapshot.id, "error": str(error)})
        return None
    return CarriedSnapshot(coming=msgspec.structs.replace(coming, upto=0, holds=Resources()), key=opened)


def _whole(reader: Reader, volume_id: VolumeId) -> list[SnapshotRecord]:
    """Those of the volume that are here and are kept."""
    keys = [key.id for _, key in reader.scan(SNAPSHOTS_BY_VOLUME, f"{volume_id}/")]
    there = [record for key in keys if (record := reader.get(SNAPSHOTS, key)) is not None]
    return [each for each in there if each.status is SnapshotStatus.CREATED and each.kept_until > each.created_at]


def snapshots_left(reader: Reader, move: MoveRecord) -> int:
    """The number of snapshots that are to follow the volume from here, or would once it is granted."""
    if move.volume is None or not (went_by(reader, move) or move.state in OPEN_MOVES):
        return 0
    return len(_whole(reader, move.volume))


def snapshots_kept(reader: Reader, volume_id: VolumeId) -> tuple[SnapshotId, ...]:
    """The snapshots of the volume that are here."""
    return tuple(each.id for each in _whole(reader, volume_id))


def went_by(reader: Reader, move: MoveRecord) -> bool:
    """Whether this move is the last by which its volume left this node."""
    post = None if move.volume is None else reader.get(MOVED, move.volume)
    return post is not None and post.generation == move.generation


def leave_snapshots(tx: Tx, volume_id: VolumeId) -> None:
    """Leaves the snapshots that were to come here to the volume's new owner, which asks for them itself."""
    for each in awaited_snapshots(tx, volume_id):
        _comes_no_more(tx, each)


def _left_by(reader: Reader, move_id: str, generation: int) -> VolumeId:
    """The volume that left this node by that move, granted or taken back, under that generation, and has not been here
    since. Raises `NotFound`."""
    move, came = reader.get(MOVES, move_id), reader.get(INCOMING, move_id)
    volume = came.volume.id if came is not None and came.volume is not None else None
    volume = volume if move is None else move.volume
    post = None if volume is None else reader.get(MOVED, volume)
    if volume is None or post is None or post.generation != generation:
        raise NotFound(f"move {move_id:.40} has no snapshots that are to follow it any more")
    return volume


def handed_snapshot(reader: Reader, move_id: str, generation: int, snapshot_id: str) -> MovedFile:
    """The file of a snapshot, which the volume's owner may read. Raises `NotFound`."""
    record = reader.get(SNAPSHOTS, SnapshotId(snapshot_id))
    if record is None or record.volume != _left_by(reader, move_id, generation):
        raise NotFound(f"snapshot {snapshot_id:.40} does not follow by move {move_id:.40}")
    return MovedFile(record.id)


def release_snapshot(tx: Tx, move_id: str, generation: int, snapshot_id: str) -> None:
    """The volume's owner has it durably: it is to go here. Raises `NotFound` for what came too late: the volume has
    been here again."""
    volume_id, record = _left_by(tx, move_id, generation), tx.get(SNAPSHOTS, SnapshotId(snapshot_id))
    if record is not None and record.volume == volume_id:
        let_go(tx, record)


async def offer_snapshots(deps: FlowDeps) -> None:
    """Tell the owners of volumes that were taken back from this node of those that are here still: they ask for them.
    Asked again as long as any is here, which costs nothing where it is known. A node that does not answer is not asked
    twice."""
    silent = set[NodeId]()
    for _, came in list(deps.store.scan(INCOMING)):
        made = deps.store.get(GRANTS, came.unit) if came.state is IncomingState.REFUSED else None
        if came.volume is None or made is None or made.move != came.move:
            continue
        carried = _carried_from_here(deps, came.volume.id, came.move, made.generation)
        if carried and came.source not in silent and not await _offer(deps, came, came.volume.id, carried):
            silent.add(came.source)


async def _offer(
    deps: FlowDeps, came: IncomingRecord, volume_id: VolumeId, carried: tuple[CarriedSnapshot, ...]
) -> bool:
    """Whether there was an answer. The volume may have gone on from who took it back."""
    others, asked = deps.others.there, came.source
    unit = others.seal(msgspec.msgpack.encode(carried))
    body = OfferedSnapshotsRequest(app=came.app, volume=volume_id, unit=unit)
    for _ in range(_OWNERS):
        try:
            await others.caller(asked).call(OFFER_SNAPSHOTS, params=MoveParams(move_id=came.move), body=body)
            return True
        except Moved as error:
            if error.node in ("", others.me):
                return True
            asked = NodeId(error.node)
        except HawkerError as error:  # it is asked again
            fields = {"volume": volume_id, "node": asked, "error": str(error)}
            _log.info("snapshots of a volume that was taken back wait here", extra=fields)
            return not error.retry
    return True


# At the volume's new owner.


def enter_snapshots(tx: Tx, deps: FlowDeps, unit: Delivered) -> None:
    """Enters the snapshots that are to follow a volume, in the transaction that owns it. A snapshot that was here
    before and has not gone since is here already."""
    volume = unit.volume
    if volume is None:
        return
    for each in unit.snapshots:
        _enter(tx, deps, each)
    if coming_snapshots(tx, volume.id):
        begin_bringing(tx, deps, volume.id)


def _enter(tx: Tx, deps: FlowDeps, carried: CarriedSnapshot) -> None:
    coming = _sealed(deps, carried)
    mine = tx.get(SNAPSHOTS, coming.snapshot.id)
    if mine is not None:
        tx.put(SNAPSHOTS, mine.id, msgspec.structs.replace(mine, kept_until=coming.snapshot.kept_until))
        coming = msgspec.structs.replace(coming, arrived=True)
    if coming.source != deps.others.there.me:
        known = tx.get(COMING_SNAPSHOTS, coming.snapshot.id)
        hold(tx, Resources() if known is None else known.holds, coming.holds)
        tx.put(COMING_SNAPSHOTS, coming.snapshot.id, coming)


async def expect_snapshots(deps: FlowDeps, offered: OfferedSnapshotsRequest) -> None:
    """Expects the snapshots of a volume that was taken back from a node that has returned: it has them. Durably. Raises
    `Moved` when another node owns the volume, `NotFound` when it was never here."""
    carried = _CARRIED.decode(deps.others.there.open(offered.unit))
    volume_id, app = VolumeId(offered.volume), AppName(offered.app)

    def apply(tx: Tx) -> None:
        check_not_gone(tx, volume_id, app)
        volume = tx.get(VOLUMES, volume_id) or tx.get(GONE_VOLUMES, volume_id)
        if volume is None or volume.app != app:
            raise NotFound(f"volume {volume_id:.40} is not known here")
        new = [each for each in carried if tx.get(COMING_SNAPSHOTS, each.coming.snapshot.id) is None]
        for each in new:
            if each.coming.snapshot.volume == volume_id:
                _enter(tx, deps, each)
        if new:
            begin_bringing(tx, deps, volume_id)

    await deps.store.write(apply)


def begin_bringing(tx: Tx, deps: FlowDeps, volume_id: VolumeId) -> None:
    """Begins to bring a volume's snapshots, in line behind what brings others of it."""
    deps.runs.accept(tx, BRING_SNAPSHOTS.name, snapshots_resource(volume_id), BringInput())


def _sealed(deps: FlowDeps, carried: CarriedSnapshot) -> ComingSnapshot:
    """With its key under this node's own."""
    coming, key = carried.coming, carried.coming.snapshot.key
    if key is None:
        return coming
    if deps.volume_keys is None or not carried.key:
        raise WrongState(f"snapshot {coming.snapshot.id} is encrypted, and its key did not come along")
    sealed = deps.volume_keys.seal(key.volume, carried.key)
    return msgspec.structs.replace(coming, snapshot=msgspec.structs.replace(coming.snapshot, key=sealed))


async def bring(context: Context[BringInput]) -> Outcome:
    """Each that is to come, the newest first, until none is; nodes that are away are asked again."""
    deps, volume_id = context.deps, VolumeId(context.resource.id)
    waits = ""
    for coming in coming_snapshots(deps.store, volume_id):
        waits = await _Bringing(deps, coming).bring() or waits
    if not waits:
        return Done()
    if context.attempt >= _ASKED:
        return HandOff(BRING_SNAPSHOTS.name, context.input)
    return Retry(waits)


class _Bringing:
    """One snapshot that is to come."""

    def __init__(self, deps: FlowDeps, coming: ComingSnapshot) -> None:
        self._deps = deps
        self._coming = coming
        self._id = coming.snapshot.id
        self._volume = coming.snapshot.volume

    async def bring(self) -> str:
        """Brings the snapshot and returns what it waits for; empty once nothing of it is to be done any more."""
        try:
            waits = "" if self._coming.arrived else await self._have()
            if waits or await self._is_over():
                return waits
            await self._release()
            inside("released")
        except (HawkerError, OSError) as error:
            return f"snapshot {self._id} waits: {error}"
        await self._deps.store.write(lambda tx: tx.delete(COMING_SNAPSHOTS, self._id))
        _log.info("snapshot has followed its volume", extra={"snapshot": self._id, "volume": self._volume})
        return ""

    async def _is_over(self) -> bool:
        return self._deps.store.get(COMING_SNAPSHOTS, self._id) is None

    async def _have(self) -> str:
        """On disk and in a durable record, unless it is not kept any more; what it waits for."""
        store, snapshot = self._deps.store, self._coming.snapshot
        if snapshot.kept_until <= self._deps.clock.now():
            return await self._give_up("it is not kept any more")
        if store.get(MOVED, self._volume) is not None:
            return "the volume is on its way to another node"
        if store.get(GONE_SNAPSHOTS, self._id) is not None:
            return "what was here of it is being removed"
        if self._coming.holds == Resources():
            check_room(await self._room(), f"snapshot {self._id}")
            self._coming = await store.write(self._hold)
        try:
            waits = await self._copy()
        except NotFound as error:
            return await self._give_up(str(error))
        if waits:
            return waits
        inside("compared")
        await files_of(self._deps).adopt(self._id, MovedFile(self._id))
        inside("adopted")
        waits = await store.write(self._arrive)
        inside("arrived")
        return waits

    async def _room(self) -> CopyRoom:
        """Beyond what this node keeps free, for all of it."""
        assert self._deps.copies is not None, "only a node with volumes has one"
        found = await self._deps.copies.room(self._id)
        return CopyRoom(self._coming.snapshot.size, found.free_bytes)

    def _hold(self, tx: Tx) -> ComingSnapshot:
        """What others are promised of the disk is none of its room. Raises `NoRoom`, and `WrongState` when it does not
        come by this move any more."""
        there, snapshot = tx.get(COMING_SNAPSHOTS, self._id), self._coming.snapshot
        if there is None or there.move != self._coming.move:
            raise WrongState(_ELSEWHERE)
        wanted = Resources(disk_mib=-(-snapshot.size // _MIB))
        missing = shortfall(self._deps.room(), used(tx), wanted)
        if missing:
            raise NoRoom(f"short of {shortfall_text(missing)}", scope="host", shortfall=missing)
        return _change_coming(tx, there, holds=wanted)

    async def _copy(self) -> str:
        coming, snapshot = self._coming, self._coming.snapshot
        record = IncomingRecord(
            move=coming.move, source=coming.source, app=snapshot.app, generation=coming.generation, created_at=0.0
        )
        size = snapshot.volume_gb * GB
        pace = _SnapshotPace(self._deps, coming)
        draft = FileDraft(self._deps, record, MovedFile(self._id), pace, (size, coming.upto))
        await draft.make()
        await draft.copy()
        differs = await draft.compare()
        if differs:
            await self._deps.store.write(lambda tx: _note_upto(tx, coming, 0), Durability.ORDERED)
            return differs
        await draft.sync()
        return ""

    def _arrive(self, tx: Tx) -> str:
        there = tx.get(COMING_SNAPSHOTS, self._id)
        if there is None or there.move != self._coming.move:
            return f"snapshot {self._id}: {_ELSEWHERE}"
        if tx.get(MOVED, self._volume) is not None:
            return "the volume is on its way to another node"
        tx.put(SNAPSHOTS, self._id, there.snapshot)
        tx.put(SNAPSHOTS_BY_VOLUME, f"{self._volume}/{self._id}", SnapshotKey(id=self._id))
        _change_coming(tx, there, holds=Resources(), arrived=True)
        return ""

    async def _release(self) -> None:
        """Its former node hears that it may go there; one that knows of nothing to let go has. Where the volume was
        taken back with it, it goes here."""
        coming, others = self._coming, self._deps.others.there
        params = MovedSnapshotParams(move_id=coming.move, snapshot_id=self._id)
        query = ReleaseSnapshotQuery(generation=coming.generation)
        try:
            await others.caller(coming.source).call(RELEASE_SNAPSHOT, params=params, query=query)
        except NotFound:
            if await self._is_kept_there():
                await self._deps.store.write(self._let_go)

    async def _is_kept_there(self) -> bool:
        caller, params = self._deps.others.there.caller(self._coming.source), MoveParams(move_id=self._coming.move)
        try:
            said = await caller.call(SHOW_OUTGOING, params=params)
        except NotFound:
            return False
        return bool(said.reclaimed) and self._id in said.snapshots

    def _let_go(self, tx: Tx) -> None:
        """Raises `Unavailable` until this node has given up the volume itself."""
        if tx.get(VOLUMES, self._volume) is not None and tx.get(MOVED, self._volume) is None:
            raise Unavailable("its volume was taken back")
        mine, there = tx.get(SNAPSHOTS, self._id), tx.get(COMING_SNAPSHOTS, self._id)
        if mine is not None and there is not None and there.move == self._coming.move:
            let_go(tx, mine)

    async def _give_up(self, why: str) -> str:
        """There is nothing to bring."""
        await files_of(self._deps).drop(self._id)

        def apply(tx: Tx) -> None:
            there = tx.get(COMING_SNAPSHOTS, self._id)
            if there is not None and not there.arrived:
                _comes_no_more(tx, there)

        await self._deps.store.write(apply)
        fields = {"snapshot": self._id, "volume": self._volume, "reason": why}
        _log.warning("snapshot does not follow its volume", extra=fields)
        return ""


class _SnapshotPace:
    """Bounded, and behind every move to this node."""

    def __init__(self, deps: FlowDeps, coming: ComingSnapshot) -> None:
        self._deps = deps
        self._coming = coming

    async def note(self, copied: int = 0, compared: int = 0, upto: Upto | None = None) -> None:
        deps, clock = self._deps, self._deps.clock
        if upto is not None:
            await deps.store.write(lambda tx: _note_upto(tx, self._coming, upto[1]), Durability.ORDERED)
        await clock.sleep((copied + compared / _COMPARED_FASTER) / (SNAPSHOT_MIB_PER_S << 20))
        while any(each.state in AWAITED for _, each in deps.store.scan(INCOMING)):
            await clock.sleep(_BEHIND_S)


def _change_coming(tx: Tx, before: ComingSnapshot, **fields: Any) -> ComingSnapshot:
    changed = msgspec.structs.replace(before, **fields)
    hold(tx, before.holds, changed.holds)
    tx.put(COMING_SNAPSHOTS, changed.snapshot.id, changed)
    return changed


def _comes_no_more(tx: Tx, coming: ComingSnapshot) -> None:
    """What is here of its file is removed."""
    tx.delete(COMING_SNAPSHOTS, coming.snapshot.id)
    hold(tx, coming.holds, Resources())
    tx.put(GONE_SNAPSHOTS, coming.snapshot.id, coming.snapshot)


def _note_upto(tx: Tx, coming: ComingSnapshot, upto: int) -> None:
    there = tx.get(COMING_SNAPSHOTS, coming.snapshot.id)
    if there is not None and there.move == coming.move:
        _change_coming(tx, there, upto=upto)


BRING_SNAPSHOTS = Flow(
    name="bring_snapshots",
    input=BringInput,
    steps=(
        Step(
            "bring",
            bring,
            timeout_s=7 * 86_400.0,
            queue="snapshots",
            waits=True,
            backoff=Backoff(attempts=1000, first_s=0.5, cap_s=300.0),
            points=("compared", "adopted", "arrived", "released"),
        ),
    ),
)
