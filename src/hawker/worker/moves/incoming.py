"""Moves at their destination as single transactions: hold room for what comes, own what was granted, or refuse it for
ever. What is acknowledged is on disk when these return; flows do the rest."""

from collections.abc import Callable

import msgspec

from hawker.api.contract.market import OrderedApp
from hawker.api.contract.move_peer import DeliverRequest, IncomingRequest
from hawker.config import validate_served
from hawker.config.placement import Spread, lacking, parse_labels, placement_of
from hawker.errors import (
    Conflict,
    HawkerError,
    NoRoom,
    NotFound,
    NotServed,
    Unavailable,
    WrongState,
)
from hawker.failpoint import reach
from hawker.ids import AppName, NodeId
from hawker.node import Capacity, Resources, shortfall, shortfall_text
from hawker.record.machine import BY_APP, MACHINES, MachineRecord
from hawker.record.move import (
    AWAITED,
    INCOMING,
    MOVED,
    Delivered,
    IncomingRecord,
    IncomingState,
    incoming_resource,
)
from hawker.record.node import NodeRecord, closed, hold, used
from hawker.record.volume import VOLUMES, VolumeRecord
from hawker.store.contract import Reader, Tx
from hawker.volume.moved_files import draft_of
from hawker.worker.capacity import room_for
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.lifecycle.draft import ask_source, over
from hawker.worker.moves.receive import (
    RECEIVE,
    ReceiveInput,
    check_address,
    drop_incoming,
    own,
    under_way,
)
from hawker.worker.moves.unit import check_memory, check_root, files_of, unit_files, with_root

FRESH_S = 20.0
"""The seconds that a granter's word may be old when what it granted is accepted: fewer than it waits before it takes it
back."""

_MIB = 1 << 20
AT_ONCE = 2
"""Moves to a node under way at once."""

_DELIVERED = msgspec.msgpack.Decoder(Delivered)


class IncomingMoves:
    """`room` answers what the node has."""

    def __init__(self, node: NodeRecord, deps: FlowDeps, room: Callable[[], Capacity]) -> None:
        self._node = node
        self._deps = deps
        self._room = room

    async def hold(self, move_id: str, asked: IncomingRequest) -> IncomingRecord:
        """Hold room for the unit of a move, and begin to get ready. Asked again, the record is what it was. Raises why
        the unit cannot be here."""
        deps = self._deps
        unit = _DELIVERED.decode(deps.others.there.open(asked.unit))
        known = deps.store.get(INCOMING, move_id)
        if known is not None:
            return known
        self._check_servable(unit)
        if unit.memory is not None:
            await check_memory(deps, unit.memory)
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
            memory=unit.memory,
            back_of=unit.back_of,
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
            validate_served(unit.machine.config, deps.driver.features)
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
        if unit.machine is not None and (unit.ran or unit.memory is not None):
            room = room_for(deps.settings, deps.driver.features.overhead_mib, unit.machine.config)
        memory_mib = 0 if unit.memory is None else -(-unit.memory.size_bytes // _MIB)
        return holds.plus(with_root(room, unit.root)).plus(Resources(disk_mib=memory_mib))

    def _check_free(self, tx: Tx, record: IncomingRecord) -> None:
        """Raises `Unavailable` when the node takes nothing, `Conflict` when it takes nothing more now, `WrongState`
        when what comes is here, or was here later than the source knows, `NoRoom`."""
        reason = closed(tx)
        if reason is not None and not _comes_back(tx, record):
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
        if record.machine is not None and record.memory is not None and self._deps.networks is not None:
            check_address(tx, self._deps.settings, record.machine)
        missing = shortfall(self._room(), used(tx), record.holds)
        if missing:
            raise NoRoom(f"short of {shortfall_text(missing)}", scope="host", shortfall=missing)

    def incoming(self, move_id: str) -> IncomingRecord:
        """The record of an incoming move. Raises `NotFound`."""
        found = self._deps.store.get(INCOMING, move_id)
        if found is None:
            raise NotFound(f"move {move_id:.40} is not known here")
        return found

    async def drop(self, move_id: str) -> None:
        """Drops an incoming move: nothing of it comes any more. What was accepted stays."""
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
        said = await ask_source(deps, record)  # what comes late may have been taken back
        gone = over(said, record, self._node.id)
        if gone:
            return await self._refuse(record, gone)
        if isinstance(said, HawkerError):
            raise Unavailable(f"node {record.source}, which granted it, does not answer") from said
        heard = deps.clock.monotonic()
        unit = _DELIVERED.decode(deps.others.there.open(given.unit))
        await self._put_in_place(record)
        reach("receive.accept.before")
        try:
            accepted = await deps.store.write(lambda tx: self._own(tx, unit, given.app, move_id, heard))
        except HawkerError as error:
            if error.retry and not isinstance(error, Conflict | NoRoom):
                raise
            return await self._refuse(record, str(error))
        reach("receive.accept.after")
        deps.claims.add(move_id)
        return accepted

    async def _put_in_place(self, record: IncomingRecord) -> None:
        """All but a memory, which follows once the machine is this node's: see `arrive`. Raises `Unavailable` while its
        disk refuses."""
        for each in unit_files(record):
            try:
                if not each.memory:
                    await files_of(self._deps).adopt(draft_of(record.move, each), each)
            except OSError as error:
                raise Unavailable(f"its disk refuses the file of {each.id}: {error.strerror}") from error

    def _own(self, tx: Tx, unit: Delivered, app: OrderedApp, move_id: str, heard: float) -> IncomingRecord:
        """Raises `Unavailable` when the granter's word is old: it may have taken it back since."""
        if self._deps.clock.monotonic() - heard > FRESH_S:
            raise Unavailable("the node was held up since its granter was asked")
        return own(tx, self._deps, self._node, move_id, unit, app)

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


def _comes_back(reader: Reader, record: IncomingRecord) -> bool:
    """Whether it left this node for the one that gives it back because it does not start there."""
    went = reader.get(MOVED, record.unit)
    return bool(record.back_of) and went is not None and went.to == record.source


def _ids(machine: MachineRecord | None, volume: VolumeRecord | None) -> list[str]:
    return [each.id for each in (machine, volume) if each is not None]
