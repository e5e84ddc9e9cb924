"""What moves leave behind: forgotten after its days, and not before."""

import msgspec
import pytest

from hawker.ids import MachineId, VolumeId
from hawker.record.machine import machine_resource
from hawker.record.move import COMING_SNAPSHOTS, GRANTS, MOVED, MOVES, RETIRED_UNITS, SIGNPOSTS_KEPT_S, RetiredUnit
from hawker.record.volume import SNAPSHOTS, volume_resource
from hawker.sim.harness.loop import eventually
from hawker.store.contract import Tx
from hawker.worker.moves.sweep import MoveSweep
from tests.sim.moves.fleets import played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


async def test_signposts_and_ended_moves_are_forgotten_after_their_days() -> None:
    async with played_fleet() as fleet:
        move = await fleet.ended(0, (await fleet.move_free(0, 1)).id)
        store = fleet.hosts[0].world.store
        await eventually(fleet._clock, lambda: store.count(SNAPSHOTS) == 1, 600)  # the machine's volume is here still
        post = store.get(MOVED, fleet.free)
        assert post is not None
        old = fleet._clock.now() - SIGNPOSTS_KEPT_S - 1

        def age(tx: Tx) -> None:
            tx.put(MOVED, fleet.free, msgspec.structs.replace(post, at=old))
            tx.put(MOVES, move.id, msgspec.structs.replace(move, updated_at=old))

        await store.write(age)
        parts = fleet.worker(0).parts
        assert parts.runner.list(resource=volume_resource(VolumeId(fleet.free)))
        await MoveSweep(parts.deps, parts.scheduled_moves).sweep()
        assert (store.count(MOVED), store.count(MOVES), store.count(GRANTS)) == (0, 0, 0)
        assert parts.runner.list(resource=volume_resource(VolumeId(fleet.free))) == []


async def test_runs_at_a_machine_that_moved_away_are_forgotten_with_its_signpost() -> None:
    async with played_fleet() as fleet:
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        store, parts, clock = fleet.hosts[0].world.store, fleet.worker(0).parts, fleet._clock
        await eventually(clock, lambda: store.count(SNAPSHOTS) == 1, 600)  # that of the free volume
        old = clock.now() - SIGNPOSTS_KEPT_S - 1

        def age(tx: Tx) -> None:
            for key, post in list(tx.scan(MOVED)):
                tx.put(MOVED, key, msgspec.structs.replace(post, at=old))

        await store.write(age)
        assert parts.runner.list(resource=machine_resource(MachineId(fleet.machine)))
        await MoveSweep(parts.deps, parts.scheduled_moves).sweep()
        for resource in (machine_resource(MachineId(fleet.machine)), volume_resource(fleet.volume)):
            assert parts.runner.list(resource=resource) == []


async def test_unit_that_can_be_taken_back_no_more_is_not_there_again_after_a_power_cut() -> None:
    async with played_fleet() as fleet:
        store, parts = fleet.hosts[0].world.store, fleet.worker(0).parts
        await store.write(lambda tx: tx.put(RETIRED_UNITS, "old", RetiredUnit(until=fleet._clock.now())))
        await MoveSweep(parts.deps, parts.scheduled_moves).sweep()
        await fleet.again(0, kept=0, power=True)
        assert fleet.hosts[0].world.store.count(RETIRED_UNITS) == 0


async def test_a_move_is_remembered_as_long_as_snapshots_are_to_follow_by_it() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[1].world.copies.free_bytes = 0
        move = await fleet.ended(0, (await fleet.move_free(0, 1)).id)
        store = fleet.hosts[0].world.store
        post = store.get(MOVED, fleet.free)
        assert post is not None
        old = fleet._clock.now() - SIGNPOSTS_KEPT_S - 1

        def age(tx: Tx) -> None:
            tx.put(MOVED, fleet.free, msgspec.structs.replace(post, at=old))
            tx.put(MOVES, move.id, msgspec.structs.replace(move, updated_at=old))

        await store.write(age)
        parts = fleet.worker(0).parts
        await MoveSweep(parts.deps, parts.scheduled_moves).sweep()
        assert store.get(MOVES, move.id) is not None and store.get(MOVED, fleet.free) is not None
        fleet.hosts[1].world.copies.free_bytes = 1 << 50
        await eventually(fleet._clock, lambda: store.count(SNAPSHOTS) == 1, 900)


async def test_a_snapshot_under_way_keeps_its_draft_and_one_that_goes_elsewhere_leaves_none() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[1].world.copies.free_bytes = 0
        await fleet.ended(0, (await fleet.move_free(0, 1)).id)
        store, files, parts = fleet.hosts[1].world.store, fleet.hosts[1].world.moved_files, fleet.worker(1).parts
        coming = next(each for _, each in store.scan(COMING_SNAPSHOTS))
        await files.begin(coming.snapshot.id, 1 << 20, 0)
        sweep = MoveSweep(parts.deps, parts.scheduled_moves)
        await sweep.sweep()
        assert await files.drafts() == [coming.snapshot.id]
        await store.write(lambda tx: tx.delete(COMING_SNAPSHOTS, coming.snapshot.id))
        await sweep.sweep()
        assert await files.drafts() == []
