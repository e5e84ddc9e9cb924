"""Moves that accept losses, between played hosts: zeros come only for what was noted before, and whoever has them at
the end says so.
"""

from pathlib import Path

import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.move import GET_MOVE, MoveParams
from hawker.api.contract.move_peer import MovedPieceQuery
from hawker.api.contract.volume import (
    CREATE_BACKUP,
    CREATE_VOLUME,
    UPDATE_VOLUME,
    CreateVolumeRequest,
    UpdateVolumeRequest,
    VolumeParams,
)
from hawker.errors import Damaged, MoveUnderWay, Unprocessable
from hawker.host.changed_blocks import BLOCK_BYTES
from hawker.host.unreadable import FileRange, UnreadableBytes
from hawker.ids import VolumeId
from hawker.machine import State
from hawker.record.machine import EVENTS
from hawker.record.move import MOVES, MoveMode, MoveRecord, MoveState
from hawker.record.volume import VOLUMES, VolumeRecord
from hawker.sim.harness.loop import eventually
from hawker.sim.node.sim_worker import APP
from tests.sim.moves.fleets import PlayedFleet, played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

ROTTEN = frozenset({5, 6, 9})
LOST = ((5 * BLOCK_BYTES, 2 * BLOCK_BYTES), (9 * BLOCK_BYTES, BLOCK_BYTES))


async def lossy(fleet: PlayedFleet, **fields: object) -> MoveRecord:
    fleet.hosts[0].world.disks.rot[fleet.volume] = ROTTEN
    return await fleet.ended(0, (await fleet.move(0, 1, accept_loss=True, **fields)).id)


def volume_at(fleet: PlayedFleet, number: int) -> VolumeRecord:
    found = fleet.hosts[number].world.store.get(VOLUMES, fleet.volume)
    assert found is not None
    return found


async def test_a_machine_comes_with_what_is_left_of_its_volume_and_stays_stopped() -> None:
    async with played_fleet() as fleet:
        move = await lossy(fleet)
        assert (move.state, move.mode, move.lost) == (MoveState.DONE, MoveMode.COLD, LOST)
        shown = await fleet.worker(0).api.call(GET_MOVE, params=MoveParams(move_id=move.id))
        assert shown.accept_loss and shown.lost == LOST
        damage = volume_at(fleet, 1).damage
        assert damage is not None and (damage.node, damage.lost, damage.accepted_at) == (fleet.id(0), LOST, None)
        assert fleet.hosts[1].world.disks.files[fleet.volume].holes == ROTTEN
        record = await fleet.worker(1).reaches(fleet.machine, State.STOPPED)
        await fleet.worker(1).at_rest()
        named = (await fleet.worker(1).get_volume(fleet.volume)).damage
        assert named is not None and (named.files, named.unnamed) == (("/part-5", "/part-6", "/part-9"), "")
        details = [each.detail for _, each in fleet.hosts[1].world.store.scan(EVENTS, f"{record.id}/")]
        assert any(each and f"volume {fleet.volume} was lost" in (each.error or "") for each in details)


async def test_nothing_is_done_with_a_volume_of_which_some_is_lost() -> None:
    async with played_fleet() as fleet:
        await lossy(fleet)
        worker = fleet.worker(1)
        await worker.reaches(fleet.machine, State.STOPPED)
        at, fork = (
            VolumeParams(app_name=APP, volume_id=fleet.volume),
            CreateVolumeRequest(name="copy", source_volume_id=fleet.volume),
        )
        for call in (
            worker.start(fleet.machine),
            worker.restart(fleet.machine),
            worker.update(fleet.machine, mounts=[{"volume": fleet.volume, "path": "/data"}]),
            worker.extend_volume(fleet.volume, 2),
            worker.snapshot(fleet.volume),
            worker.api.call(CREATE_BACKUP, params=at),
            worker.api.call(CREATE_VOLUME, params=AppParams(app_name=APP), body=fork),
        ):
            with pytest.raises(Damaged, match="--accept-damage"):
                await call
        shown = (await worker.get_volume(fleet.volume)).damage
        assert shown is not None and not shown.accepted and shown.lost_bytes == 3 * BLOCK_BYTES
        assert fleet.hosts[1].sight().running == frozenset()


async def test_a_volume_whose_damage_is_accepted_is_repaired_by_the_next_mount_and_by_that_one_alone() -> None:
    async with played_fleet() as fleet:
        await lossy(fleet)
        worker, repaired = fleet.worker(1), fleet.hosts[1].world.disks.repaired
        await worker.reaches(fleet.machine, State.STOPPED)
        await accept(fleet, 1)
        assert repaired[fleet.volume] == 0 and volume_at(fleet, 1).wants_repair
        fleet._acknowledged.pop(fleet.volume, None)  # some of it was lost, and that was accepted
        await worker.start(fleet.machine)
        await worker.reaches(fleet.machine, State.STARTED)
        shown = (await worker.get_volume(fleet.volume)).damage
        assert shown is not None and shown.accepted and shown.repaired and shown.lost == LOST
        assert repaired[fleet.volume] == 1
        await worker.stop(fleet.machine)
        await worker.reaches(fleet.machine, State.STOPPED)
        await worker.start(fleet.machine)
        await worker.reaches(fleet.machine, State.STARTED)
        assert repaired[fleet.volume] == 1
        await worker.snapshot(fleet.volume)
        assert (await fleet.ended(1, (await fleet.move(1, 2)).id)).state is MoveState.DONE
        await fleet.worker(2).reaches(fleet.machine, State.STARTED)


