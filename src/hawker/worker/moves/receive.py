"""Flow `receive`, at the destination of a move: have the image, copy the files of the unit, wait for the grant. Until
this node has accepted the grant durably, all of it counts for nothing, and goes when the source says that the move has
ended.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network

import msgspec

from hawker.api.contract.market import OrderedApp
from hawker.errors import NotFound, NotServed, Unavailable, WrongState
from hawker.fsm.contract import Abort, Backoff, Commit, Done, EndedRun, Ending, Flow, Outcome, Step
from hawker.ids import AppName, InstanceId, new_ulid
from hawker.image.blobs import NODE as OWN_READER
from hawker.image.blobs import ImageReader
from hawker.machine import State
from hawker.node import Resources
from hawker.record.app import APPS, AppRecord
from hawker.record.machine import BY_IPV4, BY_NAME, Detail, MachineRecord, Running, machine_resource
from hawker.record.move import (
    AWAITED,
    FILLING,
    GRANTS,
    INCOMING,
    MOVED,
    MOVES,
    TRIALS,
    TRIED_AT_MOST_S,
    Delivered,
    IncomingRecord,
    IncomingState,
    TrialRecord,
    newest_start,
)
from hawker.record.node import NodeRecord, hold
from hawker.record.volume import VOLUMES
from hawker.settings import Settings
from hawker.store.contract import Reader, Tx
from hawker.volume.disks import disk_of
from hawker.volume.losses import ranges_of
from hawker.volume.lost_files import LostFiles
from hawker.volume.moved_files import draft_of
from hawker.worker.admission import free_ipv4
from hawker.worker.capacity import room_for
from hawker.worker.id_ranges import id_pool, with_ids
from hawker.worker.images import needed
from hawker.worker.lifecycle.deps import Context, FlowDeps
from hawker.worker.lifecycle.draft import UnitDrafts, ask_source, change_incoming, over
from hawker.worker.lifecycle.pull import PullInput, image_resource
from hawker.worker.lifecycle.start import Launch
from hawker.worker.moves.arrive import ARRIVE_FLOW, ArriveInput
from hawker.worker.moves.destinations import COLD_START
from hawker.worker.moves.snapshots import enter_snapshots
from hawker.worker.moves.unit import files_of, image_digest, unit_files, with_root
from hawker.worker.table import Happened

_LOOK_S = 0.2
_ASK_S = 5.0
_LOST = "it stays stopped: some of volume {} was lost, and nobody has accepted that yet"


class ReceiveInput(msgspec.Struct, frozen=True, kw_only=True):
    """The run's resource names the move; `org` may have the image."""

    org: str


def drop_incoming(tx: Tx, record: IncomingRecord, state: IncomingState, reason: str) -> IncomingRecord:
    """Drops an incoming move: its room is free again; the record stays, and says that nothing of it is to come any
    more."""
    hold(tx, record.holds, Resources())
    return change_incoming(tx, record.move, state=state, reason=reason, holds=Resources())


async def image(context: Context[ReceiveInput]) -> Outcome:
    """Have what the machine runs from."""
    deps, record = context.deps, _incoming(context)
    if record.machine is not None:
        wanted, org = needed(record.machine), context.input.org
        for each in wanted:
            if not deps.images.is_here_for(each, ImageReader(org) if each.registry else OWN_READER):
                await context.child("pull", image_resource(each, org), PullInput(image=each, org=org))
            deps.images.mark_used(each.digest)
        if record.memory is not None and await image_digest(deps, record.machine) != record.memory.image:
            what = "the image's file that was made here is not the one that the suspended machine has read of"
            return Abort(NotServed(f"{what}: {COLD_START}"))
    return Done(commit=lambda tx: _ready(tx, context))


def _ready(tx: Tx, context: Context[ReceiveInput]) -> None:
    record = tx.get(INCOMING, context.resource.id)
    if record is not None and record.state is IncomingState.HOLDING:
        change_incoming(tx, record.move, state=IncomingState.READY)


async def fetch(context: Context[ReceiveInput]) -> Outcome:
    """Have what the source's files store, and have compared it; resumed from what was on disk."""
    record = _incoming(context)
    if not unit_files(record) or record.state not in FILLING:
        return Done()
    drafts = UnitDrafts(context.deps, record)
    ended = await drafts.await_source()
    if ended:
        return Abort(ended)
    await drafts.begin()
    context.reach("drafted")
    ended = await drafts.fill()
    if ended:
        return Abort(Unavailable(ended))
    await drafts.sync()
    context.reach("copied")
    return Done(commit=lambda tx: _copied(tx, context))


def _copied(tx: Tx, context: Context[ReceiveInput]) -> None:
    record = tx.get(INCOMING, context.resource.id)
    if record is not None and record.state in FILLING:
        change_incoming(tx, record.move, state=IncomingState.COPIED)


