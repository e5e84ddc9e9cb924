"""Facts about fetching an image's blobs together."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hawker.clock import ManualClock
from hawker.errors import NoRoom
from hawker.ids import Digest
from hawker.image.blobs import EVERYBODY, BlobReaders, BlobStore, ImageReader
from hawker.image.config import Layer
from hawker.image.download import Arrivals, ImageFetcher
from hawker.image.failure import BadImage
from hawker.image.progress import silent
from hawker.image.reference import RegistryReference
from hawker.image.registry import RegistrySource
from hawker.image.source import Piece, Stored
from hawker.image.transport import RegistryTransport
from tests.fixtures.parts import sha256
from tests.image.fake_registry import FakeRegistry
from tests.image.images import arrivals

pytestmark = pytest.mark.anyio

_CONTENTS = [os.urandom(300_000) for _ in range(6)]
_BLOBS = [Layer(digest=Digest(sha256(content)), size=len(content), media_type="") for content in _CONTENTS]


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    made = BlobStore(tmp_path)
    made.open()
    return made


@pytest.fixture
def origin(transport: RegistryTransport, fake: FakeRegistry) -> RegistrySource:
    fake.blobs |= {sha256(content): content for content in _CONTENTS}
    return RegistrySource(transport, RegistryReference(fake.host, "app", "v1"), None, ManualClock(), 1 << 20)


def missing(store: BlobStore) -> Sequence[Layer]:
    return [blob for blob in _BLOBS if not store.has(blob.digest)]


async def test_all_come_and_no_more_at_once_than_allowed(
    origin: RegistrySource, store: BlobStore, fake: FakeRegistry
) -> None:
    fake.together = 2
    await ImageFetcher(ManualClock(), 2).fetch(origin, _BLOBS, arrivals(store), silent)
    assert missing(store) == []
    assert fake.most_in_flight == 2


async def test_blob_that_two_images_share_is_downloaded_once(
    origin: RegistrySource, store: BlobStore, fake: FakeRegistry
) -> None:
    fetcher = ImageFetcher(ManualClock(), 4)
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(fetcher.fetch, origin, [_BLOBS[0], _BLOBS[0]], arrivals(store), silent)
    assert len(fake.asked) == 1


class HaltingSource:
    """Gives the first half of a blob, and the rest once it may go on."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.halted, self.may_go_on = anyio.Event(), anyio.Event()

    async def manifest(self, digest: Digest | None) -> Stored:
        raise AssertionError

    @asynccontextmanager
    async def blob(self, blob: Layer, offset: int) -> AsyncIterator[Piece]:
        yield Piece(0, self._halves())

    async def _halves(self) -> AsyncIterator[bytes]:
        half = len(self._content) // 2
        yield self._content[:half]
        self.halted.set()
        await self.may_go_on.wait()
        yield self._content[half:]


@pytest.mark.parametrize("is_public", [False, True])
async def test_organization_does_not_wait_for_a_registry_that_another_one_named(
    origin: RegistrySource, store: BlobStore, fake: FakeRegistry, tmp_path: Path, is_public: bool
) -> None:
    """Who names a popular layer at a registry that drips kept it from everybody else on the node."""
    readers = BlobReaders(tmp_path, store)
    readers.open()
    content = os.urandom(3 << 20)
    blob = Layer(digest=Digest(sha256(content)), size=len(content), media_type="")
    fake.blobs[blob.digest] = content
    slow, fetcher = HaltingSource(content), ImageFetcher(ManualClock(), 4)
    acme, bolt = (
        Arrivals(store, readers, org, EVERYBODY if is_public else org)
        for org in (ImageReader("acme"), ImageReader("bolt"))
    )
    async with anyio.create_task_group() as group:
        group.start_soon(fetcher.fetch, slow, [blob], acme, silent)
        await slow.halted.wait()
        with anyio.fail_after(30):
            await fetcher.fetch(origin, [blob], bolt, silent)
        assert bolt.has(blob.digest)
        assert fetcher.busy() == {blob.digest}
        slow.may_go_on.set()
    assert acme.has(blob.digest)
    assert store.read(blob.digest) == content


@pytest.mark.parametrize("is_public", [False, True])
async def test_public_layer_leaves_no_parts_of_other_organizations(
    origin: RegistrySource, store: BlobStore, tmp_path: Path, is_public: bool
) -> None:
    """Nobody would ever go on with them; with those of a private one their owner does."""
    readers = BlobReaders(tmp_path, store)
    readers.open()
    acme, bolt, core = (
        Arrivals(store, readers, org, EVERYBODY if is_public else org)
        for org in map(ImageReader, ("acme", "bolt", "core"))
    )
    fetcher, slow = ImageFetcher(ManualClock(), 4), HaltingSource(_CONTENTS[0])
    left, other = (store.partial(blob.digest, core.owner) for blob in _BLOBS[:2])
    for partial in (left, other):
        partial.write_bytes(b"x")
    async with anyio.create_task_group() as group:
        group.start_soon(fetcher.fetch, slow, [_BLOBS[0]], acme, silent)
        await slow.halted.wait()
        await fetcher.fetch(origin, [_BLOBS[0]], bolt, silent)
        assert store.partial(_BLOBS[0].digest, acme.owner).exists(), "somebody works on it"
        slow.may_go_on.set()
    assert acme.has(_BLOBS[0].digest) and other.exists()
    assert left.exists() is not is_public


async def test_first_error_ends_the_others_and_is_the_one_that_is_told(
    origin: RegistrySource, store: BlobStore, fake: FakeRegistry
) -> None:
    fake.blobs[_BLOBS[3].digest] = b"x" * 300_000
    with pytest.raises(BadImage, match=f"layer {_BLOBS[3].digest} does not match"):
        await ImageFetcher(ManualClock(), 1).fetch(origin, _BLOBS, arrivals(store), silent)
    assert len(missing(store)) >= 3


async def test_image_larger_than_the_disk_is_refused_before_it_is_fetched(
    origin: RegistrySource, store: BlobStore, fake: FakeRegistry
) -> None:
    huge = Layer(digest=Digest("sha256:" + "0" * 64), size=1 << 60, media_type="")
    with pytest.raises(NoRoom) as caught:
        await ImageFetcher(ManualClock(), 1).fetch(origin, [huge], arrivals(store), silent)
    assert caught.value.shortfall["disk_mb"] > 1 << 30
    assert fake.asked == []
