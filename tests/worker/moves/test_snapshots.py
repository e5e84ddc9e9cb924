"""Snapshots follow their volume, between played hosts, whoever is away; at every moment some node has each."""

import msgspec
import pytest
from msgspec.structs import replace

from hawker.api.contract.app import AppParams
from hawker.api.contract.move import GET_MOVE, MoveParams
from hawker.api.contract.move_peer import OfferedSnapshotsRequest
from hawker.api.contract.volume import (
    CREATE_VOLUME,
    LIST_SNAPSHOTS,
    CreateVolumeRequest,
    VolumeParams,
    VolumeSnapshot,
)
from hawker.errors import NoRoom, NotFound
from hawker.ids import SnapshotId
from hawker.node import Resources
from hawker.proof.invariants import of_store
from hawker.record.move import COMING_SNAPSHOTS, MoveState, held_by_incoming
from hawker.record.node import used
from hawker.record.volume import SNAPSHOTS, SnapshotRecord, VolumeState
from hawker.sim.harness.loop import eventually
from hawker.sim.moves.move_host import ROOM
from hawker.sim.node.sim_worker import APP
from tests.sim.moves.fleets import PlayedFleet, played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


def snapshot_of(fleet: PlayedFleet, number: int) -> SnapshotRecord | None:
    """That of the machine's volume, as this host has it."""
    store = fleet.hosts[number].world.store
    return next((each for _, each in store.scan(SNAPSHOTS) if each.volume == fleet.volume), None)


async def listed(fleet: PlayedFleet, number: int) -> list[VolumeSnapshot]:
    at = VolumeParams(app_name=APP, volume_id=fleet.volume)
    answer: tuple[VolumeSnapshot, ...] = await fleet.worker(number).api.call(LIST_SNAPSHOTS, params=at)
    return list(answer)


async def left(fleet: PlayedFleet, number: int, move_id: str) -> int:
    shown = await fleet.worker(number).api.call(GET_MOVE, params=MoveParams(move_id=move_id))
    return shown.snapshots_left


async def arrives(fleet: PlayedFleet, number: int, snapshot_id: str) -> None:
    def there() -> bool:
        store = fleet.hosts[number].world.store
        return store.get(SNAPSHOTS, SnapshotId(snapshot_id)) is not None and store.count(COMING_SNAPSHOTS) == 0

    await eventually(fleet._clock, there, 3600)


async def test_a_snapshot_follows_its_volume_and_stays_what_it_was() -> None:
    async with played_fleet() as fleet:
        before = snapshot_of(fleet, 0)
        assert before is not None and before.key is not None
        move = await fleet.ended(0, (await fleet.move(0, 1)).id)
        await arrives(fleet, 1, before.id)
        after = snapshot_of(fleet, 1)
        assert after is not None and replace(after, key=before.key) == before
        assert snapshot_of(fleet, 0) is None
        assert await left(fleet, 0, move.id) == 0
        assert await fleet.settled() == []
        assert before.id not in fleet.hosts[0].world.copies.snapshots


async def test_a_volume_is_restored_at_the_new_node_from_a_snapshot_that_has_followed() -> None:
    async with played_fleet() as fleet:
        before = snapshot_of(fleet, 0)
        assert before is not None
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        await arrives(fleet, 1, before.id)
        body = CreateVolumeRequest(name="restored", snapshot_id=before.id, region="mad")
        made = await fleet.worker(1).api.call(CREATE_VOLUME, params=AppParams(app_name=APP), body=body)
        volumes, store = fleet.worker(1).parts.deps.volumes, fleet.hosts[1].world.store
        await eventually(
            fleet._clock, lambda: volumes.find(store, before.app, made.id).state is VolumeState.CREATED, 60
        )
        taken = fleet.hosts[1].world.copies.snapshots[before.id].content
        assert fleet.hosts[1].world.disks.files[volumes.find(store, before.app, made.id).id].content == taken


async def test_a_snapshot_is_listed_with_its_node_until_that_node_is_back() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[1].world.copies.free_bytes = 0
        move = await fleet.ended(0, (await fleet.move(0, 1)).id)
        assert await left(fleet, 0, move.id) == 1
        await fleet.hosts[0].kill()
        fleet.hosts[1].world.copies.free_bytes = 1 << 50
        await fleet._clock.sleep(600)
        shown = await listed(fleet, 1)
        assert [each.node for each in shown] == [fleet.id(0)]
        await fleet.hosts[0].begin(fleet._tasks)
        await arrives(fleet, 1, shown[0].id)
        assert [each.node for each in await listed(fleet, 1)] == [None]
        assert await fleet.settled() == []


async def test_a_destination_without_room_waits_for_it() -> None:
    async with played_fleet() as fleet:
        before = snapshot_of(fleet, 0)
        assert before is not None
        fleet.hosts[1].world.copies.free_bytes = before.size - 1
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        await fleet._clock.sleep(600)
        assert snapshot_of(fleet, 1) is None and snapshot_of(fleet, 0) is not None
        fleet.hosts[1].world.copies.free_bytes = before.size
        await arrives(fleet, 1, before.id)
        assert await fleet.settled() == []