async def settle(context: Context[ReceiveInput]) -> Outcome:
    """Waits until the unit is accepted, refused, or will not come; an owner then notes which files lost something."""
    while True:
        record = _incoming(context)
        if record.state not in AWAITED:
            return Done(commit=await _named(context.deps, record))
        ended = over(await ask_source(context.deps, record), record, context.deps.others.there.me)
        if ended and _incoming(context).state in AWAITED:
            return Abort(ended)
        for _ in range(int(_ASK_S / _LOOK_S)):
            await context.clock.sleep(_LOOK_S)
            if _incoming(context).state not in AWAITED:
                break


async def _named(deps: FlowDeps, record: IncomingRecord) -> Commit | None:
    """What notes the names of files that lost something. Nobody waits for it."""
    volume = None if record.volume is None else deps.store.get(VOLUMES, record.volume.id)
    damage = None if volume is None else volume.damage
    if volume is None or damage is None or damage.unnamed is not None or deps.disks is None:
        return None
    if damage.repaired_at is not None:
        found = LostFiles((), "its filesystem was repaired before they were looked for")
    else:
        try:
            found = await deps.disks.lost_files(disk_of(volume), ranges_of(damage.lost))
        except (OSError, NotFound) as error:
            found = LostFiles((), str(error))

    def name(tx: Tx) -> None:
        now = tx.get(VOLUMES, volume.id)
        if now is not None and now.damage is not None and now.damage.lost == damage.lost:
            named = msgspec.structs.replace(now.damage, files=found.names, unnamed=found.unnamed)
            deps.volumes.change(tx, now, damage=named)

    return name


async def undo_hold(context: Context[ReceiveInput]) -> None:
    """The drafts go; their room with the end of the run."""
    record = context.deps.store.get(INCOMING, context.resource.id)
    if record is None or record.state is IncomingState.ACCEPTED or context.deps.moved_files is None:
        return
    for each in unit_files(record):
        await files_of(context.deps).drop(draft_of(record.move, each))


def release(tx: Tx, ended: EndedRun[ReceiveInput]) -> None:
    record = tx.get(INCOMING, ended.resource.id)
    if ended.ending is not Ending.DONE and record is not None and record.state in AWAITED:
        drop_incoming(tx, record, IncomingState.DROPPED, ended.error or "cancelled")


def _incoming(context: Context[ReceiveInput]) -> IncomingRecord:
    """Raises `NotFound`."""
    record = context.deps.store.get(INCOMING, context.resource.id)
    if record is None:
        raise NotFound(f"move {context.resource.id} is not known here")
    return record


def under_way(records: Sequence[IncomingRecord]) -> int:
    return sum(record.state in AWAITED for record in records)


def own(tx: Tx, deps: FlowDeps, node: NodeRecord, move_id: str, unit: Delivered, carried: OrderedApp) -> IncomingRecord:
    """Makes what was granted this node's: the only place where an owner's record is made of what came. Raises
    `WrongState` for what it cannot own."""
    record = tx.get(INCOMING, move_id)
    assert record is not None, "it is never forgotten while it is awaited"
    if record.state not in AWAITED:
        return record
    fields = msgspec.structs.asdict(carried)
    packed = fields.pop("luggage")
    app = AppRecord(**{**fields, "name": AppName(carried.name)})
    there = tx.get(APPS, app.name)
    if there is not None and there.id != app.id:
        raise WrongState(f"app '{app.name}' is another app at node {node.id}")
    deps.others.there.unpack(tx, app, packed)
    if tx.get(APPS, app.name) is None:
        tx.put(APPS, app.name, app)
    hold(tx, record.holds, Resources())
    if unit.volume is not None:
        _enter_volume(tx, deps, node, unit, record.generation)
        enter_snapshots(tx, deps, unit)
        if unit.ran and unit.volume.damaged:  # it may not start with what is there
            unit = msgspec.structs.replace(unit, ran=False)
    if unit.machine is not None:
        _enter_machine(tx, deps, node, unit, record)
    for each in (unit.machine, unit.volume):
        if each is not None:
            tx.delete(MOVED, each.id)
            tx.delete(GRANTS, each.id)
    came = tx.get(MOVES, unit.back_of) if unit.back_of else None
    if came is not None:
        tx.put(
            MOVES, came.id, msgspec.structs.replace(came, reason=f"it did not start at node {came.to}, and came back")
        )
    accepted = msgspec.structs.replace(record, state=IncomingState.ACCEPTED, holds=Resources())
    tx.put(INCOMING, move_id, accepted)
    return accepted


