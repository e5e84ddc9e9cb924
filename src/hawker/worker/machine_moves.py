"""Moves as single transactions: order one, cancel one; hold room for what comes, own what was granted, or refuse it for
ever. What is acknowledged is on disk when these return; flows do the rest.

Invariant: the owner of a machine or volume is the end of its chain of grants. A node acts on one only while it has its
record and has granted it to nobody.
"""

from collections.abc import Callable, Sequence

import msgspec

from hawker.api.contract.move import DeliverRequest, IncomingRequest, MoveRequest
from hawker.config import stop_config, validate
from hawker.config.placement import Spread, lacking, parse_labels, placement_of
from hawker.errors import (
    BadRequest,
    Conflict,
    HawkerError,
    NoRoom,
    NotFound,
    NotServed,
    Unavailable,
    Unprocessable,
    WrongState,
)
from hawker.failpoint import reach
from hawker.fsm import journal
from hawker.ids import AppName, NodeId
from hawker.machine import OFF, State
from hawker.node import Capacity, Resources, shortfall, shortfall_text
from hawker.record.machine import BY_APP, MACHINES, MachineRecord, MachineTarget, machine_resource
from hawker.record.move import (
    AWAITED,
    INCOMING,
    MOVED,
    MOVES,
    OPEN_MOVE_OF,
    OPEN_MOVES,
    PAUSED_AT_MOST_S,
    Delivered,
    IncomingRecord,
    IncomingState,
    KeptRoot,
    MoveMode,
    MovePointer,
    MoveRecord,
    MoveState,
    check_here,
    incoming_resource,
)
from hawker.record.node import NodeRecord, closed, hold, used
from hawker.record.volume import VOLUMES, SealedKey, VolumeRecord, VolumeState, volume_resource
from hawker.store.contract import Reader, Tx
from hawker.value_object import ValueObject
from hawker.volume.attachment import attached_to, volume_id_of
from hawker.volume.moved_files import MovedFile, MovedFiles, draft_of
from hawker.worker import leases
from hawker.worker.capacity import room_for
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.lifecycle.destinations import candidates, disk_free_mib
from hawker.worker.lifecycle.draft import BESIDE_MIB_PER_S
from hawker.worker.lifecycle.move import (
    MOVE,
    MoveInput,
    change_move,
    migrated,
)
from hawker.worker.lifecycle.moved_unit import check_root, files_of, kept_root, stored_bytes, unit_files, with_root
from hawker.worker.lifecycle.receive import RECEIVE, ReceiveInput, drop_incoming, own, under_way

AT_ONCE = 2
"""Moves to a node under way at once."""

_ANYWHERE = MoveRequest()
_MODES = frozenset({None, "auto", *MoveMode})
_LATER = {
    "through": "the mode `through` (run at the destination while the source is copied) is not served yet",
    "lazy": "the mode `lazy` (copy what is asked for first) is not served yet",
}
_DELIVERED = msgspec.msgpack.Decoder(Delivered)


class PlannedMove(ValueObject, frozen=True):
    """What an order would begin. The destination has not been asked: it may refuse. `free_mib` is what is free there,
    of disk; `eta_s` how long the copy takes at its limit, None without one."""

    move: MoveRecord
    free_mib: int
    eta_s: float | None


class _NotOrdered(Exception):
    """Takes a transaction back, once it is known what it would have written."""

    def __init__(self, move: MoveRecord) -> None:
        super().__init__()
        self.move = move


