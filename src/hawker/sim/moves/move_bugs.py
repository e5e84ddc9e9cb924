"""The planted bugs of moves: each is what a node of this kind gets wrong, and the simulator must find every one."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from hawker.api.contract.market import OrderedApp
from hawker.api.contract.move_peer import (
    RELEASE_SNAPSHOT,
    DeliverRequest,
    MovedSnapshotParams,
    OfferedSnapshotsRequest,
    ReleaseSnapshotQuery,
)
from hawker.errors import HawkerError
from hawker.fsm.contract import Done, Flow, Outcome, Retry, Step
from hawker.ids import AppName, VolumeId
from hawker.proof.violation import Invariant as I
from hawker.record.app import APPS
from hawker.record.machine import MACHINES
from hawker.record.move import (
    GRANTS,
    INCOMING,
    MOVED,
    MOVES,
    TURNS,
    Delivered,
    IncomingRecord,
    IncomingState,
    MoveRecord,
    MoveState,
    coming_snapshots,
)
from hawker.record.node import NODE
from hawker.record.volume import VOLUMES
from hawker.sim.harness.planted_bug import PlantedBug
from hawker.sim.moves.file_bugs import (
    BelievesOldMarks,
    ComparesNothing,
    ForgetsMemory,
    LeavesRoots,
    NeverSyncs,
    RetiresEarly,
    SeesNoChange,
    ZerosUnsaid,
    files_kit,
)
from hawker.sim.moves.store_bugs import (
    LazyStore,
    NotingTx,
    StoreWith,
    WithoutHolds,
    WithoutKeys,
    WithoutRefusals,
    WithoutSignposts,
    WithoutTrials,
)
from hawker.sim.node.kit import WorkerKit
from hawker.store.contract import Tx
from hawker.up.wiring import NODE_FLOWS
from hawker.volume.moved_files import draft_of
from hawker.worker.moves.orders import MachineMoves
from hawker.worker.moves.outgoing import change_move, give_back
from hawker.worker.moves.receive import own
from hawker.worker.moves.reclaims import Reclaims
from hawker.worker.moves.unit import files_of, unit_files

T = TypeVar("T")
R = TypeVar("R")
StepDo: TypeAlias = Callable[[Any], Awaitable[Outcome]]
Flows: TypeAlias = Callable[[], Sequence[Flow[Any]]]


def _with_step(flow: str, step: str, made: Callable[[StepDo], StepDo]) -> Flows:
    """The node's flows, of which one does one step in another way."""

    def row(found: Step) -> Step:
        return replace(found, do=made(found.do)) if found.name == step else found

    def changed(each: Flow[Any]) -> Flow[Any]:
        return replace(each, steps=tuple(map(row, each.steps))) if each.name == flow else each

    return lambda: tuple(map(changed, NODE_FLOWS))


def _owns_what_it_copied(fetch: StepDo) -> StepDo:
    """The destination does not wait for the grant, where it knows the app."""

    async def owns(context: Any) -> Outcome:
        found, deps = await fetch(context), context.deps
        record = deps.store.get(INCOMING, context.resource.id)
        known = record is not None and deps.store.get(APPS, record.app) is not None
        if not isinstance(found, Done) or record is None or record.state is not IncomingState.READY or not known:
            return found
        for each in unit_files(record):
            await files_of(deps).adopt(draft_of(record.move, each), each)
        return Done(commit=lambda tx: _own_early(tx, deps, record))

    return owns


def _own_early(tx: Tx, deps: Any, record: IncomingRecord) -> None:
    app, node = tx.get(APPS, record.app), tx.get(NODE, "self")
    assert app is not None and node is not None
    fields = msgspec.structs.asdict(app)
    del fields["idempotency_key"], fields["home"]
    carried = OrderedApp(**fields, luggage=deps.others.there.pack(tx, app))
    unit = Delivered(machine=record.machine, volume=record.volume, ran=record.machine is not None)
    own(tx, deps, node, record.move, unit, carried)


def _gives_up_a_delivery(deliver: StepDo) -> StepDo:
    """A new owner that does not answer counts as one that refused."""

    async def delivers(context: Any) -> Outcome:
        found, deps = await deliver(context), context.deps
        if not isinstance(found, Retry):
            return found
        move = deps.store.get(MOVES, context.input.move)
        return Done(result="refused", commit=lambda tx: _restart(tx, deps, move))

    return delivers


def _closes_early(stop: StepDo) -> StepDo:
    """The volume counts as closed before the machine is stopped."""

    async def stops(context: Any) -> Outcome:
        deps = context.deps
        await deps.store.write(lambda tx: change_move(tx, deps, context.run_id, state=MoveState.COPYING))
        return await stop(context)

    return stops


