"""The operations on volumes: admitted in one transaction, refused with the reason, promised once acknowledged."""

from typing import Any

import msgspec
import pytest

from hawker.api.contract.app import CREATE_APP, CreateAppRequest
from hawker.api.contract.machine import LIST_EVENTS, MachineParams
from hawker.api.contract.volume import (
    DETACH_VOLUME,
    FIND_SNAPSHOT,
    MOVE_VOLUME,
    CreateVolumeRequest,
    MoveVolumeRequest,
    SnapshotParams,
    Volume,
    VolumeParams,
)
from hawker.clock import ManualClock
from hawker.errors import NoRoom, NotFound, QuotaExceeded, Unavailable, Unprocessable, WrongState
from hawker.ids import AppName, NodeId, VolumeId, is_volume_id
from hawker.machine import State
from hawker.node import Capacity
from hawker.record.node import NODE, NodeRecord, used
from hawker.record.org import QuotaRule
from hawker.record.volume import GONE_VOLUMES, SNAPSHOTS, VOLUMES, Fstype, VolumeRecord, VolumeState
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.time_window import DAY_S
from hawker.volume import operations
from hawker.volume.operations import new_volume
from hawker.volume.retention import GRACE_S
from tests.volume.shelf import Shelf
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio


async def test_a_volume_takes_room_for_as_long_as_it_is_there(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=2)
    assert used(worker.store).disk_mib == 2048
    await worker.delete_volume(volume.id)
    assert used(worker.store).disk_mib == 2048
    await worker.parts.volumes.destroy(VolumeId(volume.id))
    await worker.at_rest()
    assert used(worker.store).disk_mib == 0 and stall.disks.files == {}
    assert worker.store.get(VOLUMES, volume.id) is None and worker.store.get(GONE_VOLUMES, volume.id) is not None
    check_at_rest(stall)


async def test_volume_is_not_created_on_a_node_that_takes_nothing_new_but_from_what_only_it_has(shelf: Shelf) -> None:
    """A broker may not have heard of it yet."""
    source, store = await shelf.written(), shelf.worker.store
    node = NodeRecord(id=NodeId("00000001"), region="mad", created_at=0.0, cordoned=True)
    await store.write(lambda tx: tx.put(NODE, "self", node))
    with pytest.raises(Unavailable, match="the node is cordoned: nothing was created"):
        await shelf.create("more")
    await shelf.create("fork", source_volume_id=source)
    assert len(await shelf.list()) == 2