class MachineMoves:
    """`room` answers what the node has."""

    def __init__(self, node: NodeRecord, deps: FlowDeps, room: Callable[[], Capacity]) -> None:
        self._node = node
        self._deps = deps
        self._room = room

    # At the source.

    async def of_machine(self, target: MachineTarget, wish: MoveRequest) -> MoveRecord | PlannedMove:
        """Order the move of a machine with its files, or plan it in a dry run. Raises `NotServed` for what cannot be
        moved, `Conflict` and `WrongState` for what cannot be moved now, `NoDestination` when there is nowhere to move
        it."""
        self._check(wish)
        deps = self._deps
        root = await kept_root(deps, deps.table.find(deps.store, target.app, target.machine_id))

        def apply(tx: Tx) -> MoveRecord:
            record = deps.table.find(tx, target.app, target.machine_id)
            deps.others.check()
            leases.check(record, target.nonce, deps.clock.now())
            check_here(tx, record.id)
            if journal.active(tx, machine_resource(record.id)) is not None:
                raise Conflict(f"machine {record.id} is {record.state} and not at rest: something is under way on it")
            _check_movable(record, cold_start=bool(wish.cold_start))
            volume_id = volume_id_of(record.config)
            volume = None if volume_id is None else attached_to(tx, volume_id, record.id)
            if volume is not None:
                _check_volume(volume)
            signal, timeout_s = stop_config(record.config)
            run = deps.runs.accept(
                tx, MOVE.name, machine_resource(record.id), MoveInput(signal=signal, timeout_s=timeout_s)
            )
            self._check_alone(tx, record.app)
            move = self._order(tx, run, record.app, record, volume, wish, root)
            deps.table.change(tx, record, migrated("preparing", move))
            return move

        return await (self._planned(apply) if wish.dry_run else self._commit(apply))

    async def of_volume(self, app: AppName, volume_id: str, wish: MoveRequest) -> MoveRecord | PlannedMove:
        """The same for a volume that no machine has."""
        self._check(wish)
        deps = self._deps

        def apply(tx: Tx) -> MoveRecord:
            volume = deps.volumes.find(tx, app, volume_id)
            deps.others.check()
            check_here(tx, volume.id)
            if volume.machine is not None:
                raise WrongState(
                    f"volume {volume.id} is attached to machine {volume.machine}, and moves with it: use"
                    f" `hawker machine move {volume.machine}`"
                )
            _check_volume(volume)
            self._check_alone(tx, volume.app)
            return self.of_free(tx, volume, wish)

        return await (self._planned(apply) if wish.dry_run else self._commit(apply))

    def of_free(self, tx: Tx, volume: VolumeRecord, wish: MoveRequest = _ANYWHERE) -> MoveRecord:
        """In the caller's transaction, behind what is under way at the volume; nobody may use it until the move has
        ended. Raises `NoDestination`, and what a key that cannot be opened raises."""
        run = self._deps.runs.accept(tx, MOVE.name, volume_resource(volume.id), MoveInput(signal="", timeout_s=0.0))
        return self._order(tx, run, volume.app, None, volume, wish)

    def _check(self, wish: MoveRequest) -> None:
        if wish.mode in _LATER:
            raise NotServed(f"mode: {_LATER[wish.mode]}: use `warm`, which copies while the machine runs")
        if wish.mode not in _MODES:
            raise Unprocessable(f"mode: {wish.mode!r:.40} is not one of auto, cold, warm")
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
    ) -> MoveRecord:
        now = self._deps.clock.now()
        owned = machine or volume
        assert owned is not None, "a move is of something"
        ran = machine is not None and machine.state is State.STARTED
        written = ran and not (volume is None and root is None)
        if wish.mode == MoveMode.WARM and not written:
            raise WrongState("mode: nobody writes to a file of it, so there is nothing to copy warm: use `cold`")
        move = MoveRecord(
            id=run,
            app=app,
            machine=None if machine is None else machine.id,
            volume=None if volume is None else volume.id,
            root=root,
            wanted=NodeId(wish.to) if wish.to else None,
            region=wish.region or owned.region,
            limit_mib_per_s=wish.limit_mib_per_s or 0,
            generation=1 + max(each.generation for each in (machine, volume) if each is not None),
            mode=MoveMode.WARM if written and wish.mode != MoveMode.COLD else MoveMode.COLD,
            ran=ran,
            drops_memory=machine is not None and machine.state is State.SUSPENDED,
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
        to = candidates(others.nodes(), others.me, move)[0]
        stored = await stored_bytes(self._deps, move)
        at_most = move.limit_mib_per_s or (BESIDE_MIB_PER_S if move.mode is MoveMode.WARM else 0)
        free_mib = next(disk_free_mib(node) for node in others.nodes() if node.id == to)
        planned = msgspec.structs.replace(move, to=to, stored_bytes=stored)
        return PlannedMove(planned, free_mib, stored / (at_most << 20) if at_most else None)

    def get(self, move_id: str, reader: Reader | None = None) -> MoveRecord:
        """Raises `NotFound`."""
        found = (reader or self._deps.store).get(MOVES, move_id)
        if found is None:
            raise NotFound(f"move {move_id:.40} not found: see `hawker moves list`")
        return found

    def list(self) -> Sequence[MoveRecord]:
        """The newest first."""
        return [record for _, record in self._deps.store.scan(MOVES, reverse=True)]

    def check_cancellable(self, move_id: str) -> MoveRecord:
        """Raises `NotFound`, `WrongState` once the destination owns it."""
        return self._not_granted(self._deps.store, move_id)

    def _not_granted(self, reader: Reader, move_id: str) -> MoveRecord:
        move = self.get(move_id, reader)
        if move.state is MoveState.GRANTED:
            raise WrongState(f"node {move.to} owns it already: move it back once the move is done")
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
    def files(self) -> MovedFiles:
        """Where one that is `handed_over` is read."""
        return files_of(self._deps)

    def handed_over(self, move_id: str, generation: int, root: bool | None = None) -> MovedFile:
        """The file of the move that its destination may read now. Raises `NotFound`, `WrongState`."""
        move = self.get(move_id)
        found = [each for each in unit_files(move) if bool(each.layer) is bool(root)]
        if move.generation != generation or not found:
            raise NotFound(f"move {move_id:.40} hands over no generation {generation}")
        if not move.hands_over:
            raise WrongState(f"the move is {move.state}: nothing is handed over")
        return found[0]

    async def note_damage(self, move_id: str, what: str) -> None:
        """The disk here cannot read a file of the move, which ends for it. Durably."""
        await self._deps.store.write(lambda tx: change_move(tx, self._deps, move_id, damage=what))

    # At the destination.

    async def hold(self, move_id: str, asked: IncomingRequest) -> IncomingRecord:
        """Hold room for it, and begin to get ready. Asked again, it is what it was. Raises why it cannot be here."""
        deps = self._deps
        unit = _DELIVERED.decode(deps.others.there.open(asked.unit))
        known = deps.store.get(INCOMING, move_id)
        if known is not None:
            return known
        self._check_servable(unit)
        lacks = await deps.disks.lacks_encryption() if deps.disks and unit.volume and unit.volume.encrypted else None
        if lacks is not None:
            raise NotServed(f"the volume is encrypted: {lacks}")
        app = AppName(asked.app.name)
        record = IncomingRecord(
            move=move_id,
            source=NodeId(asked.source),
            app=app,
            generation=asked.generation,
            machine=unit.machine,
            volume=unit.volume,
            root=unit.root,
            holds=self._held_by(unit),
            limit_mib_per_s=asked.limit_mib_per_s,
            created_at=deps.clock.now(),
        )

        def apply(tx: Tx) -> IncomingRecord:
            there = tx.get(INCOMING, move_id)
            if there is not None:
                return there
            self._check_free(tx, record)
            tx.put(INCOMING, move_id, record)
            hold(tx, Resources(), record.holds)
            deps.runs.accept(tx, RECEIVE.name, incoming_resource(move_id), ReceiveInput(org=asked.app.org))
            return record

        return await deps.store.write(apply)

    def _check_servable(self, unit: Delivered) -> None:
        deps = self._deps
        if unit.volume is not None and (deps.disks is None or deps.moved_files is None):
            raise NotServed("this node has no volumes")
        if unit.volume is not None and unit.volume.guest_written and not deps.driver.features.disks:
            raise NotServed("a microVM wrote the volume's blocks, and this node runs no microVMs")
        if unit.root is not None:
            check_root(unit.root, deps.driver.features)
        if unit.machine is not None:
            validate(unit.machine.config, deps.driver.features)
            wanted, labels = placement_of(unit.machine.config), parse_labels(",".join(deps.settings.labels))
            missing = lacking(wanted.labels, labels)
            if missing is not None:
                raise WrongState(f"the node does not have the label {missing}")
            if wanted.driver not in (None, deps.driver.name):
                raise WrongState(f"the node's driver is {deps.driver.name}")

    def _held_by(self, unit: Delivered) -> Resources:
        """A machine that is off takes no room here either, but for its files."""
        deps, holds = self._deps, Resources()
        if unit.volume is not None:
            holds = holds.plus(unit.volume.holds)
        room = Resources()
        if unit.machine is not None and unit.ran:
            room = room_for(deps.settings, deps.driver.features.overhead_mib, unit.machine.config)
        return holds.plus(with_root(room, unit.root))

    def _check_free(self, tx: Tx, record: IncomingRecord) -> None:
        """Raises `Unavailable` when the node takes nothing, `Conflict` when it takes nothing more now, `WrongState`
        when what comes is here, or was here later than the source knows, `NoRoom`."""
        reason = closed(tx)
        if reason is not None:
            raise Unavailable(reason)
        if under_way([each for _, each in tx.scan(INCOMING)]) >= AT_ONCE:
            raise Conflict(f"{AT_ONCE} moves to this node are under way")
        for each in _ids(record.machine, record.volume):
            if tx.get(MACHINES, each) is not None or tx.get(VOLUMES, each) is not None:
                raise WrongState(f"{each} is at this node, or has not left it yet")
            went = tx.get(MOVED, each)
            if went is not None and went.generation >= record.generation:
                raise WrongState(f"{each} left this node under generation {went.generation}")
        if record.machine is not None:
            _check_apart(tx, record.machine)
        missing = shortfall(self._room(), used(tx), record.holds)
        if missing:
            raise NoRoom(f"short of {shortfall_text(missing)}", scope="host", shortfall=missing)

    def incoming(self, move_id: str) -> IncomingRecord:
        """Raises `NotFound`."""
        found = self._deps.store.get(INCOMING, move_id)
        if found is None:
            raise NotFound(f"move {move_id:.40} is not known here")
        return found

    async def drop(self, move_id: str) -> None:
        """Nothing of it comes any more. What was accepted stays."""
        deps = self._deps

        def apply(tx: Tx) -> bool:
            record = tx.get(INCOMING, move_id)
            if record is None or record.state not in AWAITED:
                return False
            drop_incoming(tx, record, IncomingState.DROPPED, "the source gave the move up")
            return True

        if await deps.store.write(apply):
            for each in unit_files(self.incoming(move_id)):
                await files_of(deps).drop(draft_of(move_id, each))

    async def accept(self, move_id: str, given: DeliverRequest) -> IncomingRecord:
        """Own what was granted: the durable commit after which this node may act on it. What it cannot own it refuses
        for ever. Raises `NotFound`, `Unavailable`."""
        deps, record = self._deps, self.incoming(move_id)
        if given.generation != record.generation:
            raise NotFound(f"move {move_id:.40} brings generation {record.generation}, not {given.generation}")
        if record.state in (IncomingState.ACCEPTED, IncomingState.REFUSED, IncomingState.DROPPED):
            return await self._answer_again(record)
        if unit_files(record) and record.state is not IncomingState.COPIED:
            return await self._refuse(record, "its files were not copied")
        unit = _DELIVERED.decode(deps.others.there.open(given.unit))
        for each in unit_files(record):
            await files_of(deps).adopt(draft_of(move_id, each), each)
        reach("receive.accept.before")
        try:
            accepted = await deps.store.write(lambda tx: own(tx, deps, self._node, move_id, unit, given.app))
        except HawkerError as error:
            if error.retry and not isinstance(error, Conflict | NoRoom):
                raise
            return await self._refuse(record, str(error))
        reach("receive.accept.after")
        return accepted

    async def _answer_again(self, record: IncomingRecord) -> IncomingRecord:
        """One that was dropped here cannot be had back: it counts as refused."""
        if record.state is not IncomingState.DROPPED:
            return record
        return await self._refuse(record, record.reason)

    async def _refuse(self, record: IncomingRecord, reason: str) -> IncomingRecord:
        def apply(tx: Tx) -> IncomingRecord:
            current = tx.get(INCOMING, record.move) or record
            if current.state is IncomingState.ACCEPTED:
                return current
            return drop_incoming(tx, current, IncomingState.REFUSED, reason)

        refused = await self._deps.store.write(apply)
        for each in unit_files(record) if refused.state is IncomingState.REFUSED else ():
            await files_of(self._deps).drop(draft_of(record.move, each), each)
        return refused


def _check_apart(reader: Reader, machine: MachineRecord) -> None:
    """A machine and its spares are never on one node, nor those of an app that are to be apart. Raises `WrongState`."""
    if placement_of(machine.config).spread is Spread.HARD and reader.count(BY_APP, f"{machine.app}/"):
        raise WrongState(f"the node has machines of app '{machine.app}', and they are to be apart")
    for _, there in reader.scan(MACHINES):
        if machine.id in (there.config.standbys or ()) or there.id in (machine.config.standbys or ()):
            raise WrongState(f"machine {there.id} is at the node, and one of the two stands by for the other")


def _ids(machine: MachineRecord | None, volume: VolumeRecord | None) -> list[str]:
    return [each.id for each in (machine, volume) if each is not None]


def _check_movable(record: MachineRecord, *, cold_start: bool) -> None:
    """Raises `NotServed` for what no move takes along, `Conflict` and `WrongState` for what it does not now."""
    if record.state is State.SUSPENDED and not cold_start:
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