async def test_damage_is_not_accepted_of_a_volume_that_moves() -> None:
    async with played_fleet() as fleet:
        await lossy(fleet)
        await fleet.worker(1).reaches(fleet.machine, State.STOPPED)
        await fleet.move(1, 2)
        with pytest.raises(MoveUnderWay):
            await accept(fleet, 1)


async def accept(fleet: PlayedFleet, number: int) -> None:
    at = VolumeParams(app_name=APP, volume_id=fleet.volume)
    await fleet.worker(number).api.call(UPDATE_VOLUME, params=at, body=UpdateVolumeRequest(accept_damage=True))


async def test_a_volume_by_itself_comes_damaged_and_no_new_machine_gets_it() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[0].world.disks.rot[VolumeId(fleet.free)] = frozenset({0})
        move = await fleet.ended(0, (await fleet.move_free(0, 1, accept_loss=True)).id)
        assert move.state is MoveState.DONE and move.lost == ((0, BLOCK_BYTES),)
        with pytest.raises(Damaged):
            await fleet.worker(1).create(mounts=[{"volume": fleet.free, "path": "/data"}])


async def test_a_move_that_accepts_losses_and_meets_none_is_as_any_other() -> None:
    async with played_fleet() as fleet:
        move = await fleet.ended(0, (await fleet.move(0, 1, accept_loss=True)).id)
        assert move.state is MoveState.DONE and move.lost == () and volume_at(fleet, 1).damage is None
        await fleet.worker(1).reaches(fleet.machine, State.STARTED)
        assert await fleet.settled() == []
        with pytest.raises(Unprocessable, match="use `cold`"):
            await fleet.move(1, 0, accept_loss=True, mode="warm")


async def test_a_damaged_volume_moves_on_with_what_is_lost_of_it() -> None:
    async with played_fleet() as fleet:
        await lossy(fleet)
        await fleet.worker(1).reaches(fleet.machine, State.STOPPED)
        assert (await fleet.ended(1, (await fleet.move(1, 2)).id)).state is MoveState.DONE
        damage = volume_at(fleet, 2).damage
        assert damage is not None and (damage.node, damage.lost) == (fleet.id(0), LOST)
        await fleet.worker(2).reaches(fleet.machine, State.STOPPED)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("power", [False, True])
async def test_losses_outlive_the_death_of_either_node_after_each_was_noted(victim: int, power: bool) -> None:
    async with played_fleet() as fleet:
        fleet.hosts[0].world.disks.rot[fleet.volume] = ROTTEN
        move = await fleet.move(0, 1, accept_loss=True)
        for places in (1, 2):

            def is_noted(places: int = places) -> bool:
                record = fleet.hosts[0].world.store.get(MOVES, move.id)
                return record is not None and len(record.lost) >= places

            await eventually(fleet._clock, is_noted, 120, 0.0002)
            await fleet.again(victim, kept=0.0, power=power)
        ended = await fleet.ended(0, move.id)
        assert ended.state is MoveState.DONE and ended.lost == LOST
        damage = volume_at(fleet, 1).damage
        assert damage is not None and damage.lost == LOST
        assert fleet.hosts[1].world.disks.files[fleet.volume].holes == ROTTEN


async def test_a_move_that_is_refused_leaves_the_volume_undamaged_where_it_was() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[1].refuses = True
        move = await lossy(fleet)
        assert move.state is MoveState.ABORTED and move.lost == LOST
        assert volume_at(fleet, 0).damage is None
        await fleet.worker(0).reaches(fleet.machine, State.STARTED)


async def test_nothing_of_a_kept_root_filesystem_counts_as_lost() -> None:
    async with played_fleet(seed=2) as fleet:
        move = await lossy(fleet)
        assert move.state is MoveState.DONE and move.root is not None and move.lost == LOST
    async with played_fleet(seed=2) as fleet:
        made = await fleet.move(0, 1, accept_loss=True)
        moves_there = fleet.worker(0).parts.moves
        await eventually(fleet._clock, lambda: fleet.hosts[1].sight().drafts, 120, 0.0005)
        file, lost = moves_there.handed_over(made.id, MovedPieceQuery(generation=made.generation, root=True))
        assert file.layer and lost is None
        with pytest.raises(Damaged, match=r"the root filesystem of machine \w+ cannot be read at byte 4096"):
            await moves_there.note_unreadable(made.id, file, UnreadableBytes(Path("kept"), FileRange(4096, 4096)))
        move = await fleet.ended(0, made.id)
        assert move.lost == () and "the root filesystem" in move.damage
