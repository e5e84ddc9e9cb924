import msgspec
import pytest

from hawker.ids import AppName, VolumeId
from hawker.record.volume import GOING, IN_MAKING, MADE, VOLUMES, VolumeRecord, VolumeState
from hawker.store.memory_store import MemoryStore

RECORD = VolumeRecord(
    id=VolumeId("vol_0000000000000001"),
    app=AppName("web"),
    name="data",
    region="local",
    state=VolumeState.CREATED,
    size_gb=3,
    created_at=0.0,
    updated_at=0.0,
)


def test_every_state_is_in_the_making_made_or_going_and_only_one_of_them() -> None:
    assert set(VolumeState) == MADE | IN_MAKING | GOING
    assert not MADE & IN_MAKING and not MADE & GOING and not IN_MAKING & GOING


def test_a_volume_holds_its_promised_size_of_the_disk_and_nothing_else() -> None:
    assert RECORD.holds.disk_mib == 3 * 1024 and RECORD.holds.memory_mib == 0
    assert msgspec.structs.replace(RECORD, made_gb=1).holds == RECORD.holds


@pytest.mark.anyio
async def test_a_field_a_newer_worker_adds_is_tolerated() -> None:
    store = MemoryStore()
    await store.write(lambda tx: tx.put(VOLUMES, RECORD.id, RECORD))
    assert store.get(VOLUMES, RECORD.id) == RECORD
    newer = msgspec.json.encode({**msgspec.to_builtins(RECORD), "shelf": 7})
    assert msgspec.json.decode(newer, type=VolumeRecord) == RECORD
