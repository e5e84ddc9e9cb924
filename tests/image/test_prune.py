"""Facts about pruning: what is used, shared or on its way stays; what nobody needs goes."""

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest

from hawker.clock import ManualClock
from hawker.ids import Digest
from hawker.image.blobs import EVERYBODY, BlobReaders, BlobStore, ImageReader
from hawker.image.block_image import Blocks, Staging
from hawker.image.cache import ImageCache
from hawker.image.config import Image, ImageConfig, Layer
from hawker.image.image_index import ImageIndex
from hawker.image.limits import BlockChoice, ImageLimits, ImageSettings
from hawker.image.prune import GRACE_S, Pruner
from hawker.keyed_locks import KeyedLocks
from tests.fixtures.parts import ImageParts, layer, layout, tar
from tests.image.fake_registry import FakeRegistry
from tests.image.images import architecture
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

_SHARED = layer(tar(("shared", os.urandom(50_000))))
_ONE, _TWO = (
    ImageParts([_SHARED, layer(tar((name, os.urandom(50_000))))], architecture=architecture())
    for name in ("one", "two")
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def cache(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ImageCache]:
    opened = ImageCache(tmp_path / "images", ImageSettings(block=BlockChoice.NONE), clock)
    await opened.open()
    yield opened
    await opened.aclose()


@pytest.fixture
async def one(cache: ImageCache, fake: FakeRegistry) -> Image:
    return await cache.pull(fake.add("one", "v1", _ONE))


@pytest.fixture
async def two(cache: ImageCache, fake: FakeRegistry) -> Image:
    return await cache.pull(fake.add("two", "v1", _TWO))


def nothing() -> set[Digest]:
    return set()


async def test_unused_image_goes_with_all_that_only_it_needs(cache: ImageCache, one: Image, two: Image) -> None:
    before = cache.disk_bytes()
    report = await cache.prune(lambda: {two.digest})
    assert report.removed == (one.digest,)
    assert report.freed_bytes == before - cache.disk_bytes() > 50_000
    assert cache.find(one.digest) is None and cache.find(one.reference) is None
    assert cache.find(two.digest) == two
    assert cache.missing_bytes(await cache.resolve(two.reference)) == 0


async def test_nothing_is_left_when_nothing_is_used(cache: ImageCache, one: Image, two: Image) -> None:
    report = await cache.prune(nothing)
    assert set(report.removed) == {one.digest, two.digest}
    assert cache.list() == []
    assert cache.disk_bytes() == 0


async def test_image_that_was_used_lately_stays_when_asked(cache: ImageCache, one: Image, clock: ManualClock) -> None:
    clock.advance(100)
    assert (await cache.prune(nothing, unused_for_s=200)).removed == ()
    cache.mark_used(one.digest)
    clock.advance(150)
    assert (await cache.prune(nothing, unused_for_s=200)).removed == ()
    assert (await cache.prune(nothing, unused_for_s=150)).removed == (one.digest,)


async def test_pinned_image_stays(cache: ImageCache, one: Image) -> None:
    with cache.pin(one.digest):
        assert (await cache.prune(nothing)).removed == ()
    assert (await cache.prune(nothing)).removed == (one.digest,)


async def test_blobs_between_two_steps_of_a_pull_stay_for_a_while(
    cache: ImageCache, fake: FakeRegistry, clock: ManualClock
) -> None:
    resolved = await cache.resolve(fake.add("one", "v1", _ONE))
    await cache.fetch(resolved)
    _set_file_times(cache, clock.now())
    await cache.prune(nothing)
    assert cache.missing_bytes(resolved) == 0
    clock.advance(GRACE_S + 1)
    await cache.prune(nothing)
    assert cache.disk_bytes() == 0


def _set_file_times(cache: ImageCache, now: float) -> None:
    """The kernel's clock is not the test's."""
    for file in cache.root.rglob("blobs/sha256/*"):
        os.utime(file, (now, now))


async def test_prune_waits_for_no_registry_and_spares_what_comes(
    cache: ImageCache, fake: FakeRegistry, clock: ManualClock
) -> None:
    resolved = await cache.resolve(fake.add("one", "v1", _ONE))
    await cache.fetch(resolved)
    here = await cache.resolve(resolved.reference, org=ImageReader("bolt"))
    _set_file_times(cache, 0.0)
    clock.advance(GRACE_S + 1)
    fake.together, fake.most_in_flight, asked = 2, 0, len(fake.asked)
    async with anyio.create_task_group() as group:
        group.start_soon(cache.fetch, here, None, None, ImageReader("bolt"))
        await eventually(lambda: len(fake.asked) > asked)
        partial, *_ = (cache.root / "partial").iterdir()
        os.utime(partial, (0.0, 0.0))
        with anyio.fail_after(30):
            assert (await cache.prune(nothing)).removed == ()
        assert partial.exists()
        group.cancel_scope.cancel()
    assert cache.missing_bytes(resolved) == 0


async def test_import_that_waits_for_its_build_keeps_what_was_here(
    cache: ImageCache, fake: FakeRegistry, clock: ManualClock
) -> None:
    """Nobody could give it the layers again."""

    async def upload() -> AsyncIterator[bytes]:
        yield tar(*layout(_ONE).items())

    resolved = await cache.resolve(fake.add("one", "v1", _ONE), org=EVERYBODY)
    await cache.fetch(resolved, org=EVERYBODY)
    _set_file_times(cache, 0.0)
    clock.advance(GRACE_S + 1)
    builds = cache._building
    async with anyio.create_task_group() as group, builds.hold(resolved.digest):
        group.start_soon(cache.import_archive, upload(), "mine:v1")
        await eventually(lambda: builds._users[resolved.digest] == 2)
        await cache.prune(nothing)
    assert cache.find("mine:v1") is not None
    assert cache.missing_bytes(resolved) == 0


async def test_pull_during_a_prune_gets_a_whole_image(cache: ImageCache, one: Image, fake: FakeRegistry) -> None:
    pulled: list[Image] = []

    def in_use() -> set[Digest]:
        return {image.digest for image in pulled}

    await cache.prune(in_use)
    pulled.append(await cache.pull(one.reference))
    assert cache.find(one.digest) == pulled[0]
    assert (await cache.prune(in_use)).removed == ()


async def test_image_that_comes_into_use_meanwhile_stays(cache: ImageCache, one: Image, two: Image) -> None:
    asked = 0

    def in_use() -> set[Digest]:
        nonlocal asked
        asked += 1
        return {two.digest} if asked > 1 else set()

    assert (await cache.prune(in_use)).removed == (one.digest,)
    assert cache.find(two.digest) == two


async def test_nothing_is_dropped_while_it_is_not_known_what_is_needed(
    cache: ImageCache, one: Image, clock: ManualClock, fake: FakeRegistry
) -> None:
    (file,) = (cache.root / "images").glob("*.json")
    file.write_bytes(b"torn")
    clock.advance(1e9)
    again = ImageCache(cache.root, ImageSettings(block=BlockChoice.NONE), clock)
    await again.open()
    assert again.find(one.digest) is None
    assert again.missing_bytes(await again.resolve(one.reference)) == 0, "what it needs is still here"
    assert (await again.pull(one.reference)).digest == one.digest
    await again.aclose()


class BusyStore(BlobStore):
    """Something is done while its blobs are listed for a prune."""

    meanwhile: Callable[[], Coroutine[Any, Any, None]]

    def all(self) -> Iterator[tuple[Digest, os.stat_result]]:
        found = list(super().all())
        anyio.from_thread.run(self.meanwhile)
        return iter(found)


async def test_blob_of_an_image_that_comes_during_a_prune_stays(tmp_path: Path) -> None:
    """An import that ended after the prune had asked what is needed lost the layer that it shares."""
    blobs, index, clock = BusyStore(tmp_path), ImageIndex(tmp_path), ManualClock()
    staging = Staging(tmp_path / "staging", None)
    readers, blocks = (
        BlobReaders(tmp_path, BlobStore(tmp_path)),
        Blocks(tmp_path, BlockChoice.NONE, staging, ImageLimits()),
    )
    for part in (blobs, index, readers, blocks):
        part.open()
    shared, own, lone = map(blobs.put, (b"shared", b"own", b"lone"))
    image = Image(
        digest=own,
        reference="app:v1",
        registry="",
        repository="app",
        tag="v1",
        config=ImageConfig(),
        config_digest=own,
        layers=(Layer(digest=shared, size=6, media_type=""),),
        size_bytes=6,
        rootfs_bytes=0,
        rootfs_type="",
        created_at=1.0,
    )
    blobs.meanwhile = lambda: index.put_image(image)
    pruner = Pruner(
        blobs=blobs,
        readers=readers,
        blocks=blocks,
        index=index,
        building=KeyedLocks(),
        fetching=frozenset,
        pinned=lambda digest: False,
        clock=clock,
    )
    await readers.add(ImageReader("acme"), shared)
    assert await pruner.sweep(0.0, frozenset({shared, own, lone})) > 0
    assert [blobs.has(each) for each in (shared, own, lone)] == [True, True, False]
    assert readers.may_read(ImageReader("acme"), (shared,))
