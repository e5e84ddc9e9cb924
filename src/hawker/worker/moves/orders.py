"""Moves at their source as single transactions: order one, plan one, slow one down. What is acknowledged is on disk
when these return; flows do the rest.

Invariant: the owner of a machine or volume is the end of its chain of grants. A node acts on one only while it has its
record and has granted it to nobody.
"""

from collections.abc import Callable, Sequence

import msgspec

from hawker.api.contract.move import MoveRequest
from hawker.api.contract.move_peer import (
    ChangedBlocksQuery,
    MovedBlocksRequest,
    MovedPieceQuery,
    OfferedSnapshotsRequest,
)
from hawker.config import stop_config
from hawker.errors import (
    BadRequest,
    Conflict,
    Damaged,
    NotFound,
    NotServed,
    Unprocessable,
    WrongState,
)
from hawker.failpoint import reach
from hawker.fsm import journal
from hawker.host.unreadable import UnreadableBytes
from hawker.ids import AppName, NodeId, SnapshotId, is_snapshot_id
from hawker.machine import OFF, State
from hawker.record.machine import MachineRecord, MachineTarget, machine_resource
from hawker.record.move import (
    MOVES,
    OPEN_MOVE_OF,
    OPEN_MOVES,
    PAUSED_AT_MOST_S,
    RETIRED_UNITS,
    KeptMemory,
    KeptRoot,
    MoveMode,
    MovePointer,
    MoveRecord,
    MoveState,
    check_here,
)
from hawker.record.volume import SealedKey, VolumeRecord, VolumeState, volume_resource
from hawker.store.contract import Reader, Tx
from hawker.value_object import ValueObject
from hawker.volume.attachment import attached_to, volume_id_of
from hawker.volume.losses import noted, ranges_of
from hawker.volume.moved_files import Lost, MovedFile, MovedFiles
from hawker.worker import leases
from hawker.worker.lifecycle.draft import BESIDE_MIB_PER_S
from hawker.worker.moves.destinations import candidates, disk_free_mib, resumable
from hawker.worker.moves.incoming import IncomingMoves
from hawker.worker.moves.move import MOVE, MoveInput
from hawker.worker.moves.outgoing import change_move, migrated
from hawker.worker.moves.reclaims import Reclaims
from hawker.worker.moves.snapshots import (
    expect_snapshots,
    handed_snapshot,
    release_snapshot,
    snapshots_kept,
    snapshots_left,
)
from hawker.worker.moves.turns import AppTurns
from hawker.worker.moves.unit import files_of, kept_memory, kept_root, stored_bytes, unit_files

_ANYWHERE = MoveRequest()
_MODES = frozenset({None, "auto", *MoveMode})
_LATER = {
    "through": "the mode `through` (run at the destination while the source is copied) is not served yet",
    "lazy": "the mode `lazy` (copy what is asked for first) is not served yet",
}


class PlannedMove(ValueObject, frozen=True):
    """The move that an order would begin. The destination has not been asked: it may refuse. `free_mib` is what is free
    there, of disk; `eta_s` how long the copy takes at its limit, None without one."""

    move: MoveRecord
    free_mib: int
    eta_s: float | None


Also = Callable[[Tx, MoveRecord], None]


def nothing_else(tx: Tx, move: MoveRecord) -> None: ...


class _NotOrdered(Exception):
    """Takes a transaction back, once it is known what it would have written."""

    def __init__(self, move: MoveRecord) -> None:
        super().__init__()
        self.move = move


