"""Facts about downloads from a registry that misbehaves."""

import errno
from pathlib import Path

import pytest

from hawker.clock import ManualClock
from hawker.errors import NoRoom, Unavailable
from hawker.ids import Digest
from hawker.image.blobs import BlobStore
from hawker.image.config import Layer
from hawker.image.download import download
from hawker.image.failure import BadImage
from hawker.image.progress import PullProgress, silent
from hawker.image.reference import RegistryReference
from hawker.image.registry import RegistrySource
from hawker.image.transport import RegistryTransport
from tests.fixtures.parts import sha256
from tests.image.fake_registry import FakeRegistry
from tests.image.images import arrivals

pytestmark = pytest.mark.anyio

_CONTENT = bytes(range(251)) * 20_000  # some five batches
_BLOB = Layer(digest=Digest(sha256(_CONTENT)), size=len(_CONTENT), media_type="")


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    made = BlobStore(tmp_path)
    made.open()
    return made


@pytest.fixture
def origin(transport: RegistryTransport, fake: FakeRegistry) -> RegistrySource:
    fake.blobs[_BLOB.digest] = _CONTENT
    return RegistrySource(transport, RegistryReference(fake.host, "app", "v1"), None, ManualClock(), 1 << 20)


def left(store: BlobStore) -> list[Path]:
    return list(store.folder.rglob("*sha256/*")) + list(store.partial(_BLOB.digest, "").parent.iterdir())


async def test_blob_comes_with_progress(origin: RegistrySource, store: BlobStore) -> None:
    seen: list[PullProgress] = []
    await download(origin, _BLOB, arrivals(store), ManualClock(), seen.append)
    assert store.read(_BLOB.digest) == _CONTENT
    done = [progress.done_bytes for progress in seen]
    assert done == sorted(done)
    assert (seen[-1].layer, seen[-1].done_bytes, seen[-1].total_bytes) == (_BLOB.digest, _BLOB.size, _BLOB.size)


async def test_blob_that_is_here_is_not_asked_for(origin: RegistrySource, store: BlobStore, fake: FakeRegistry) -> None:
    store.put(_CONTENT)
    await download(origin, _BLOB, arrivals(store), ManualClock(), silent)
    assert fake.asked == []


async def test_cut_connections_are_resumed(origin: RegistrySource, store: BlobStore, fake: FakeRegistry) -> None:
    fake.cuts = [1_500_000, 1_500_000, 0, 1_500_000]
    await download(origin, _BLOB, arrivals(store), ManualClock(), silent)
    assert store.read(_BLOB.digest) == _CONTENT
    asked = [each.range for each in fake.asked]
    assert asked[0] is None
    assert all(each and each.startswith("bytes=") for each in asked[1:])


@pytest.mark.parametrize("ranges", ["ignored", "refused"])
async def test_without_ranges_it_begins_again(
    origin: RegistrySource, store: BlobStore, fake: FakeRegistry, ranges: str
) -> None:
    fake.cuts, fake.ranges = [2_000_000], ranges
    await download(origin, _BLOB, arrivals(store), ManualClock(), silent)
    assert store.read(_BLOB.digest) == _CONTENT


async def test_registry_that_always_cuts_is_unavailable_and_the_next_call_goes_on(
    origin: RegistrySource, store: BlobStore, fake: FakeRegistry
) -> None:
    fake.cuts = [1_200_000, 10, 10, 10, 10, 10]
    with pytest.raises(Unavailable, match=f"failed to download {_BLOB.digest}"):
        await download(origin, _BLOB, arrivals(store), ManualClock(), silent)
    kept = store.partial(_BLOB.digest, "").stat().st_size
    assert 0 < kept < _BLOB.size
    fake.cuts.clear()
    fake.asked.clear()
    await download(origin, _BLOB, arrivals(store), ManualClock(), silent)
    assert [each.range for each in fake.asked] == [f"bytes={kept}-"]
    assert store.read(_BLOB.digest) == _CONTENT


async def test_busy_registry_is_asked_again(origin: RegistrySource, store: BlobStore, fake: FakeRegistry) -> None:
    fake.refusals = [503, 429]
    await download(origin, _BLOB, arrivals(store), ManualClock(), silent)
    assert store.has(_BLOB.digest)


@pytest.mark.parametrize(
    ("served", "says"),
    [
        (b"x" * len(_CONTENT), f"layer {_BLOB.digest} does not match its digest"),
        (_CONTENT + b"more", f"layer {_BLOB.digest} is longer than"),
    ],
)
async def test_wrong_content_names_the_layer_and_leaves_nothing(
    origin: RegistrySource, store: BlobStore, fake: FakeRegistry, served: bytes, says: str
) -> None:
    fake.blobs[_BLOB.digest] = served
    with pytest.raises(BadImage, match=says):
        await download(origin, _BLOB, arrivals(store), ManualClock(), silent)
    assert left(store) == []
    assert len(fake.asked) == 1


async def test_content_that_is_too_short_is_unavailable(
    origin: RegistrySource, store: BlobStore, fake: FakeRegistry
) -> None:
    fake.blobs[_BLOB.digest] = _CONTENT[:1000]
    fake.ranges = "ignored"
    with pytest.raises(Unavailable, match=f"it ended after 1000 of {_BLOB.size} bytes"):
        await download(origin, _BLOB, arrivals(store), ManualClock(), silent)


async def test_damaged_partial_is_found_out_and_begun_again(origin: RegistrySource, store: BlobStore) -> None:
    store.partial(_BLOB.digest, "").write_bytes(b"damaged" * 1000)
    await download(origin, _BLOB, arrivals(store), ManualClock(), silent)
    assert store.read(_BLOB.digest) == _CONTENT


async def test_whole_partial_needs_no_request(origin: RegistrySource, store: BlobStore, fake: FakeRegistry) -> None:
    store.partial(_BLOB.digest, "").write_bytes(_CONTENT)
    await download(origin, _BLOB, arrivals(store), ManualClock(), silent)
    assert store.has(_BLOB.digest)
    assert fake.asked == []


@pytest.mark.root
async def test_full_disk_is_no_room_and_leaves_nothing(
    origin: RegistrySource, fake: FakeRegistry, small_disk: Path
) -> None:
    (small_disk / "filler").write_bytes(bytes(5 << 20))
    store = BlobStore(small_disk)
    store.open()
    with pytest.raises(NoRoom, match="no space left on this node's disk while downloading") as caught:
        await download(origin, _BLOB, arrivals(store), ManualClock(), silent)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert left(store) == []
