from typing import Any

import msgspec
import pytest

from hawker.clock import ManualClock
from hawker.errors import NotFound, WrongState
from hawker.ids import AppName, MachineId, VolumeId
from hawker.node import Resources
from hawker.record.node import used
from hawker.record.volume import GONE_VOLUMES, VOLUMES_BY_APP, VolumeRecord, VolumeState
from hawker.store.memory_store import MemoryStore
from hawker.volume.table import VolumeTable

pytestmark = pytest.mark.anyio
WEB = AppName("web")
FIRST = VolumeRecord(
    id=VolumeId("vol_0000000000000001"),
    app=WEB,
    name="data",
    region="local",
    state=VolumeState.CREATED,
    size_gb=1,
    created_at=0.0,
    updated_at=0.0,
)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def table() -> VolumeTable:
    return VolumeTable(ManualClock(1000.0))


def like(number: int, **fields: Any) -> VolumeRecord:
    return msgspec.structs.replace(FIRST, id=VolumeId(f"vol_{number:016}"), **fields)


async def test_a_volume_is_found_in_its_own_app_and_not_while_it_is_removed(
    store: MemoryStore, table: VolumeTable
) -> None:
    await store.write(lambda tx: table.insert(tx, FIRST))
    assert table.find(store, WEB, FIRST.id) == FIRST == table.get(store, FIRST.id)
    for app, volume_id in ((AppName("other"), FIRST.id), (WEB, "vol_x")):
        with pytest.raises(NotFound, match="volume not found"):
            table.find(store, app, volume_id)
    await store.write(lambda tx: table.change(tx, FIRST, state=VolumeState.DESTROYED))
    with pytest.raises(NotFound):
        table.find(store, WEB, FIRST.id)


async def test_disk_of_volumes_is_used_until_their_files_are_gone(store: MemoryStore, table: VolumeTable) -> None:
    await store.write(lambda tx: table.insert(tx, FIRST))
    grown = await store.write(lambda tx: table.change(tx, FIRST, size_gb=3))
    assert used(store) == Resources(disk_mib=3 * 1024) and grown.updated_at == 1000.0
    gone = await store.write(lambda tx: table.let_go(tx, grown))
    assert used(store) == Resources(disk_mib=3 * 1024) and gone.destroy_at == 1000.0 + 86_400
    await store.write(lambda tx: table.remove(tx, gone))
    assert used(store) == Resources() and store.count(VOLUMES_BY_APP) == 0
    left = store.get(GONE_VOLUMES, FIRST.id)
    assert left is not None and left.state is VolumeState.DESTROYED


async def test_an_app_s_volumes_are_read_in_order_and_counted_without_those_that_go(
    store: MemoryStore, table: VolumeTable
) -> None:
    for each in (like(3), like(1), like(2, state=VolumeState.PENDING_DESTROY), like(4, app=AppName("weber"))):
        await store.write(lambda tx, each=each: table.insert(tx, each))  # type: ignore[misc]
    assert [each.id for each in table.of_app(store, WEB)] == [like(1).id, like(2).id, like(3).id]
    assert [each.id for each in table.of_app(store, WEB, like(1).id)] == [like(2).id, like(3).id]
    assert table.count(store, WEB) == 2


async def test_a_volume_that_a_machine_has_is_not_let_go_of(store: MemoryStore, table: VolumeTable) -> None:
    attached = like(1, machine=MachineId("00000000000001"))
    await store.write(lambda tx: table.insert(tx, attached))
    with pytest.raises(WrongState, match="stop that machine and detach the volume, or destroy"):
        await store.write(lambda tx: table.let_go(tx, attached))
