"""Flows of a volume by itself, over a played host: made whole or not at all, extended in use, removed when told."""

from contextlib import suppress

import anyio
import pytest
from msgspec.structs import replace

from hawker.api.contract.volume import Volume
from hawker.errors import Fault
from hawker.ids import SnapshotId, VolumeId
from hawker.node import Resources
from hawker.record.node import used
from hawker.record.volume import (
    GONE_SNAPSHOTS,
    GONE_VOLUMES,
    SNAPSHOTS,
    VOLUMES,
    SnapshotRecord,
    SnapshotStatus,
    VolumeState,
)
from hawker.sim.harness.loop import eventually
from hawker.sim.node.crash_points import Death
from hawker.sim.node.fake_host import ScriptedFailure
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.volume.flows import VOLUME_CREATE, VOLUME_DESTROY, VOLUME_EXTEND
from tests.volume.conftest import LOOKS_EVERY_S
from tests.volume.shelf import Shelf
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio
MACHINE = [{"name": "data", "path": "/data"}]


def test_flows_of_volumes_have_names_of_their_own() -> None:
    assert [flow.name for flow in (VOLUME_CREATE, VOLUME_EXTEND, VOLUME_DESTROY)] == [
        "volume_create",
        "volume_extend",
        "volume_destroy",
    ]


async def test_a_volume_is_created_once_its_file_is_there(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=2)
    assert (volume.state, stall.disks.files[VolumeId(volume.id)].size_bytes) == ("created", 2 << 30)
    record = worker.store.get(VOLUMES, volume.id)
    assert record is not None and record.made_gb == 2
    check_at_rest(stall)