async def comes_until_its_source_dies(fleet: PlayedFleet) -> SnapshotRecord:
    """Some of the snapshot is at the second host, which waits for the rest."""
    before = snapshot_of(fleet, 0)
    assert before is not None
    drafted = fleet.hosts[1].world.moved_files.drafted
    await fleet.ended(0, (await fleet.move(0, 1)).id)
    await eventually(fleet._clock, lambda: drafted.get(before.id), 60, 0.001)
    await fleet.hosts[0].kill()
    return before


async def test_snapshot_comes_into_room_that_is_held_and_is_sold_to_nobody_else() -> None:
    async with played_fleet() as fleet:
        host = fleet.hosts[1]
        before = await comes_until_its_source_dies(fleet)
        coming = host.world.store.get(COMING_SNAPSHOTS, before.id)
        assert coming is not None and coming.holds == Resources(disk_mib=before.size >> 20)
        with_it = used(host.world.store)
        assert held_by_incoming(host.world.store) == coming.holds
        host.world.room = replace(ROOM, disk_mib=with_it.disk_mib + 1023)
        body = CreateVolumeRequest(name="other", size_gb=1, region="mad", encrypted=False)
        with pytest.raises(NoRoom):
            await fleet.worker(1).api.call(CREATE_VOLUME, params=AppParams(app_name=APP), body=body)
        await fleet.hosts[0].begin(fleet._tasks)
        await arrives(fleet, 1, before.id)
        assert used(host.world.store) == with_it.minus(coming.holds)
        await fleet.worker(1).api.call(CREATE_VOLUME, params=AppParams(app_name=APP), body=body)


async def test_snapshot_waits_for_room_that_others_are_promised() -> None:
    async with played_fleet() as fleet:
        before, host = snapshot_of(fleet, 0), fleet.hosts[1]
        assert before is not None
        host.world.room = replace(ROOM, disk_mib=(before.size >> 20) + 1023)
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        await fleet._clock.sleep(600)
        coming = host.world.store.get(COMING_SNAPSHOTS, before.id)
        assert coming is not None and coming.holds == Resources() and coming.upto == 0
        host.world.room = ROOM
        await arrives(fleet, 1, before.id)
        assert await fleet.settled() == []


async def test_room_of_a_snapshot_is_free_again_once_it_will_not_come() -> None:
    async with played_fleet() as fleet:
        before, store = await comes_until_its_source_dies(fleet), fleet.hosts[1].world.store
        coming = store.get(COMING_SNAPSHOTS, before.id)
        assert coming is not None and coming.holds != Resources()
        old = replace(coming, snapshot=replace(coming.snapshot, kept_until=fleet._clock.now()))
        await store.write(lambda tx: tx.put(COMING_SNAPSHOTS, before.id, old))
        await eventually(fleet._clock, lambda: store.count(COMING_SNAPSHOTS) == 0, 600)
        assert store.get(COMING_SNAPSHOTS, before.id) is None
        assert held_by_incoming(store) == Resources() and of_store(store) == []


async def test_room_of_a_snapshot_does_not_go_along_with_its_volume() -> None:
    async with played_fleet() as fleet:
        before = await comes_until_its_source_dies(fleet)
        await fleet.ended(1, (await fleet.move(1, 2)).id)
        assert of_store(fleet.hosts[1].world.store) == []
        assert held_by_incoming(fleet.hosts[1].world.store) == Resources()
        await fleet.hosts[0].begin(fleet._tasks)
        await arrives(fleet, 2, before.id)
        assert await fleet.settled() == []


async def test_a_volume_that_moves_on_has_its_snapshots_come_from_where_they_are() -> None:
    async with played_fleet() as fleet:
        before = snapshot_of(fleet, 0)
        assert before is not None
        fleet.hosts[1].world.copies.free_bytes = 0
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        await fleet.ended(1, (await fleet.move(1, 2)).id)
        await arrives(fleet, 2, before.id)
        assert snapshot_of(fleet, 0) is None and snapshot_of(fleet, 1) is None
        assert await fleet.settled() == []


async def test_a_volume_that_comes_back_finds_the_snapshots_that_had_not_followed() -> None:
    async with played_fleet() as fleet:
        before = snapshot_of(fleet, 0)
        assert before is not None
        fleet.hosts[1].world.copies.free_bytes = 0
        move = await fleet.ended(0, (await fleet.move(0, 1)).id)
        await fleet.ended(1, (await fleet.move(1, 0)).id)
        assert snapshot_of(fleet, 0) == before
        with pytest.raises(NotFound, match="any more"):  # a late word of the first move takes nothing away
            await fleet.worker(0).parts.moves.release_snapshot(move.id, move.generation, before.id)
        assert await fleet.settled() == []
        assert snapshot_of(fleet, 0) == before


async def test_a_snapshot_comes_back_with_its_volume() -> None:
    async with played_fleet() as fleet:
        before = snapshot_of(fleet, 0)
        assert before is not None
        for source, to in ((0, 1), (1, 0), (0, 1)):
            assert (await fleet.ended(source, (await fleet.move(source, to)).id)).state is MoveState.DONE
            await arrives(fleet, to, before.id)
        assert await fleet.settled() == []


