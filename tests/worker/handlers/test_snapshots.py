import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.volume import CREATE_SNAPSHOT, CREATE_VOLUME, LIST_SNAPSHOTS, CreateVolumeRequest, VolumeParams
from hawker.errors import NotFound
from hawker.record.volume import SNAPSHOTS
from hawker.sim.node.sim_worker import APP, SimWorker

pytestmark = pytest.mark.anyio


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
