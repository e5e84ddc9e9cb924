"""Facts about volumes that are deleted: a day to think again, and then they are gone."""

import pytest

from hawker.errors import NotFound, WrongState
from hawker.volume.retention import DAY_S, GRACE_S
from tests.volume.shelf import Shelf

pytestmark = pytest.mark.anyio


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


async def test_what_was_not_deleted_cannot_be_taken_back(shelf: Shelf) -> None:
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
