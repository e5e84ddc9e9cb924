"""Facts about who may use a blob, as it is kept beside the blobs."""

from pathlib import Path

import pytest

from hawker.ids import Digest
from hawker.image.blobs import EVERYBODY, NODE, BlobReaders, BlobStore, ImageReader
from hawker.image.reference import hex_of

pytestmark = pytest.mark.anyio

A, B = ImageReader("a"), ImageReader("b")


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    """Which began with readers."""
    made = BlobStore(tmp_path)
    made.open()
    opened(made)
    return made


def opened(store: BlobStore) -> BlobReaders:
    made = BlobReaders(store.folder.parent.parent, store)
    made.open()
    return made


def who_reads(readers: BlobReaders, digest: Digest) -> list[ImageReader]:
    return [each for each in (A, B, EVERYBODY, NODE) if readers.may_read(each, (digest,))]


async def test_blob_is_read_by_whom_it_came_for_and_by_the_node(store: BlobStore) -> None:
    readers, digest = opened(store), store.put(b"layer")
    assert who_reads(readers, digest) == [NODE]
    await readers.add(A, digest)
    assert who_reads(readers, digest) == [A, NODE]
    await readers.add(EVERYBODY, digest)
    assert who_reads(readers, digest) == [A, B, EVERYBODY, NODE]


async def test_image_is_read_when_all_of_its_blobs_are(store: BlobStore) -> None:
    readers, one, two = opened(store), store.put(b"one"), store.put(b"two")
    await readers.add(A, one)
    assert not readers.may_read(A, (one, two))


async def test_readers_outlive_the_daemon_and_end_with_the_blob(store: BlobStore) -> None:
    digest = store.put(b"layer")
    await opened(store).add(A, digest)
    later = opened(store)
    assert who_reads(later, digest) == [A, NODE]
    store.remove(digest)
    later.forget(digest)
    store.put(b"layer")
    assert who_reads(later, digest) == who_reads(opened(store), digest) == [NODE]


async def test_blob_that_vanished_takes_its_readers_along(store: BlobStore) -> None:
    digest = store.put(b"layer")
    await opened(store).add(A, digest)
    store.remove(digest)
    opened(store)
    store.put(b"layer")
    assert who_reads(opened(store), digest) == [NODE]


def test_blob_from_before_readers_were_kept_is_everybodys_and_later_ones_are_not(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    store.open()
    before = store.put(b"before")
    assert B in who_reads(opened(store), before)
    later = store.put(b"later")
    assert who_reads(opened(store), later) == [NODE]
    assert B in who_reads(opened(store), before)


async def test_damaged_file_makes_the_blob_nobodys(store: BlobStore) -> None:
    digest = store.put(b"layer")
    await opened(store).add(A, digest)
    (store.folder.parent.parent / "readers" / hex_of(digest)).write_text('{"*": 1')
    readers = opened(store)
    assert who_reads(readers, digest) == [NODE]
    await readers.add(B, digest)
    assert who_reads(opened(store), digest) == [B, NODE]