def _enter_volume(tx: Tx, deps: FlowDeps, node: NodeRecord, unit: Delivered, generation: int) -> None:
    """As it was, but for its key, which is sealed under this node's own now."""
    volume = unit.volume
    assert volume is not None
    key = volume.key
    if key is not None:
        if deps.volume_keys is None or not unit.volume_key:
            raise WrongState(f"volume {volume.id} is encrypted, and its key did not come along, or cannot be kept here")
        key = deps.volume_keys.seal(key.volume, unit.volume_key)
    now = deps.clock.now()
    mine = msgspec.structs.replace(volume, region=node.region, generation=generation, key=key, updated_at=now)
    deps.volumes.insert(tx, mine)


def check_address(reader: Reader, settings: Settings, machine: MachineRecord) -> None:
    """Checks that a machine's address is free here. A machine that goes on from its memory has its address already.
    Raises `WrongState` where it is another machine's."""
    address = machine.network.ipv4
    if address and (
        reader.get(BY_IPV4, address) is not None or IPv4Address(address) not in IPv4Network(settings.ipv4_pool)
    ):
        raise WrongState(f"the node cannot take its address {address}: {COLD_START}")


def _enter_machine(tx: Tx, deps: FlowDeps, node: NodeRecord, unit: Delivered, record: IncomingRecord) -> None:
    """As it was, but for what belongs to a node: IPv4 address, user ids, room."""
    machine = unit.machine
    assert machine is not None
    if tx.get(BY_NAME, f"{machine.app}/{machine.name}") is not None:
        raise WrongState(f"another machine of app '{machine.app}' has the name '{machine.name}' there")
    network, memory = machine.network, record.memory
    if deps.networks is not None and memory is not None:
        check_address(tx, deps.settings, machine)
    elif deps.networks is not None:
        address = free_ipv4(tx, IPv4Network(deps.settings.ipv4_pool), machine.id)
        network = msgspec.structs.replace(network, ipv4=address)
    run = Launch(instance_id=InstanceId(new_ulid(deps.clock)))
    room = room_for(deps.settings, deps.driver.features.overhead_mib, machine.config)
    mine = msgspec.structs.replace(
        machine,
        region=node.region,
        generation=record.generation,
        network=network,
        first_id=None,
        gpus=(),
        holds=with_root(room if unit.ran or memory is not None else Resources(), record.root),
        running=None if unit.ran or memory is not None else _last_instance(machine),
        previous=None,
        awaited=run.instance_id if unit.ran else None,
        restarts=0,
        state=State.STARTING if unit.ran else State.STOPPED,
    )
    mine = with_ids(tx, id_pool(deps.settings, deps.driver.features), mine)
    unit.failover.enter(tx, mine.id)  # before its row, so that others read of its takeovers no later than of it
    deps.table.enter(tx, mine, unit.versions, unit.events)
    deps.secrets.pin_opened(tx, mine.app, mine.id, mine.version, unit.secrets)
    if memory is not None:
        mine = deps.table.change(tx, mine, Happened("migrate", "done", "user"), state=State.SUSPENDING)
        arrival = ArriveInput(instance_id=memory.running.instance_id, move=record.move)
        deps.runs.accept(tx, ARRIVE_FLOW, machine_resource(mine.id), arrival)
        return
    damaged = unit.volume if unit.volume is not None and unit.volume.damaged else None
    said = None if damaged is None else Detail(error=_LOST.format(damaged.id))
    mine = deps.table.change(tx, mine, Happened("migrate", "started" if unit.ran else "done", "user", said))
    if unit.ran:
        if not unit.back_of:
            trial = TrialRecord(
                move=record.move,
                source=record.source,
                version=mine.version,
                started=newest_start(unit.events),
                until=deps.clock.now() + TRIED_AT_MOST_S,
            )
            tx.put(TRIALS, mine.id, trial)
        deps.table.change(tx, mine, Happened("start", "starting"))
        deps.runs.accept(tx, "start", machine_resource(mine.id), run)


def _last_instance(machine: MachineRecord) -> Running | None:
    """How the latest one of a machine that is off ended: when it is due by its schedule follows from that, and whether
    it rests. Nothing of it is here."""
    return machine.running if machine.running is not None and machine.running.exit is not None else None


RECEIVE = Flow(
    name="receive",
    input=ReceiveInput,
    steps=(
        Step("image", image, undo=undo_hold, timeout_s=3600, backoff=Backoff(attempts=2), points=("child_accepted",)),
        Step("fetch", fetch, timeout_s=7 * 86_400.0, backoff=Backoff(attempts=30, cap_s=5.0), durable=True, waits=True,
             points=("drafted", "copied")),
        Step("settle", settle, timeout_s=86_400.0, backoff=Backoff(attempts=1000), waits=True),
    ),
    on_end=release,
)  # fmt: skip