def _restart(tx: Tx, deps: Any, move: MoveRecord) -> None:
    tx.delete(GRANTS, move.unit)
    for each in filter(None, (move.machine, move.volume)):
        tx.delete(MOVED, each)
    give_back(tx, deps, move.id, "no answer")


def _never_releases() -> Sequence[Flow[Any]]:
    return tuple(replace(each, on_end=None) if each.name == "receive" else each for each in NODE_FLOWS)


class _SameGeneration(MachineMoves):
    """What goes to another node has the generation that it had."""

    def _order(self, tx: Tx, *order: Any, **also: Any) -> MoveRecord:
        move = super()._order(tx, *order, **also)
        same = msgspec.structs.replace(move, generation=move.generation - 1)
        tx.put(MOVES, move.id, same)
        return same


class _KeepsSnapshots(MachineMoves):
    """A snapshot that the volume's owner has stays here, too."""

    async def release_snapshot(self, move_id: str, generation: int, snapshot_id: str) -> None:
        return None


class _ForgetsSnapshots(MachineMoves):
    """Those at a node from which a volume was taken back count as gone with it."""

    async def expect_snapshots(self, offered: OfferedSnapshotsRequest) -> None:
        return None


def _takes_for_granted(bring: StepDo) -> StepDo:
    """A snapshot's former node is told to let go of it as soon as its volume has gone."""

    async def brings(context: Any) -> Outcome:
        deps = context.deps
        for each in coming_snapshots(deps.store, VolumeId(context.resource.id)):
            params = MovedSnapshotParams(move_id=each.move, snapshot_id=each.snapshot.id)
            query = ReleaseSnapshotQuery(generation=each.generation)
            with suppress(HawkerError):
                await deps.others.there.caller(each.source).call(RELEASE_SNAPSHOT, params=params, query=query)
        return await bring(context)

    return brings


class _KeepsRoom(MachineMoves):
    """What was held for a move that ended stays held."""

    async def drop(self, move_id: str) -> None:
        return None


class _ManyAway(MachineMoves):
    """Machines and volumes of an app move at once."""

    def _check_alone(self, tx: Tx, app: AppName) -> None:
        return None


class _AcceptsAgain(MachineMoves):
    """What comes late is owned once more, though it has gone on from here."""

    async def accept(self, move_id: str, given: DeliverRequest) -> IncomingRecord:
        found = await super().accept(move_id, given)
        deps = self._deps
        unit = msgspec.msgpack.decode(deps.others.there.open(given.unit), type=Delivered)
        here = deps.store.get(MACHINES, found.unit) or deps.store.get(VOLUMES, found.unit)
        if found.state is IncomingState.ACCEPTED and here is None:
            await deps.store.write(lambda tx: self._again(tx, found, unit, given))
        return found

    def _again(self, tx: Tx, found: IncomingRecord, unit: Delivered, given: DeliverRequest) -> None:
        tx.put(INCOMING, found.move, msgspec.structs.replace(found, state=IncomingState.COPIED))
        own(tx, self._deps, self._node, found.move, unit, given.app)


class _AsksNoGossip(Reclaims):
    async def _check_lost(self, move: MoveRecord) -> None:
        return None


class _ReclaimsAlive(MachineMoves):
    """What is taken back is taken from nodes that live, too."""

    @property
    def reclaims(self) -> Reclaims:
        return _AsksNoGossip(self._deps, self._room)


class _SettlesEarly(MachineMoves):
    """An owner is told that nobody takes it back while that can be done."""

    def is_settled(self, move: MoveRecord) -> bool:
        return move.state is MoveState.DONE


class _RaisesNothing(Reclaims):
    def _generation(self, move: MoveRecord) -> int:
        return move.generation


class _ReclaimsTheSame(MachineMoves):
    """What is taken back has the generation that was granted."""

    @property
    def reclaims(self) -> Reclaims:
        return _RaisesNothing(self._deps, self._room)


def _asks_nobody(rootfs: StepDo) -> StepDo:
    """A node that returns starts what it had."""

    async def starts(context: Any) -> Outcome:
        context.deps.claims.update(key for key, _ in context.deps.store.scan(INCOMING))
        return await rootfs(context)

    return starts


def _writes(by: type[NotingTx]) -> WorkerKit:
    return WorkerKit(store=partial(StoreWith, by))


def _wakes(close: StepDo) -> StepDo:
    """A suspended machine goes on at its source while its memory is copied."""

    async def closes(context: Any) -> Outcome:
        found, move = await close(context), context.deps.store.get(MOVES, context.run_id)
        if move is not None and move.memory is not None:
            await context.deps.driver.resume(move.machine)
        return found

    return closes


def _plant(name: str, what: str, kit: WorkerKit, *breaks: I) -> PlantedBug[WorkerKit]:
    return PlantedBug(name=name, what=what, kit=kit, breaks=frozenset(breaks))


