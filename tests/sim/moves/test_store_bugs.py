"""What each store of a planted bug does not keep."""

import msgspec
import pytest

from hawker.ids import Version
from hawker.node import Resources
from hawker.proof.invariants import of_store
from hawker.record.move import (
    COMING_SNAPSHOTS,
    GRANTS,
    INCOMING,
    MOVED,
    TRIALS,
    ComingSnapshot,
    IncomingState,
    TrialRecord,
)
from hawker.record.node import hold, used
from hawker.record.volume import SNAPSHOTS
from hawker.sim.moves.store_bugs import (
    LazyStore,
    StoreWith,
    WithoutHolds,
    WithoutRefusals,
    WithoutSignposts,
    WithoutTrials,
)
from hawker.store.contract import Tx
from tests.sim.moves.fleets import played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


async def test_lazy_store_loses_what_it_was_told_to_write_last() -> None:
    async with played_fleet() as fleet:
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        store = fleet.hosts[0].world.store
        grant = store.get(GRANTS, fleet.machine)
        assert grant is not None
        await LazyStore(GRANTS, store).write(lambda tx: tx.put(GRANTS, "late", grant))
        assert store.get(GRANTS, "late") is not None and store.crash(0).get(GRANTS, "late") is None


async def test_stores_leave_out_signposts_refusals_and_held_room() -> None:
    async with played_fleet() as fleet:
        source, destination = fleet.hosts[0].world.store, fleet.hosts[1].world.store
        (snapshot, _) = [each for _, each in source.scan(SNAPSHOTS)]
        move = await fleet.ended(0, (await fleet.move(0, 1)).id)
        post, came = source.get(MOVED, fleet.machine), destination.get(INCOMING, move.id)
        assert post is not None and came is not None
        await StoreWith(WithoutSignposts, source).write(lambda tx: tx.put(MOVED, "other", post))
        assert source.get(MOVED, "other") is None
        trial = TrialRecord(move=move.id, source=fleet.id(0), version=Version("01"), until=0.0)
        await StoreWith(WithoutTrials, destination).write(lambda tx: tx.put(TRIALS, "other", trial))
        assert destination.get(TRIALS, "other") is None
        refused = msgspec.structs.replace(came, state=IncomingState.REFUSED)
        await StoreWith(WithoutRefusals, destination).write(lambda tx: tx.put(INCOMING, move.id, refused))
        assert destination.get(INCOMING, move.id) == came
        holds = Resources(disk_mib=1024)
        coming = ComingSnapshot(snapshot=snapshot, source=fleet.id(2), move=move.id, generation=2, holds=holds)

        def comes(tx: Tx) -> None:
            hold(tx, Resources(), holds)
            tx.put(COMING_SNAPSHOTS, "other", coming)

        before = used(destination)
        await StoreWith(WithoutHolds, destination).write(comes)
        written = destination.get(COMING_SNAPSHOTS, "other")
        assert written is not None and written.holds == Resources() and used(destination) == before
        assert of_store(destination) == []