async def test_no_more_is_promised_than_there_is(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.room = Capacity(cpus=4, memory_mib=1024, disk_mib=3 * 1024)
    volume = await worker.volume("data", size_gb=2)
    with pytest.raises(NoRoom, match="short of 1024 MiB of disk") as refused:
        await worker.volume("more", size_gb=2)
    assert refused.value.shortfall == {"disk_mb": 1024}
    with pytest.raises(NoRoom):
        await worker.extend_volume(volume.id, 4)
    assert (await worker.extend_volume(volume.id, 3)).volume.size_gb == 3


async def test_an_extension_only_grows_and_may_be_asked_twice(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=2)
    for _ in range(2):
        answer = await worker.extend_volume(volume.id, 4)
        assert (answer.volume.size_gb, answer.volume.state, answer.needs_restart) == (4, "created", False)
    for size_gb, says in ((3, "cannot be made smaller"), (501, "between 1 and 500")):
        with pytest.raises(Unprocessable, match=says):
            await worker.extend_volume(volume.id, size_gb)
    assert stall.disks.files[VolumeId(volume.id)].filesystem_bytes == 4 << 30


async def test_a_host_that_cannot_grow_what_is_in_use_says_so_and_does_it_with_the_next_launch(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    stall.disks.grows = False
    volume = await worker.volume("data", size_gb=1)
    machine_id = await worker.started(mounts=[{"volume": volume.id, "path": "/data"}])
    answer = await worker.extend_volume(volume.id, 2)
    assert (answer.needs_restart, answer.volume.state) == (True, "created")
    await worker.restart(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    assert stall.disks.files[VolumeId(volume.id)].filesystem_bytes == 2 << 30
    assert not worker.parts.volumes.get(worker.record(machine_id).app, volume.id).behind
    check_at_rest(stall)


async def test_a_volume_with_a_machine_is_not_deleted(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    machine_id = await worker.started(mounts=[{"volume": volume.id, "path": "/data"}])
    with pytest.raises(WrongState, match=f"attached to machine {machine_id}"):
        await worker.delete_volume(volume.id)


async def test_a_deleted_volume_stays_so_and_cannot_be_changed(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    first = await worker.delete_volume(volume.id)
    assert (first.state, await worker.delete_volume(volume.id)) == ("pending_destroy", first)
    with pytest.raises(WrongState, match="is pending_destroy and cannot be changed"):
        await worker.extend_volume(volume.id, 2)


async def test_only_what_was_let_go_of_is_destroyed(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    with pytest.raises(WrongState, match="not to be destroyed"):
        await worker.parts.volumes.destroy(VolumeId(volume.id))
    with pytest.raises(NotFound):
        await worker.parts.volumes.destroy(VolumeId("vol_0000000000000000"))
    assert VolumeId(volume.id) in stall.disks.files


async def test_an_app_has_a_bounded_number_of_volumes(worker: SimWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MAX_VOLUMES", 2)
    for _ in range(2):
        await worker.volume("data", size_gb=1)
    with pytest.raises(Unprocessable, match="at most 2 volumes"):
        await worker.volume("data", size_gb=1)


async def test_a_volume_that_is_lost_with_its_app_is_let_go_of_by_force_only(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    with pytest.raises(WrongState, match="still has 1 volumes"):
        await worker.parts.apps.delete("stall")
    await worker.parts.apps.delete("stall", force=True)
    left = worker.store.get(VOLUMES, volume.id)
    assert left is not None and left.state is VolumeState.PENDING_DESTROY


NULLS = dict.fromkeys(CreateVolumeRequest.__struct_fields__)


def ordered(**fields: Any) -> VolumeRecord:
    body = msgspec.convert({"name": "data", **fields}, CreateVolumeRequest)
    return new_volume(ManualClock(), AppName("web"), "local", body, encrypted=False, max_gb=500)


@pytest.mark.parametrize("fields", [{}, {**NULLS, "name": "data"}], ids=["absent", "null"])
def test_an_option_not_said_is_the_contract_s_default(fields: dict[str, Any]) -> None:
    record = ordered(**fields)
    assert is_volume_id(record.id) and record.state is VolumeState.CREATING
    assert (record.size_gb, record.fstype, record.snapshot_retention, record.auto_backup) == (3, Fstype.EXT4, 5, True)
    assert record.machine is None and record.holds.disk_mib == 3 * 1024


def test_an_option_said_is_kept() -> None:
    record = ordered(name="my_data-2", size_gb=7, snapshot_retention=60, auto_backup_enabled=False)
    assert (record.name, record.size_gb, record.snapshot_retention, record.auto_backup) == ("my_data-2", 7, 60, False)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": ""}, "is not a volume's name"),
        ({"name": "../etc"}, "is not a volume's name"),
        ({"name": "a" * 64}, "is not a volume's name"),
        ({"size_gb": 0}, "size_gb must be between 1 and 500"),
        ({"size_gb": -3}, "size_gb must be between 1 and 500"),
        ({"size_gb": 501}, "size_gb must be between 1 and 500"),
        ({"size_gb": 10**30}, "size_gb must be between 1 and 500"),
        ({"snapshot_retention": 0}, "snapshot_retention must be between 1 and 60"),
        ({"snapshot_retention": 61}, "snapshot_retention must be between 1 and 60"),
        ({"fstype": "raw"}, "raw volumes are not served"),
    ],
)
def test_an_impossible_option_is_refused_by_name(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(Unprocessable, match=says):
        ordered(**fields)


async def test_a_deleted_volume_is_there_for_a_day_and_then_gone(shelf: Shelf) -> None:
    volume_id = await shelf.written(auto_backup_enabled=False)
    assert (await shelf.delete(volume_id)).state == "pending_destroy"
    await shelf.world.clock.sleep(GRACE_S - 120)
    assert volume_id in shelf.world.disks.files
    assert (await shelf.get(volume_id)).state == "pending_destroy"
    await shelf.world.clock.sleep(600)
    assert volume_id not in shelf.world.disks.files
    with pytest.raises(NotFound):
        await shelf.get(volume_id)
    with pytest.raises(NotFound):
        await shelf.undelete(volume_id)


async def test_a_deleted_volume_is_taken_back_as_it_was_and_stays(shelf: Shelf) -> None:
    volume_id = await shelf.written(auto_backup_enabled=False)
    await shelf.delete(volume_id)
    assert (await shelf.undelete(volume_id)).state == "created"
    await shelf.world.clock.sleep(3 * DAY_S)
    assert shelf.content(volume_id) == 1
    machine_id = await shelf.worker.started(mounts=[{"volume": volume_id, "path": "/data"}])
    assert (await shelf.get(volume_id)).attached_machine_id == machine_id


async def test_a_volume_not_deleted_cannot_be_taken_back(shelf: Shelf) -> None:
    volume_id = await shelf.written()
    with pytest.raises(WrongState, match="is created, so there is nothing to take back"):
        await shelf.undelete(volume_id)
    with pytest.raises(NotFound):
        await shelf.undelete("vol_0000000000000000")


async def test_an_attached_volume_is_not_deleted_and_the_machine_is_named(shelf: Shelf) -> None:
    volume_id = await shelf.written()
    machine_id = await shelf.worker.started(mounts=[{"volume": volume_id, "path": "/data"}])
    with pytest.raises(WrongState, match=f"attached to machine {machine_id}"):
        await shelf.delete(volume_id)
    assert (await shelf.get(volume_id)).state == "created"


async def test_deleting_again_does_not_begin_the_day_anew(shelf: Shelf) -> None:
    volume_id = await shelf.written()
    await shelf.delete(volume_id)
    first = shelf.volume(volume_id).destroy_at
    await shelf.world.clock.sleep(3600)
    await shelf.delete(volume_id)
    assert shelf.volume(volume_id).destroy_at == first


async def test_a_volume_of_another_app_cannot_be_taken_back(shelf: Shelf) -> None:
    await shelf.worker.app("other")
    volume_id = (await shelf.create(app="other")).id
    with pytest.raises(NotFound):
        await shelf.undelete(volume_id)


async def mounted(worker: SimWorker) -> tuple[str, Volume]:
    """A machine that is stopped, and its volume."""
    volume = await worker.volume("data", size_gb=1)
    machine = await worker.stopped(mounts=[{"volume": volume.id, "path": "/data"}])
    return machine, volume


async def detached(worker: SimWorker, volume: Volume) -> Volume:
    return await worker.api.call(DETACH_VOLUME, params=VolumeParams(app_name=APP, volume_id=volume.id))


async def test_a_volume_is_lent_from_a_stopped_machine_and_taken_back(worker: SimWorker, stall: MemoryWorld) -> None:
    machine, volume = await mounted(worker)
    assert (await detached(worker, volume)).attached_machine_id is None
    check_at_rest(stall)
    job = await worker.started(mounts=[{"volume": volume.id, "path": "/data"}])
    assert (await worker.get_volume(volume.id)).attached_machine_id == job
    with pytest.raises(WrongState, match=f"was detached, and machine {job} has it now"):
        await worker.start(machine)
    await worker.destroy(job, force=True)
    await worker.at_rest()
    await worker.start(machine)
    await worker.reaches(machine, State.STARTED)
    assert (await worker.get_volume(volume.id)).attached_machine_id == machine
    check_at_rest(stall)


async def test_a_volume_is_not_taken_from_a_machine_that_is_not_at_rest(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    machine = await worker.started(mounts=[{"volume": volume.id, "path": "/data"}])
    with pytest.raises(WrongState, match=f"machine {machine}, .* is started and not at rest: stop it first"):
        await detached(worker, volume)
    await worker.suspend(machine)
    await worker.reaches(machine, State.SUSPENDED)
    with pytest.raises(WrongState, match="is suspended"):
        await detached(worker, volume)


async def test_a_machine_s_events_say_where_its_volume_went(worker: SimWorker) -> None:
    machine, volume = await mounted(worker)
    copy = await worker.volume("copy", source_volume_id=volume.id, size_gb=1)
    await detached(worker, volume)
    await detached(worker, volume)  # is no event
    await worker.start(machine)
    await worker.reaches(machine, State.STARTED)
    assert await volume_events(worker, machine) == [
        ("attached", volume.id, "user"),
        ("copied", f"{volume.id} to {copy.id}", "user"),
        ("detached", volume.id, "user"),
        ("attached", volume.id, "user"),
    ]


async def volume_events(worker: SimWorker, machine: str) -> list[tuple[str, str | None, str]]:
    """Status, what, source: oldest first."""
    events = await worker.api.call(LIST_EVENTS, params=MachineParams(app_name=APP, machine_id=machine))
    return [(each.status, each.error, each.source) for each in reversed(events) if each.type == "volume"]


async def test_a_machine_s_events_say_to_whom_its_volume_was_lent_and_when_it_came_back(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine, volume = await mounted(worker)
    await detached(worker, volume)
    mount = [{"volume": volume.id, "path": "/data"}]
    job = await worker.started(mounts=mount)
    await worker.destroy(job, force=True)
    await worker.at_rest()
    other = await worker.stopped(mounts=mount)
    await detached(worker, volume)
    await worker.start(machine)
    await worker.reaches(machine, State.STARTED)
    assert [what for *what, _ in await volume_events(worker, machine)] == [
        ["attached", volume.id],
        ["detached", volume.id],
        ["lent", f"{volume.id} to machine {job}"],
        ["returned", f"{volume.id} from machine {job}"],
        ["lent", f"{volume.id} to machine {other}"],
        ["returned", f"{volume.id} from machine {other}"],
        ["attached", volume.id],
    ]
    check_at_rest(stall)


async def test_a_machine_s_events_say_nothing_of_a_volume_that_it_took_back_or_that_is_another_app_s(
    worker: SimWorker,
) -> None:
    machine, volume = await mounted(worker)
    await detached(worker, volume)
    await worker.start(machine)
    await worker.reaches(machine, State.STARTED)
    await worker.destroy(machine, force=True)
    await worker.at_rest()
    lender, lent = await mounted(worker)
    await detached(worker, lent)
    second = await second_app(worker)
    await worker.api.call(
        MOVE_VOLUME, params=VolumeParams(app_name=APP, volume_id=lent.id), body=MoveVolumeRequest(app=second)
    )
    mount = [{"volume": volume.id, "path": "/data"}]
    await worker.started(mounts=mount)
    assert [status for status, *_ in await volume_events(worker, lender)] == ["attached", "detached"]


async def test_a_free_volume_is_detached_already_and_a_foreign_one_is_not_found(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    assert (await detached(worker, volume)).id == volume.id
    with pytest.raises(NotFound):
        await worker.api.call(DETACH_VOLUME, params=VolumeParams(app_name="other", volume_id=volume.id))


async def test_a_machine_whose_volume_is_gone_says_so_and_goes_on_without_it(worker: SimWorker) -> None:
    machine, volume = await mounted(worker)
    await detached(worker, volume)
    await worker.delete_volume(volume.id)
    with pytest.raises(WrongState, match="no longer there for machine"):
        await worker.start(machine)
    await worker.update(machine)
    await worker.reaches(machine, State.STARTED)


async def second_app(worker: SimWorker, org: str = "personal") -> str:
    await worker.api.call(CREATE_APP, body=CreateAppRequest(name="second", org_slug=org))
    return "second"


async def moved(worker: SimWorker, volume: Volume, to: str) -> Volume:
    params = VolumeParams(app_name=APP, volume_id=volume.id)
    return await worker.api.call(MOVE_VOLUME, params=params, body=MoveVolumeRequest(app=to))


async def test_a_free_volume_and_its_snapshots_move_to_another_app_of_the_organization(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    volume, to = await worker.volume("data", size_gb=1), await second_app(worker)
    taken = await worker.parts.snapshots.take(AppName(APP), VolumeId(volume.id))
    await worker.at_rest()
    before = used(worker.store)
    await moved(worker, volume, to)
    assert used(worker.store) == before
    assert worker.store.get(VOLUMES, volume.id).app == to  # type: ignore[union-attr]
    assert worker.store.get(SNAPSHOTS, taken.id).app == to  # type: ignore[union-attr]
    with pytest.raises(NotFound):
        await worker.get_volume(volume.id)
    found = await worker.api.call(FIND_SNAPSHOT, params=SnapshotParams(snapshot_id=taken.id))
    assert found.app == to
    check_at_rest(stall)


async def test_a_volume_that_does_not_move_is_told(worker: SimWorker) -> None:
    machine, volume = await mounted(worker)
    to = await second_app(worker)
    with pytest.raises(WrongState, match="hawker volumes detach"):
        await moved(worker, volume, to)
    await detached(worker, volume)
    with pytest.raises(NotFound, match="app 'nowhere' not found"):
        await moved(worker, volume, "nowhere")
    await worker.parts.quotas.put(f"app/{to}", QuotaRule(volumes=0), "ann")
    with pytest.raises(QuotaExceeded):
        await moved(worker, volume, to)
    await worker.parts.quotas.put(f"app/{to}", QuotaRule(), "ann")
    await moved(worker, volume, to)
    with pytest.raises(WrongState, match="no longer there for machine"):
        await worker.start(machine)


async def test_a_volume_does_not_move_to_another_organization(worker: SimWorker) -> None:
    volume, to = await worker.volume("data", size_gb=1), await second_app(worker, "other")
    with pytest.raises(NotFound, match="in the organization of app"):
        await moved(worker, volume, to)


async def test_a_snapshot_that_is_not_there_is_not_found(worker: SimWorker) -> None:
    with pytest.raises(NotFound):
        await worker.api.call(FIND_SNAPSHOT, params=SnapshotParams(snapshot_id="vs_nothing"))
