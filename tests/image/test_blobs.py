"""Facts about the blob store: what has a final name is whole, and a download can be left and taken up again."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hawker.ids import Digest
from hawker.image.blobs import BlobStore, PartialBlob, remove_file, write_whole
from hawker.image.config import Layer
from hawker.image.failure import BadImage
from tests.fixtures.parts import sha256

_CONTENT = bytes(range(256)) * 100
_BLOB = Layer(digest=Digest(sha256(_CONTENT)), size=len(_CONTENT), media_type="")


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    made = BlobStore(tmp_path)
    made.open()
    return made


def test_small_blob_is_kept_under_its_digest(store: BlobStore) -> None:
    digest = store.put(b"{}")
    assert store.put(b"{}") == digest == sha256(b"{}")
    assert store.has(digest)
    assert store.read(digest) == b"{}"
    assert [found for found, _ in store.all()] == [digest]


def test_removed_blob_frees_its_bytes(store: BlobStore) -> None:
    digest = store.put(b"{}")
    before = store.disk_bytes()
    assert store.remove(digest) == before > 0
    assert not store.has(digest)
    assert store.remove(digest) == 0


def test_download_is_taken_up_where_it_was_left(store: BlobStore) -> None:
    first = PartialBlob(store, _BLOB, "")
    first.write(_CONTENT[:1000])
    first.close()
    assert not store.has(_BLOB.digest)
    second = PartialBlob(store, _BLOB, "")
    second.recall()
    assert second.size == 1000
    second.write(_CONTENT[1000:])
    assert second.is_whole
    second.finish()
    second.close()
    assert store.read(_BLOB.digest) == _CONTENT
    assert not store.partial(_BLOB.digest, "").exists()


def test_wrong_content_is_refused_by_name_and_forgotten(store: BlobStore) -> None:
    partial = PartialBlob(store, _BLOB, "")
    partial.write(b"x" * len(_CONTENT))
    with pytest.raises(BadImage, match=f"layer {_BLOB.digest} does not match its digest"):
        partial.finish()
    partial.close()
    assert not store.has(_BLOB.digest)
    assert not store.partial(_BLOB.digest, "").exists()


def test_more_than_the_manifest_says_is_refused_and_forgotten(store: BlobStore) -> None:
    partial = PartialBlob(store, _BLOB, "")
    with pytest.raises(BadImage, match=f"is longer than the {len(_CONTENT)} bytes"):
        partial.write(_CONTENT + b"x")
    partial.close()
    assert not store.partial(_BLOB.digest, "").exists()


def test_partial_that_is_too_long_is_begun_again(store: BlobStore) -> None:
    store.partial(_BLOB.digest, "").write_bytes(bytes(len(_CONTENT) + 1))
    partial = PartialBlob(store, _BLOB, "")
    partial.recall()
    assert partial.size == 0
    partial.close()
    assert store.partial(_BLOB.digest, "").stat().st_size == 0


def test_blob_that_is_set_aside_is_not_here_and_is_left_to_be_removed(store: BlobStore) -> None:
    digest = store.put(_CONTENT)
    aside = store.set_aside(digest)
    assert not store.has(digest) and aside.read_bytes() == _CONTENT
    assert store.set_aside(digest) == aside, "no more than once"
    assert store.drop_partials(200, frozenset({digest})) > 0, "whenever it came, and whoever gets the blob anew"
    assert not aside.exists()


def test_old_partials_are_dropped_unless_somebody_works_on_them(store: BlobStore) -> None:
    old, busy, young = (Digest("sha256:" + letter * 64) for letter in "abc")
    for digest, at in ((old, 100), (busy, 100), (young, 300)):
        store.partial(digest, "").write_bytes(b"x")
        os.utime(store.partial(digest, ""), (at, at))
    assert store.drop_partials(200, frozenset({busy})) > 0
    assert [digest for digest in (old, busy, young) if store.partial(digest, "").exists()] == [busy, young]


def test_file_that_another_prune_removes_meanwhile_is_passed_over(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, gone = store.put(b"here"), store.put(b"gone")
    for digest in (here, gone):
        store.partial(digest, "").write_bytes(b"x")
        os.utime(store.partial(digest, ""), (100, 100))
    scandir = os.scandir

    def list_and_remove(folder: Path) -> "Iterator[os.DirEntry[str]]":
        for entry in list(scandir(folder)):
            if entry.name.startswith(gone.removeprefix("sha256:")):
                os.unlink(entry.path)
            yield entry

    one_file = store.disk_bytes() // 4
    for look, expected in (
        (lambda: [digest for digest, _ in store.all()], [here]),
        (store.disk_bytes, 2 * one_file),
        (lambda: store.drop_partials(200, frozenset()), one_file),
    ):
        store.put(b"gone")
        store.partial(gone, "").write_bytes(b"x")
        with monkeypatch.context() as patched:
            patched.setattr(os, "scandir", list_and_remove)
            assert look() == expected


def test_trap_in_the_place_of_a_partial_is_not_followed(store: BlobStore, tmp_path: Path) -> None:
    store.partial(_BLOB.digest, "").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        PartialBlob(store, _BLOB, "")
    assert not (tmp_path / "victim").exists()


def test_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: write_whole(tmp_path / "file", b"content" * 1000, tmp_path), range(100)))
    assert (tmp_path / "file").read_bytes() == b"content" * 1000
    assert os.listdir(tmp_path) == ["file"]


def test_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "nope/file", b"content", tmp_path)
    assert os.listdir(tmp_path) == []


def test_removing_what_is_not_there_frees_nothing(tmp_path: Path) -> None:
    assert remove_file(tmp_path / "nope") == 0