async def test_a_trouble_that_passes_only_delays_it(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.disks.troubles += [ScriptedFailure("make", after=False), ScriptedFailure("make", after=True)]
    volume = await worker.volume("data", size_gb=1)
    assert volume.state == "created" and stall.disks.made[VolumeId(volume.id)] == 1
    check_at_rest(stall)


async def test_one_that_cannot_be_made_is_taken_back_whole(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.disks.troubles += [ScriptedFailure("make", after=True)] * 5
    with pytest.raises(Fault, match="could not be made: OSError: make failed"):
        await worker.volume("data", size_gb=1)
    assert stall.disks.files == {} and used(worker.store) == Resources()
    (gone,) = [record for _, record in worker.store.scan(GONE_VOLUMES)]
    assert gone.state is VolumeState.DESTROYED
    check_at_rest(stall)


async def test_a_volume_grows_under_a_machine_that_goes_on(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    machine_id = await worker.started(mounts=MACHINE)
    before = worker.record(machine_id).running
    await worker.extend_volume(volume.id, 5)
    assert worker.record(machine_id).running == before
    assert stall.disks.files[VolumeId(volume.id)].filesystem_bytes == 5 << 30
    check_at_rest(stall)


async def test_an_extension_is_not_given_up(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    stall.disks.troubles += [ScriptedFailure("grow", after=False)] * 30
    await worker.extend_volume(volume.id, 2)
    await worker.at_rest(every_s=1.0)
    assert (await worker.get_volume(volume.id)).state == "created"
    assert stall.disks.files[VolumeId(volume.id)].size_bytes == 2 << 30


async def test_a_destroyed_one_leaves_nothing_but_a_word(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    await worker.delete_volume(volume.id)
    stall.disks.troubles += [ScriptedFailure("detach", after=True)]
    await worker.parts.volumes.destroy(VolumeId(volume.id))
    await worker.at_rest(every_s=0.1)
    assert stall.disks.files == {} and worker.store.get(VOLUMES, volume.id) is None
    check_at_rest(stall)


@pytest.mark.parametrize(
    ("place", "state"),
    [
        ("volume_fork.prepare before", VolumeState.CREATING),
        ("volume_fork.fill before", VolumeState.ENABLING_REMOTE_EXPORT),
        ("volume_fork.fit before", VolumeState.HYDRATING),
    ],
)
async def test_a_fork_s_state_says_what_is_being_done(stall: MemoryWorld, place: str, state: VolumeState) -> None:
    async with stall.open() as worker:
        await worker.app()
        source = await Shelf(stall, worker).written()
    stall.crash_points.burns_in = place
    with pytest.raises(Death):
        async with stall.open() as worker:
            await Shelf(stall, worker).create(name="copy", source_volume_id=source)
    assert sorted(record.state for _, record in stall.store.scan(VOLUMES)) == sorted([VolumeState.CREATED, state])


async def test_a_fork_can_be_mounted_while_it_is_brought_to_its_size(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        source = await Shelf(stall, worker).written(size_gb=1)
    stall.crash_points.burns_in = "volume_fork.fit before"
    with pytest.raises(Death):
        async with stall.open() as worker:
            await Shelf(stall, worker).create(name="copy", source_volume_id=source, size_gb=2)
    stall.crash()
    async with stall.open() as worker:
        await worker.started(mounts=[{"name": "copy", "path": "/data"}])
        await worker.at_rest()
        [copy] = [record for _, record in worker.store.scan(VOLUMES) if record.name == "copy"]
        assert (copy.state, copy.made_gb) == (VolumeState.CREATED, 2)
        assert stall.disks.files[copy.id].filesystem_bytes == 2 << 30


async def fork_in_use(stall: MemoryWorld) -> VolumeId:
    """Of a fork that a machine has written to, and that is not as large as ordered yet; the daemon is down."""
    async with stall.open() as worker:
        await worker.app()
        source = await Shelf(stall, worker).written(size_gb=1)
    stall.crash_points.burns_in = "volume_fork.fit before"
    with pytest.raises(Death):
        async with stall.open() as worker:
            await Shelf(stall, worker).create(name="copy", source_volume_id=source, size_gb=2)
    stall.crash()
    return next(record.id for _, record in stall.store.scan(VOLUMES) if record.name == "copy")


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_fork_that_is_in_use_outlives_an_abort_of_what_makes_it_larger(
    stall: MemoryWorld, is_deleted: bool
) -> None:
    fork = await fork_in_use(stall)
    stall.disks.troubles += [ScriptedFailure("grow", after=False)] * 20
    async with stall.open() as worker:
        shelf = Shelf(stall, worker)
        machine_id = await worker.started(mounts=[{"name": "copy", "path": "/data"}])
        shelf.write(fork)
        if is_deleted:
            await worker.destroy(machine_id, force=True)
            await eventually(stall.clock, lambda: shelf.volume(fork).machine is None, 60)
            await shelf.delete(fork)
        [run] = [run for run in worker.parts.runner.list(active=True) if run.flow == "volume_fork"]
        await worker.parts.runner.abort(run.run_id)
        await worker.parts.runner.wait(run.run_id, 60)
        assert shelf.content(fork) == 2
        if is_deleted:
            assert (await shelf.undelete(fork)).state == "extending"
        else:
            assert shelf.volume(fork).state is VolumeState.EXTENDING and shelf.volume(fork).machine == machine_id
        await eventually(stall.clock, lambda: shelf.volume(fork).state is VolumeState.CREATED, 2 * LOOKS_EVERY_S)
        assert stall.disks.files[fork].filesystem_bytes == 2 << 30 and stall.disks.made[fork] == 1
        check_at_rest(stall)


async def source_damaged(stall: MemoryWorld, worker: SimWorker) -> VolumeId:
    """Of a volume whose forks can never be mounted."""
    await worker.app()
    source = await Shelf(stall, worker).written(size_gb=1)
    stall.disks.files[source].damaged = True
    return source


async def test_fork_of_a_damaged_filesystem_is_taken_back_whole(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        source = await source_damaged(stall, worker)
        held = used(worker.store)
        with pytest.raises(Fault, match=r"could not be made: .*is damaged"):
            await Shelf(stall, worker).create(name="copy", source_volume_id=source, size_gb=2)
        await stall.clock.sleep(2 * LOOKS_EVERY_S)
        assert [key for key, _ in worker.store.scan(VOLUMES)] == [source] == list(stall.disks.files)
        assert used(worker.store) == held
        check_at_rest(stall)


@pytest.mark.parametrize("edge", range(1, 8))
async def test_fork_of_a_damaged_filesystem_is_taken_back_by_the_daemon_after_one_that_died(
    stall: MemoryWorld, edge: int
) -> None:
    async with stall.open() as worker:
        source = await source_damaged(stall, worker)
    await _killed(stall, edge, source_volume_id=source)
    async with stall.open() as worker:
        await worker.at_rest()
        await stall.clock.sleep(2 * LOOKS_EVERY_S)
        assert [key for key, _ in worker.store.scan(VOLUMES)] == [source] == list(stall.disks.files)
        check_at_rest(stall)


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_fork_that_a_daemon_gave_up_and_did_not_take_back_is_tried_once_more(
    stall: MemoryWorld, is_damaged: bool
) -> None:
    """It died right after it had given up: the run is still at `fit`."""
    fork = await fork_in_use(stall)
    stall.disks.files[fork].damaged = is_damaged
    record = stall.store.get(VOLUMES, fork)
    assert record is not None
    given_up = replace(record, state=VolumeState.ENABLING_REMOTE_EXPORT)
    await stall.store.write(lambda tx: tx.put(VOLUMES, fork, given_up))
    async with stall.open() as worker:
        await worker.at_rest()
        left = worker.store.get(VOLUMES, fork)
        assert (left and (left.state, left.made_gb)) == (None if is_damaged else (VolumeState.CREATED, 2))
        check_at_rest(stall)


@pytest.mark.parametrize("state", [VolumeState.ENABLING_REMOTE_EXPORT, VolumeState.HYDRATING])
async def test_fork_that_a_machine_got_first_outlives_what_can_never_make_it_larger(
    stall: MemoryWorld, state: VolumeState
) -> None:
    """Also once the machine is gone: what it wrote is nowhere else. And where it came before the fork was whole."""
    async with stall.open() as worker:
        source = await source_damaged(stall, worker)
        stall.disks.files[source].damaged = False
        shelf = Shelf(stall, worker)
        stall.copies.troubles.append(ScriptedFailure("fork", after=False))
        stall.disks.troubles += [ScriptedFailure("grow", after=False)] * 5
        async with anyio.create_task_group() as tasks:
            answers: list[Volume] = []

            async def order() -> None:
                answers.append(await shelf.create(name="copy", source_volume_id=source, size_gb=2))

            tasks.start_soon(order)
            await eventually(stall.clock, lambda: bool(_copies_in(stall, state)), 120)
            machine_id = await worker.started(mounts=[{"name": "copy", "path": "/data"}])
            [fork] = _copies_in(stall, VolumeState.EXTENDING)
            shelf.write(fork)
            await worker.destroy(machine_id, force=True)
            await eventually(stall.clock, lambda: shelf.volume(fork).machine is None, 60)
            stall.disks.files[fork].damaged = True
        assert [answer.state for answer in answers] == ["extending"]
        [made] = [run for run in worker.parts.runner.list() if run.flow == "volume_fork"]
        assert made.error is not None and "is damaged" in made.error
        await stall.clock.sleep(2 * LOOKS_EVERY_S)
        assert (shelf.volume(fork).state, shelf.content(fork)) == (VolumeState.EXTENDING, 2)


def _copies_in(stall: MemoryWorld, state: VolumeState) -> list[VolumeId]:
    return [record.id for _, record in stall.store.scan(VOLUMES) if (record.name, record.state) == ("copy", state)]


async def test_machine_that_gets_a_fork_that_is_given_up_hears_that_it_is_gone(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        source = await source_damaged(stall, worker)
        stall.disks.troubles += [ScriptedFailure("detach", after=False)] * 10
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_refused, Shelf(stall, worker), source)
            await eventually(stall.clock, lambda: len(stall.disks.troubles) < 10, 60)
            machine = await worker.create(mounts=[{"name": "copy", "path": "/data"}])
            await eventually(stall.clock, lambda: stall.disks.troubles == [], 600)
        await worker.at_rest()
        failed = (await worker.get(machine.id)).events[0]
        assert failed.status == "launch_failed" and "is not attached" in str(failed.error)
        assert [key for key, _ in worker.store.scan(VOLUMES)] == [source] == list(stall.disks.files)


async def _refused(shelf: Shelf, source: VolumeId) -> None:
    with suppress(Fault):  # or not yet, when it is answered before the undo has ended
        await shelf.create(name="copy", source_volume_id=source, size_gb=2)


async def test_snapshot_of_a_fork_that_could_not_be_made_larger_has_the_size_of_its_file(stall: MemoryWorld) -> None:
    fork = await fork_in_use(stall)
    stall.disks.troubles += [ScriptedFailure("grow", after=False)] * 20
    async with stall.open() as worker:
        shelf = Shelf(stall, worker)
        snapshot_id = await shelf.snapshot(fork)
        [run] = [run for run in worker.parts.runner.list(active=True) if run.flow == "volume_fork"]
        await worker.parts.runner.abort(run.run_id)
        stall.disks.troubles.clear()
        await eventually(stall.clock, lambda: shelf.record(snapshot_id).status is SnapshotStatus.CREATED, 60)
        assert shelf.record(snapshot_id).volume_gb == 1
        restored = await shelf.create(name="again", snapshot_id=snapshot_id)
        assert (restored.state, restored.size_gb, shelf.content(restored.id)) == ("created", 1, 1)
        await eventually(stall.clock, lambda: shelf.volume(fork).state is VolumeState.CREATED, 2 * LOOKS_EVERY_S)
        check_at_rest(stall)


async def test_fork_taken_back_while_it_is_brought_to_its_size_is_whole_when_it_has_that(stall: MemoryWorld) -> None:
    fork = await fork_in_use(stall)
    stall.disks.troubles += [ScriptedFailure("grow", after=False)] * 5
    async with stall.open() as worker:
        shelf = Shelf(stall, worker)
        await shelf.delete(fork)
        assert (await shelf.undelete(fork)).state == "extending"
        [run] = [run for run in worker.parts.runner.list(active=True) if run.flow == "volume_fork"]
        await worker.parts.runner.wait(run.run_id, 600)
        assert (shelf.volume(fork).state, shelf.volume(fork).made_gb) == (VolumeState.CREATED, 2)


@pytest.mark.parametrize("edge", range(1, 12))
async def test_a_daemon_killed_while_a_snapshot_is_restored_goes_on(stall: MemoryWorld, edge: int) -> None:
    async with stall.open() as worker:
        await worker.app()
        shelf = Shelf(stall, worker)
        snapshot_id = await shelf.taken(await shelf.written())
    await _killed(stall, edge, snapshot_id=snapshot_id)
    await _all_made(stall)


@pytest.mark.parametrize("edge", range(1, 12))
async def test_a_daemon_killed_while_a_volume_is_forked_goes_on(stall: MemoryWorld, edge: int) -> None:
    async with stall.open() as worker:
        await worker.app()
        source = await Shelf(stall, worker).written()
    await _killed(stall, edge, source_volume_id=source)
    await _all_made(stall)


async def _killed(stall: MemoryWorld, edge: int, **order: str) -> None:
    try:
        async with stall.open() as worker:
            stall.crash_points.burns_at = stall.crash_points.edges + edge
            await Shelf(stall, worker).create(name="copy", **order)
    except Death:
        stall.crash()
    stall.crash_points.burns_at = None


async def _all_made(stall: MemoryWorld) -> None:
    """Each volume is created, with what the first one held, and was made once; nothing else is there."""
    async with stall.open() as worker:
        await worker.at_rest()
        records = [record for _, record in worker.store.scan(VOLUMES)]
        assert {record.state for record in records} == {VolumeState.CREATED}
        await eventually(stall.clock, lambda: set(stall.disks.files) == {record.id for record in records}, 600)
        assert {stall.disks.files[VolumeId(record.id)].content for record in records} == {1}
        assert {stall.disks.made[record.id] for record in records} == {1}


async def test_a_copy_that_cannot_be_had_leaves_no_volume(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        shelf = Shelf(stall, worker)
        source = await shelf.written()
        stall.copies.troubles += [ScriptedFailure("fork", False)] * 5
        with suppress(Fault):  # or not yet, when it is answered before the last try
            await shelf.create(source_volume_id=source)
        await worker.at_rest()
        assert [key for key, _ in worker.store.scan(VOLUMES)] == [source]
        assert list(stall.disks.files) == [source]


async def _volume(stall: MemoryWorld) -> VolumeId:
    async with stall.open() as worker:
        await worker.app()
        return await Shelf(stall, worker).written()


def _records(stall: MemoryWorld) -> list[SnapshotRecord]:
    return [record for _, record in stall.store.scan(SNAPSHOTS)]


@pytest.mark.parametrize("edge", range(1, 8))
async def test_a_daemon_killed_in_it_goes_on_and_takes_it_once(stall: MemoryWorld, edge: int) -> None:
    volume_id = await _volume(stall)
    try:
        async with stall.open() as worker:
            stall.crash_points.burns_at = stall.crash_points.edges + edge
            await Shelf(stall, worker).snapshot(volume_id)
            await worker.at_rest()
    except Death:
        stall.crash()
    stall.crash_points.burns_at = None
    async with stall.open() as worker:
        await worker.at_rest()
        [record] = _records(stall)
        assert (record.status, record.size > 0) == (SnapshotStatus.CREATED, True)
        assert stall.copies.snapshots[record.id].content == 1
        assert stall.copies.taken[record.id] == 1


@pytest.mark.parametrize(
    ("place", "status"),
    [
        ("volume_snapshot.begin before", SnapshotStatus.WAITING),
        ("volume_snapshot.copy before", SnapshotStatus.RUNNING),
        ("volume_snapshot.seal before", SnapshotStatus.RUNNING),
    ],
)
async def test_its_status_says_how_far_it_is(stall: MemoryWorld, place: str, status: SnapshotStatus) -> None:
    volume_id = await _volume(stall)
    stall.crash_points.burns_in = place
    with pytest.raises(Death):
        async with stall.open() as worker:
            await Shelf(stall, worker).snapshot(volume_id)
            await worker.at_rest()
    assert [record.status for record in _records(stall)] == [status]


async def test_a_host_that_refuses_for_a_while_delays_it(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        shelf = Shelf(stall, worker)
        volume_id = await shelf.written()
        stall.copies.troubles += [ScriptedFailure("take", False), ScriptedFailure("take", True)]
        snapshot_id = await shelf.taken(volume_id)
        assert stall.copies.taken[snapshot_id] == 1


async def test_a_host_that_goes_on_refusing_fails_it_and_leaves_nothing(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        shelf = Shelf(stall, worker)
        volume_id = await shelf.written()
        stall.copies.troubles += [ScriptedFailure("take", True)] * 5
        snapshot_id = SnapshotId(await shelf.snapshot(volume_id))
        await worker.at_rest()
        assert shelf.record(snapshot_id).status is SnapshotStatus.FAILED
        await stall.clock.sleep(2 * LOOKS_EVERY_S)
        assert stall.copies.snapshots == {} and stall.store.count(GONE_SNAPSHOTS) == 0
        assert (await shelf.taken(volume_id)) in stall.copies.snapshots


async def test_a_flow_waits_for_an_earlier_one_of_the_volume(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        shelf = Shelf(stall, worker)
        first = await shelf.taken(await shelf.written(size_gb=1))
        assert shelf.record(first).volume_gb == 1