class MachineMoves(IncomingMoves):
    """Both halves of a node: what it gives away, and what comes to it."""

    async def of_machine(
        self, target: MachineTarget, wish: MoveRequest, also: Also = nothing_else, back_of: str = ""
    ) -> MoveRecord | PlannedMove:
        """Order the move of a machine with its files, or plan it in a dry run; `also` is done in the transaction. With
        `back_of` it is to run there, though it does not here. Raises `NotServed` for what cannot be moved, `Conflict`
        and `WrongState` for what cannot be moved now, `NoDestination` when there is nowhere to move it."""
        self.check(wish)
        deps = self._deps
        found = deps.table.find(deps.store, target.app, target.machine_id)
        memory = None if wish.cold_start else await kept_memory(deps, found)
        root = await kept_root(deps, found, memory)

        def apply(tx: Tx) -> MoveRecord:
            record = deps.table.find(tx, target.app, target.machine_id)
            deps.others.check()
            leases.check(record, target.nonce, deps.clock.now())
            check_here(tx, record.id)
            if journal.active(tx, machine_resource(record.id)) is not None:
                raise Conflict(f"machine {record.id} is {record.state} and not at rest: something is under way on it")
            _check_movable(record, memory, cold_start=bool(wish.cold_start))
            volume_id = volume_id_of(record.config)
            volume = None if volume_id is None else attached_to(tx, volume_id, record.id)
            if volume is not None:
                _check_volume(volume)
            signal, timeout_s = stop_config(record.config)
            run = deps.runs.accept(
                tx, MOVE.name, machine_resource(record.id), MoveInput(signal=signal, timeout_s=timeout_s)
            )
            self._check_alone(tx, record.app)
            move = self._order(tx, run, record.app, record, volume, wish, root, memory, back_of, alone=not back_of)
            deps.table.change(tx, record, migrated("preparing", move))
            also(tx, move)
            return move

        return await (self._planned(apply) if wish.dry_run else self._commit(apply))

    async def of_volume(
        self, app: AppName, volume_id: str, wish: MoveRequest, also: Also = nothing_else
    ) -> MoveRecord | PlannedMove:
        """Begins a move of a volume that no machine has, or plans it."""
        self.check(wish)
        deps = self._deps

        def apply(tx: Tx) -> MoveRecord:
            volume = deps.volumes.find(tx, app, volume_id)
            deps.others.check()
            check_here(tx, volume.id)
            self.check_free(volume)
            _check_volume(volume)
            self._check_alone(tx, volume.app)
            move = self.of_free(tx, volume, wish, alone=True)
            also(tx, move)
            return move

        return await (self._planned(apply) if wish.dry_run else self._commit(apply))

    def check_free(self, volume: VolumeRecord) -> None:
        """Checks that no machine has the volume. Raises `WrongState` for one that a machine has."""
        if volume.machine is not None:
            raise WrongState(
                f"volume {volume.id} is attached to machine {volume.machine}, and moves with it: use"
                f" `hawker machine move {volume.machine}`"
            )

    def of_free(
        self, tx: Tx, volume: VolumeRecord, wish: MoveRequest = _ANYWHERE, *, alone: bool = False
    ) -> MoveRecord:
        """Begins a move of a free volume in the caller's transaction, behind what is under way at the volume; nobody
        may use it until the move has ended. Other moves of its app go on beside it unless it is to be `alone`. Raises
        `NoDestination`, and what a key that cannot be opened raises."""
        run = self._deps.runs.accept(tx, MOVE.name, volume_resource(volume.id), MoveInput(signal="", timeout_s=0.0))
        return self._order(tx, run, volume.app, None, volume, wish, alone=alone)

    def check(self, wish: MoveRequest) -> None:
        """Checks a wish before its machine or volume is known. Raises what stands against it whatever it is of."""
        if wish.mode in _LATER:
            raise NotServed(f"mode: {_LATER[wish.mode]}: use `warm`, which copies while the machine runs")
        if wish.mode not in _MODES:
            raise Unprocessable(f"mode: {wish.mode!r:.40} is not one of auto, cold, warm")
        if wish.mode == MoveMode.WARM and wish.accept_loss:
            raise Unprocessable("mode: with `accept_loss` nobody may write meanwhile to what is lost: use `cold`")
        if wish.source not in (None, self._node.id):
            raise WrongState(f"source: it is at node {self._node.id}, and not at {wish.source!r:.40}")
        if wish.to == self._node.id:
            raise BadRequest(f"to: it is at node {self._node.id} already")

    def _order(
        self,
        tx: Tx,
        run: str,
        app: AppName,
        machine: MachineRecord | None,
        volume: VolumeRecord | None,
        wish: MoveRequest,
        root: KeptRoot | None = None,
        memory: KeptMemory | None = None,
        back_of: str = "",
        alone: bool = False,
    ) -> MoveRecord:
        now = self._deps.clock.now()
        owned = machine or volume
        assert owned is not None, "a move is of something"
        ran = machine is not None and (machine.state is State.STARTED or bool(back_of))
        written = ran and not (volume is None and root is None)
        if wish.mode == MoveMode.WARM and not written:
            raise WrongState("mode: nobody writes to a file of it, so there is nothing to copy warm: use `cold`")
        move = MoveRecord(
            id=run,
            app=app,
            machine=None if machine is None else machine.id,
            volume=None if volume is None else volume.id,
            root=root,
            memory=memory,
            wanted=NodeId(wish.to) if wish.to else None,
            region=wish.region or owned.region,
            limit_mib_per_s=wish.limit_mib_per_s or 0,
            generation=1 + max(each.generation for each in (machine, volume) if each is not None),
            mode=MoveMode.WARM if written and wish.mode != MoveMode.COLD and not wish.accept_loss else MoveMode.COLD,
            accept_loss=bool(wish.accept_loss),
            ran=ran,
            back_of=back_of,
            alone=alone,
            drops_memory=machine is not None and machine.state is State.SUSPENDED and memory is None,
            created_at=now,
            updated_at=now,
        )
        if volume is not None and volume.key is not None:
            self._open_key(volume.key)  # or what was granted could not be opened there
        others = self._deps.others.there
        candidates(others.nodes(), others.me, move)  # or nothing is begun
        tx.put(MOVES, move.id, move)
        for each in filter(None, (move.machine, move.volume)):
            tx.put(OPEN_MOVE_OF, each, MovePointer(move=move.id))
        return move

    def _open_key(self, key: SealedKey) -> None:
        """Raises `Fault`, `NotServed`."""
        if self._deps.volume_keys is None:
            raise NotServed(f"volume {key.volume} is encrypted, and this node has no keys of volumes")
        self._deps.volume_keys.open(key)

    def _check_alone(self, tx: Tx, app: AppName) -> None:
        busy = [each for _, each in tx.scan(MOVES) if each.state in OPEN_MOVES and each.app == app]
        if busy:
            raise Conflict(f"move {busy[0].id} of app '{app}' is under way: one machine of an app is away at a time")

    async def _commit(self, apply: Callable[[Tx], MoveRecord]) -> MoveRecord:
        reach("move.accept.before")
        made = await self._deps.store.write(apply)
        reach("move.accept.after")
        return made

    async def _planned(self, apply: Callable[[Tx], MoveRecord]) -> PlannedMove:
        def look(tx: Tx) -> MoveRecord:
            raise _NotOrdered(apply(tx))

        try:
            move = await self._deps.store.write(look)
        except _NotOrdered as looked:
            move = looked.move
        others = self._deps.others.there
        to = (await resumable(others, candidates(others.nodes(), others.me, move), move))[0]
        stored = await stored_bytes(self._deps, move)
        at_most = move.limit_mib_per_s or (BESIDE_MIB_PER_S if move.mode is MoveMode.WARM else 0)
        free_mib = next(disk_free_mib(node) for node in others.nodes() if node.id == to)
        planned = msgspec.structs.replace(move, to=to, stored_bytes=stored)
        return PlannedMove(planned, free_mib, stored / (at_most << 20) if at_most else None)

    def get(self, move_id: str, reader: Reader | None = None) -> MoveRecord:
        """The record of a move. Raises `NotFound`."""
        found = (reader or self._deps.store).get(MOVES, move_id)
        if found is None:
            raise NotFound(f"move {move_id:.40} not found, or it has not begun: see `hawker moves list`")
        return found

    def list(self) -> Sequence[MoveRecord]:
        """All moves from this node, the newest first."""
        return [record for _, record in self._deps.store.scan(MOVES, reverse=True)]

    def check_cancellable(self, move_id: str) -> MoveRecord:
        """The record of a move that may be cancelled. Raises `NotFound`, `WrongState` once the destination owns it."""
        return self._not_granted(self._deps.store, move_id)

    def _not_granted(self, reader: Reader, move_id: str) -> MoveRecord:
        move = self.get(move_id, reader)
        if move.state is MoveState.GRANTED:
            raise WrongState(f"node {move.to} owns it already: move it back once the move is done")
        if move.state is MoveState.RECLAIMING:
            raise WrongState("it is taken back already")
        return move

    async def pause(self, move_id: str, *, on: bool = True) -> MoveRecord:
        """Copy nothing, and stop no machine, for at most an hour; or go on. Raises `NotFound`, `WrongState` once the
        move has ended, its destination owns it, or a machine is off for it."""

        def apply(tx: Tx) -> MoveRecord:
            move = self._still_here(tx, move_id)
            if on and move.away_at is not None:
                raise WrongState("the machine is off for the move: let it end, or cancel it")
            until = self._deps.clock.now() + PAUSED_AT_MOST_S if on else None
            return change_move(tx, self._deps, move.id, paused_until=until)

        return await self._deps.store.write(apply)

    async def limit(self, move_id: str, mib_per_s: int) -> MoveRecord:
        """Copy at most so fast from now on. Raises `NotFound`, `WrongState` once there is nothing to copy here."""

        def apply(tx: Tx) -> MoveRecord:
            move = self._still_here(tx, move_id)
            return change_move(tx, self._deps, move.id, limit_mib_per_s=mib_per_s)

        return await self._deps.store.write(apply)

    def _still_here(self, tx: Tx, move_id: str) -> MoveRecord:
        move = self._not_granted(tx, move_id)
        if move.state not in OPEN_MOVES:
            raise WrongState(f"the move is {move.state}: there is nothing to copy")
        return move

    @property
    def reclaims(self) -> Reclaims:
        return Reclaims(self._deps, self._room)

    @property
    def turns(self) -> AppTurns:
        """The turns of the apps whose home this node is."""
        return AppTurns(self._deps)

    @property
    def files(self) -> MovedFiles:
        """The files of machines and volumes, where a move that is `handed_over` is read."""
        return files_of(self._deps)

    def handed_over(
        self, move_id: str, asked: MovedPieceQuery | MovedBlocksRequest | ChangedBlocksQuery
    ) -> tuple[MovedFile, Lost]:
        """The file of the move that its destination may read now, or of a snapshot that follows by it, and what is
        noted as lost of it. Raises `NotFound`, `WrongState`."""
        generation = asked.generation
        snapshot = None if isinstance(asked, ChangedBlocksQuery) else asked.snapshot
        if snapshot is not None:
            return handed_snapshot(self._deps.store, move_id, generation, snapshot), None
        move = self.get(move_id)
        wanted = (bool(asked.root), asked.memory or "")
        found = [each for each in unit_files(move) if (bool(each.layer), each.memory) == wanted]
        if move.generation != generation or not found:
            raise NotFound(f"move {move_id:.40} hands over no generation {generation}")
        if not move.hands_over:
            raise WrongState(f"the move is {move.state}: nothing is handed over")
        return found[0], ranges_of(move.lost) if move.accept_loss and not any(wanted) else None

    async def note_unreadable(self, move_id: str, file: MovedFile, error: UnreadableBytes) -> None:
        """The disk here cannot read this of a file of the move: it counts as lost where the order accepts that, or the
        move ends for it. Durably. Raises `Damaged` for a move that ends."""
        what = f"the {file.said}" if file.layer or file.memory else file.said
        damage = Damaged(f"{what} cannot be read at byte {error.offset}: its disk is damaged")
        if is_snapshot_id(file.id):  # it stays; the move is over
            raise Damaged(f"snapshot {file.id} cannot be read at byte {error.offset}: its disk is damaged") from error

        def apply(tx: Tx) -> bool:
            move = self.get(move_id, tx)
            is_volume = not file.layer and not file.memory
            is_lost = move.accept_loss and is_volume and move.state is MoveState.COPYING
            fields = {"lost": noted(move.lost, [error.lost])} if is_lost else {"damage": str(damage)}
            change_move(tx, self._deps, move_id, **fields)
            return is_lost

        if not await self._deps.store.write(apply):
            raise damage from error

    async def release_snapshot(self, move_id: str, generation: int, snapshot_id: str) -> None:
        """The volume's owner has it. Durably. Raises `NotFound`."""

        def apply(tx: Tx) -> None:
            release_snapshot(tx, move_id, generation, snapshot_id)

        await self._deps.store.write(apply)

    async def expect_snapshots(self, offered: OfferedSnapshotsRequest) -> None:
        """Expects the snapshots of a volume that this node took back. Durably. Raises `Moved`, `NotFound`."""
        await expect_snapshots(self._deps, offered)

    def snapshots_left(self, move: MoveRecord) -> int:
        return snapshots_left(self._deps.store, move)

    def is_settled(self, move: MoveRecord) -> bool:
        """Whether what was here of the unit has been forgotten, and that is on disk: see `MoveSweep`. Nobody can take
        it back then."""
        return move.state is MoveState.DONE and self._deps.store.get(RETIRED_UNITS, move.id) is None

    def snapshots_kept(self, move: MoveRecord) -> tuple[SnapshotId, ...]:
        """The snapshots of the move's volume that are here."""
        return () if move.volume is None else snapshots_kept(self._deps.store, move.volume)


def _check_movable(record: MachineRecord, memory: KeptMemory | None, *, cold_start: bool) -> None:
    """Raises `NotServed` for what no move takes along, `Conflict` and `WrongState` for what it does not now."""
    instance = None if record.running is None else record.running.instance_id
    if memory is not None and (record.state is not State.SUSPENDED or memory.running.instance_id != instance):
        raise Conflict(f"machine {record.id} was suspended a moment ago, and is {record.state} now")
    if record.state is State.SUSPENDED and memory is None and not cold_start:
        raise WrongState(
            f"machine {record.id} is suspended, and its memory is at this node: start or stop it first, or move it with"
            " `--cold-start` (`cold_start`), which stops it and drops its memory"
        )
    if record.state not in OFF | {State.STARTED, State.SUSPENDED}:
        raise Conflict(f"machine {record.id} is {record.state} and not at rest")
    if record.config.guest is not None and record.config.guest.gpus:
        raise NotServed("a machine with GPUs is not moved: they are this host's")


def _check_volume(volume: VolumeRecord) -> None:
    if volume.state is not VolumeState.CREATED:
        raise Conflict(f"volume {volume.id} is {volume.state}: wait until it is created")