async def test_a_snapshot_that_is_not_kept_any_more_is_not_waited_for() -> None:
    async with played_fleet() as fleet:
        before = snapshot_of(fleet, 0)
        assert before is not None
        fleet.hosts[1].world.copies.free_bytes = 0
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        await fleet.hosts[0].kill()
        store = fleet.hosts[1].world.store
        coming = store.get(COMING_SNAPSHOTS, before.id)
        assert coming is not None
        old = replace(coming, snapshot=replace(coming.snapshot, kept_until=fleet._clock.now()))
        await store.write(lambda tx: tx.put(COMING_SNAPSHOTS, before.id, old))
        await eventually(fleet._clock, lambda: store.count(COMING_SNAPSHOTS) == 0, 900)
        assert await listed(fleet, 1) == []


async def test_deaths_of_both_nodes_lose_no_snapshot() -> None:
    async with played_fleet() as fleet:
        before = snapshot_of(fleet, 0)
        assert before is not None
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        for number in (1, 0, 1):
            await fleet._clock.sleep(0.05)
            await fleet.again(number, kept=0.0, power=True)
        await arrives(fleet, 1, before.id)
        assert await fleet.settled() == []


async def test_a_run_that_an_operator_ended_is_taken_up() -> None:
    async with played_fleet() as fleet:
        before = snapshot_of(fleet, 0)
        assert before is not None
        fleet.hosts[1].world.copies.free_bytes = 0
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        runner = fleet.worker(1).parts.runner
        run = next(each for each in runner.list(active=True) if each.flow == "bring_snapshots")
        await runner.cancel(run.run_id, "by an operator")
        fleet.hosts[1].world.copies.free_bytes = 1 << 50
        await arrives(fleet, 1, before.id)
        assert await fleet.settled() == []


async def test_a_snapshot_whose_key_cannot_be_opened_holds_no_volume_back() -> None:
    async with played_fleet() as fleet:
        before = snapshot_of(fleet, 0)
        assert before is not None and before.key is not None
        spoilt = replace(before, key=replace(before.key, sealed=before.key.sealed[::-1]))
        await fleet.hosts[0].world.store.write(lambda tx: tx.put(SNAPSHOTS, before.id, spoilt))
        move = await fleet.ended(0, (await fleet.move(0, 1)).id)
        assert move.state is MoveState.DONE
        assert await listed(fleet, 1) == []
        assert snapshot_of(fleet, 0) == spoilt and await left(fleet, 0, move.id) == 1


async def lost_and_taken_back(fleet: PlayedFleet) -> SnapshotId:
    """The snapshot had followed to host 1, which is lost; host 0 has its volume again."""
    before = snapshot_of(fleet, 0)
    assert before is not None
    move = await fleet.ended(0, (await fleet.move(0, 1)).id)
    await arrives(fleet, 1, before.id)
    await fleet.hosts[1].kill(power=True)
    fleet.forget_acknowledged()
    await fleet.reclaim(move.id, accept_loss=True, now=True)
    await fleet.ended(0, move.id)
    assert snapshot_of(fleet, 0) is None
    return before.id


async def test_snapshots_at_a_node_that_was_lost_come_back_once_it_returns() -> None:
    async with played_fleet() as fleet:
        snapshot = await lost_and_taken_back(fleet)
        await fleet.hosts[1].begin(fleet._tasks)
        await arrives(fleet, 0, snapshot)
        assert await fleet.settled() == []
        assert snapshot_of(fleet, 1) is None


async def test_snapshots_at_a_node_that_was_lost_come_to_where_the_volume_has_gone_since() -> None:
    async with played_fleet() as fleet:
        snapshot = await lost_and_taken_back(fleet)
        await fleet.ended(0, (await fleet.move(0, 2)).id)
        await fleet.hosts[1].begin(fleet._tasks)
        await arrives(fleet, 2, snapshot)
        assert await fleet.settled() == []


async def test_snapshots_that_are_offered_are_listed_with_the_node_that_has_them() -> None:
    async with played_fleet() as fleet:
        snapshot = await lost_and_taken_back(fleet)
        fleet.hosts[0].world.copies.free_bytes = 0
        await fleet.hosts[1].begin(fleet._tasks)
        await eventually(fleet._clock, lambda: fleet.hosts[0].world.store.count(COMING_SNAPSHOTS) == 1, 600)
        assert [(each.id, each.node) for each in await listed(fleet, 0)] == [(snapshot, fleet.id(1))]


async def test_snapshots_are_expected_of_no_volume_that_is_unknown_or_of_another_app() -> None:
    async with played_fleet() as fleet:
        await lost_and_taken_back(fleet)
        moves, seal = fleet.worker(0).parts.moves, fleet.worker(0).parts.deps.others.there.seal
        unit = seal(msgspec.msgpack.encode(()))
        for app, volume in (("another", fleet.volume), (APP, "vol_unknown")):
            with pytest.raises(NotFound):
                await moves.expect_snapshots(OfferedSnapshotsRequest(app=app, volume=volume, unit=unit))
