"""What every host of volumes keeps, real and played: a file is made once and whole, grows and never shrinks, is mounted
for whoever asks and given back, and is removed only when told.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.errors import BadRequest, NotFound
from hawker.record.volume import GB, Fstype
from hawker.volume.disks import Disks
from tests.contract.disks import OTHER, SHOPS, VOLUME, MakeStore, Store, disk, empty, nothing_astray

pytestmark = pytest.mark.anyio


@pytest.fixture(params=SHOPS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    make: MakeStore = request.param
    made = make(tmp_path / "volumes")
    yield made
    await empty(made)


@pytest.fixture
def disks(store: Store) -> Disks:
    return store.disks


async def test_a_new_disk_has_its_size_and_is_empty(disks: Disks) -> None:
    await disks.make(disk(2))
    assert await disks.list() == [VOLUME] and await disks.size(VOLUME) == 2 * GB
    usage = await disks.usage(disk(2))
    assert usage is not None and 1.8 * GB < usage.bytes_total <= 2 * GB and usage.bytes_used < 0.01 * GB
    assert 0 < usage.blocks_avail < usage.blocks_free <= usage.blocks


async def test_nothing_is_there_before_it_is_made(disks: Disks) -> None:
    assert await disks.list() == [] and await disks.size(VOLUME) is None and await disks.usage(disk()) is None
    assert await disks.mounted() == frozenset() and await disks.strays() == ()
    for call in (disks.mount, disks.grow):
        with pytest.raises(NotFound, match=VOLUME):
            await call(disk())


async def test_making_it_again_leaves_it_as_it_is(store: Store) -> None:
    await store.disks.make(disk(1))
    await store.renew().make(disk(3))
    assert await store.disks.size(VOLUME) == GB


async def test_a_mounted_one_stays_at_its_path_for_the_next_daemon(store: Store) -> None:
    await store.disks.make(disk())
    path = await store.disks.mount(disk())
    assert await store.renew().mount(disk()) == path
    assert await store.renew().mounted() == {VOLUME} and await store.disks.strays() == ()


async def test_one_that_is_given_back_is_mounted_no_more(disks: Disks) -> None:
    await disks.make(disk())
    await disks.mount(disk())
    for _ in range(2):
        await disks.unmount(VOLUME)
    assert await disks.mounted() == frozenset()
    await nothing_astray(disks)
    assert await disks.size(VOLUME) == GB


async def test_a_disk_is_not_given_back_when_somebody_has_it_meanwhile(disks: Disks) -> None:
    await disks.make(disk())
    await disks.mount(disk())
    await disks.unmount(VOLUME, unless=lambda: True)
    assert await disks.mounted() == {VOLUME}


async def test_a_disk_grows_when_nobody_has_it_and_never_shrinks(disks: Disks) -> None:
    await disks.make(disk())
    assert await disks.grow(disk(3)) and await disks.size(VOLUME) == 3 * GB
    usage = await disks.usage(disk(3))
    assert usage is not None and usage.bytes_total > 2.7 * GB
    await disks.grow(disk(1))
    assert await disks.size(VOLUME) == 3 * GB and await disks.mounted() == frozenset()


async def test_one_that_grew_in_use_has_its_size_at_the_latest_with_the_next_mount(disks: Disks) -> None:
    await disks.make(disk())
    await disks.mount(disk())
    await disks.grow(disk(2))
    assert await disks.size(VOLUME) == 2 * GB
    await disks.unmount(VOLUME)
    await nothing_astray(disks)
    await disks.mount(disk(2))
    assert await disks.grow(disk(2))
    usage = await disks.usage(disk(2))
    assert usage is not None and usage.bytes_total > 1.8 * GB


async def test_one_without_a_filesystem_is_a_file_and_cannot_be_mounted(disks: Disks) -> None:
    raw = disk(fstype=Fstype.RAW)
    await disks.make(raw)
    assert await disks.size(VOLUME) == GB and await disks.usage(raw) is None
    with pytest.raises(BadRequest, match="no filesystem"):
        await disks.mount(raw)


async def test_a_damaged_one_is_not_mounted_and_kept(store: Store) -> None:
    await store.disks.make(disk())
    store.damage(VOLUME)
    with pytest.raises(BadRequest, match="damaged"):
        await store.disks.mount(disk())
    assert await store.disks.size(VOLUME) == GB and await store.disks.mounted() == frozenset()


async def test_filesystem_that_is_damaged_does_not_grow(store: Store) -> None:
    await store.disks.make(disk())
    store.damage(VOLUME)
    with pytest.raises(BadRequest, match="damaged"):
        await store.disks.grow(disk(2))
    assert await store.disks.list() == [VOLUME] and await store.disks.mounted() == frozenset()


async def test_one_that_is_removed_is_gone_also_when_it_was_mounted(disks: Disks) -> None:
    await disks.make(disk())
    await disks.make(disk(volume_id=OTHER))
    await disks.mount(disk())
    for _ in range(2):
        await disks.remove(VOLUME)
    assert await disks.list() == [OTHER] and await disks.mounted() == frozenset()
    await nothing_astray(disks)
