"""Answers about volumes: figures, lists in pages, and refusals that name the field."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawker.api.codec import encode_json
from hawker.api.contract.app import GET_APP, AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.org import OrgParams
from hawker.api.contract.volume import (
    CREATE_SNAPSHOT,
    CREATE_VOLUME,
    LIST_ORG_VOLUMES,
    LIST_SNAPSHOTS,
    LIST_VOLUMES,
    UPDATE_VOLUME,
    CreateVolumeRequest,
    ListVolumesQuery,
    OrgVolumes,
    OrgVolumesQuery,
    UpdateVolumeRequest,
    Volume,
    VolumeParams,
)
from hawker.api.route import Page
from hawker.errors import BadRequest, NoRoom, NotFound, Unprocessable
from hawker.handlers.volumes import org_volume, volume
from hawker.ids import AppName, MachineId, VolumeId
from hawker.record.volume import SNAPSHOTS, VOLUMES, VolumeRecord, VolumeState
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.volume.disks import Usage

pytestmark = pytest.mark.anyio


async def listed(worker: SimWorker, **query: Any) -> Page[Volume]:
    return await worker.api.call(LIST_VOLUMES, params=AppParams(app_name=APP), query=ListVolumesQuery(**query))


async def of_org(worker: SimWorker, **query: Any) -> OrgVolumes:
    params = OrgParams(org_slug="personal")
    return await worker.api.call(LIST_ORG_VOLUMES, params=params, query=OrgVolumesQuery(**query))


async def test_a_volume_is_shown_with_figures_and_a_summary_without(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    shown = await worker.get_volume(volume.id)
    assert shown == volume and shown.bytes_total == 1 << 30 and shown.bytes_used == 0
    (brief,) = (await listed(worker, summary=True)).items
    assert brief.id == volume.id and brief.bytes_total is None


async def test_lists_come_in_pages_by_id(worker: SimWorker) -> None:
    ids = sorted([(await worker.volume(f"data-{number}", size_gb=1)).id for number in range(3)])
    first = await listed(worker, limit=2)
    rest = await listed(worker, limit=2, cursor=first.next_cursor)
    assert [each.id for each in (*first.items, *rest.items)] == ids and rest.next_cursor is None
    assert [each.id for each in (await of_org(worker, limit=2)).volumes] == ids[:2]


async def test_an_organization_s_list_is_selected_and_may_have_what_is_gone(worker: SimWorker) -> None:
    kept, gone = await worker.volume("kept", size_gb=1), await worker.volume("gone", size_gb=1)
    await worker.delete_volume(gone.id)
    assert [each.id for each in (await of_org(worker, state=("created",))).volumes] == [kept.id]
    await worker.parts.volumes.destroy(VolumeId(gone.id))
    await worker.at_rest()
    assert {each.id for each in (await of_org(worker)).volumes} == {kept.id}
    everything = await of_org(worker, include_deleted=True)
    assert {each.state for each in everything.volumes} == {"created", "destroyed"}
    assert (await of_org(worker, region="elsewhere")).volumes == ()
    with pytest.raises(BadRequest, match="limit"):
        await of_org(worker, limit=1001)


async def test_an_app_counts_its_volumes(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    await worker.volume("more", size_gb=1)
    await worker.delete_volume(volume.id)
    assert (await worker.api.call(GET_APP, params=AppParams(app_name=APP))).volume_count == 1


async def test_a_missing_volume_is_not_found(worker: SimWorker) -> None:
    with pytest.raises(NotFound, match="volume not found"):
        await worker.get_volume("vol_0000000000000000")
    with pytest.raises(NotFound, match="app not found"):
        await worker.api.call(LIST_VOLUMES, params=AppParams(app_name="nope"))


async def test_encryption_is_refused_where_it_is_asked_for_and_cannot_be(worker: SimWorker, stall: MemoryWorld) -> None:
    with pytest.raises(Unprocessable, match="encrypted"):
        await worker.volume("data", size_gb=1, encrypted=True)
    assert not (await worker.volume("data", size_gb=1, encrypted=None)).encrypted
    assert [record.encrypted for _, record in worker.store.scan(VOLUMES)] == [False]


async def test_where_encryption_is_a_wish_a_volume_is_plain_and_says_so(tmp_path: Path) -> None:
    """Clients that always ask for encrypted volumes, and copy that into the machines that they clone, are served."""
    async with MemoryWorld(tmp_path, volume_encryption="wished").open() as worker:
        await worker.app()
        made = await worker.volume("data", size_gb=1, encrypted=True)
        assert not made.encrypted
        copied = await worker.volume("data", source_volume_id=made.id, encrypted=True)
        assert not copied.encrypted
        machine = await worker.started(mounts=[{"volume": made.id, "path": "/data", "encrypted": True}])
        await worker.update(machine, mounts=[{"volume": made.id, "path": "/data", "encrypted": True}])


async def test_another_region_has_no_room(worker: SimWorker) -> None:
    with pytest.raises(NoRoom, match="no host in region 'mad'"):
        await worker.volume("data", size_gb=1, region="mad")


async def test_how_snapshots_are_kept_can_be_changed_within_bounds(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    params = VolumeParams(app_name=APP, volume_id=volume.id)

    async def change(**fields: Any) -> Volume:
        return await worker.api.call(UPDATE_VOLUME, params=params, body=UpdateVolumeRequest(**fields))

    changed = await change(snapshot_retention=7)
    assert (changed.snapshot_retention, changed.auto_backup_enabled) == (7, True)
    changed = await change(auto_backup_enabled=False)
    assert (changed.snapshot_retention, changed.auto_backup_enabled) == (7, False)
    with pytest.raises(BadRequest, match="between 1 and 60"):
        await change(snapshot_retention=0)


async def test_the_answer_to_a_snapshot_is_in_the_live_api_s_envelope(worker: SimWorker) -> None:
    body = CreateVolumeRequest(name="data", size_gb=1)
    volume = await worker.api.call(CREATE_VOLUME, params=AppParams(app_name=APP), body=body)
    params = VolumeParams(app_name=APP, volume_id=volume.id)
    backup = (await worker.api.call(CREATE_SNAPSHOT, params=params)).Msg.backup
    record = worker.store.get(SNAPSHOTS, backup.id)
    assert record is not None
    assert (backup.status, backup.created_at, backup.volume_size) == ("waiting", instant(record.created_at), 1 << 30)
    await worker.at_rest()
    [listed] = await worker.api.call(LIST_SNAPSHOTS, params=params)
    assert (listed.id, listed.status, listed.retention_days) == (backup.id, "created", 5)


async def test_a_volume_of_another_app_or_none_has_no_snapshots_to_tell(worker: SimWorker) -> None:
    for app in (APP, "nobody"):
        with pytest.raises(NotFound):
            await worker.api.call(LIST_SNAPSHOTS, params=VolumeParams(app_name=app, volume_id="vol_0000000000000000"))


RECORD = VolumeRecord(
    id=VolumeId("vol_0000000000000001"),
    app=AppName("web"),
    name="data",
    region="local",
    state=VolumeState.CREATED,
    size_gb=1,
    created_at=0.0,
    updated_at=60.0,
)


def test_a_free_volume_is_attached_to_null_and_never_to_an_empty_word() -> None:
    sent = msgspec.json.decode(encode_json(volume(RECORD, "host", None)))
    assert sent["attached_machine_id"] is None and sent["attached_alloc_id"] is None
    assert (sent["host_status"], sent["created_at"], sent["zone"]) == ("ok", "1970-01-01T00:00:00Z", "host")
    assert "blocks" not in sent and "bytes_used" not in sent


def test_figures_follow_from_blocks() -> None:
    usage = Usage(block_size=4096, blocks=100, blocks_free=60, blocks_avail=50)
    shown = volume(msgspec.structs.replace(RECORD, machine=MachineId("00000000000001")), "host", usage)
    assert shown.attached_machine_id == "00000000000001"
    assert (shown.bytes_total, shown.bytes_used, shown.blocks_avail) == (409_600, 163_840, 50)


def test_an_organization_s_list_says_whose_it_is() -> None:
    shown = org_volume(RECORD, "host", None)
    assert (shown.app_name, shown.updated_at.second, shown.updated_at.minute) == ("web", 0, 1)