PLANTS: tuple[PlantedBug[WorkerKit], ...] = (
    _plant(
        "starts-ungranted",
        "the destination owns what it copied, before it was granted",
        WorkerKit(flows=_with_step("receive", "fetch", _owns_what_it_copied)),
        *I,
    ),
    _plant(
        "restarts-granted",
        "the source takes back what it granted when the new owner does not answer",
        WorkerKit(flows=_with_step("deliver", "deliver", _gives_up_a_delivery)),
        *I,
    ),
    _plant("same-generation", "a new owner has the generation of the old one", WorkerKit(moves=_SameGeneration), *I),
    _plant(
        "grant-not-durable",
        "a grant is acted on before it is on disk",
        WorkerKit(store=partial(LazyStore, GRANTS)),
        *I,
    ),
    _plant("early-retirement", "the source's file goes before the grant", files_kit(RetiresEarly), *I),
    _plant(
        "room-kept",
        "what was held for a move that was aborted stays held",
        WorkerKit(flows=_never_releases, moves=_KeepsRoom),
        *I,
    ),
    _plant(
        "no-signpost",
        "a node forgets where what it had went",
        _writes(WithoutSignposts),
        *I,
    ),
    _plant(
        "refusal-forgotten",
        "a node that refused takes what comes once more",
        _writes(WithoutRefusals),
        *I,
    ),
    _plant("copy-believed", "the copy is not compared with its source", files_kit(ComparesNothing), *I),
    _plant("changes-unseen", "what is written during the copy is not copied again", files_kit(SeesNoChange), *I),
    _plant("old-marks", "a source that was killed forgets what changed before", files_kit(BelievesOldMarks), *I),
    _plant("copy-not-synced", "a copy counts before it is on disk", files_kit(NeverSyncs), *I),
    _plant("key-dropped", "what opens a volume does not go along", _writes(WithoutKeys), *I),
    _plant("root-left", "what a machine keeps of its root filesystem does not go along", files_kit(LeavesRoots), *I),
    _plant(
        "closed-early",
        "the source says that nobody writes any more while the machine still does",
        WorkerKit(flows=_with_step("move", "stop", _closes_early)),
        *I,
    ),
    _plant("zeros-unsaid", "what cannot be read goes as zeros that nobody lists", files_kit(ZerosUnsaid), *I),
    _plant(
        "accept-not-durable",
        "a new owner acts before its own commit",
        WorkerKit(store=partial(LazyStore, INCOMING)),
        *I,
    ),
    _plant("snapshot-stays", "the former node of a snapshot keeps it", WorkerKit(moves=_KeepsSnapshots), *I),
    _plant(
        "snapshot-abandoned",
        "snapshots at a node that lost their volume and returned stay there",
        WorkerKit(moves=_ForgetsSnapshots),
        *I,
    ),
    _plant(
        "snapshot-let-go",
        "the former node of a snapshot lets go of it before the new one has it",
        WorkerKit(flows=_with_step("bring_snapshots", "bring", _takes_for_granted)),
        *I,
    ),
    _plant(
        "stays-down",
        "a machine that does not start where it came to stays there",
        _writes(WithoutTrials),
        *I,
    ),
    _plant(
        "snapshot-unheld",
        "room for a snapshot is looked at, and not held",
        _writes(WithoutHolds),
        *I,
    ),
    _plant("accepts-again", "a late grant is taken for a new one", WorkerKit(moves=_AcceptsAgain), *I),
    _plant(
        "reclaim-unfenced",
        "a node that returns does not ask whether what it had was taken back",
        WorkerKit(flows=_with_step("start", "rootfs", _asks_nobody)),
        *I,
    ),
    _plant(
        "settles-early",
        "an owner is told that nobody takes it back while the former one still can",
        WorkerKit(moves=_SettlesEarly),
        *I,
    ),
    _plant("reclaim-alive", "something is taken back from a node that lives", WorkerKit(moves=_ReclaimsAlive), *I),
    _plant(
        "reclaim-same-generation",
        "what is taken back has the generation that was granted",
        WorkerKit(moves=_ReclaimsTheSame),
        *I,
    ),
    _plant(
        "turn-not-durable", "a turn is given before that is on disk", WorkerKit(store=partial(LazyStore, TURNS)), *I
    ),
    _plant(
        "memory-left",
        "the memory of a suspended machine does not go along",
        WorkerKit(driver=ForgetsMemory),
        *I,
    ),
    _plant(
        "memory-awake",
        "a suspended machine goes on while its memory is copied",
        WorkerKit(flows=_with_step("move", "close", _wakes)),
        *I,
    ),
    _plant("many-away", "an app has two moves under way at once", WorkerKit(moves=_ManyAway), *I),
)
