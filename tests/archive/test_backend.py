"""What every place promises, and which place a setting means."""

import os
from pathlib import Path

import pytest

from hawker.archive.backend import ArchiveBackend, open_backend
from hawker.archive.directory import DirectoryBackend
from hawker.archive.failure import ArchiveDamaged
from hawker.archive.s3 import S3Backend
from hawker.errors import CannotStart

pytestmark = pytest.mark.anyio
KEY = "ab/abcdef.sqlite.zst"
LARGE = os.urandom(11 << 20)  # more than one part of an upload


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"what happened")
    return tmp_path / "file"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """As long as `file`."""
    (tmp_path / "other").write_bytes(b"what followed")
    return tmp_path / "other"


@pytest.fixture
def large(tmp_path: Path) -> Path:
    (tmp_path / "large").write_bytes(LARGE)
    return tmp_path / "large"


async def test_file_that_was_put_is_there(place: ArchiveBackend, file: Path, tmp_path: Path) -> None:
    await place.put(KEY, file)
    assert await place.size(KEY) == len(b"what happened")
    assert await place.get(KEY, tmp_path / "again", 100)
    assert (tmp_path / "again").read_bytes() == b"what happened"


async def test_a_large_file_comes_back_whole(place: ArchiveBackend, large: Path, tmp_path: Path) -> None:
    await place.put(KEY, large)
    assert await place.size(KEY) == len(LARGE)
    assert await place.get(KEY, tmp_path / "again", len(LARGE))
    assert (tmp_path / "again").read_bytes() == LARGE


async def test_putting_again_replaces_it(place: ArchiveBackend, file: Path, large: Path) -> None:
    await place.put(KEY, large)
    await place.put(KEY, file)
    assert await place.size(KEY) == len(b"what happened")


async def test_a_new_key_never_replaces_what_is_there(place: ArchiveBackend, file: Path, large: Path) -> None:
    assert await place.put_new(KEY, file)
    assert not await place.put_new(KEY, large)
    assert await place.size(KEY) == len(b"what happened")


async def test_names_are_those_below_a_folder_in_order(place: ArchiveBackend, file: Path) -> None:
    assert await place.names("ab/", 2) == []
    for key in ("ab/d/2", "ab/c/1", "abc/3"):
        await place.put_new(key, file)
    assert await place.names("ab/", 2) == ["ab/c/1", "ab/d/2"]
    with pytest.raises(ArchiveDamaged, match="more than 1 "):
        await place.names("ab/", 1)


async def test_version_is_another_one_once_something_else_is_written(
    place: ArchiveBackend, file: Path, large: Path, other: Path
) -> None:
    assert await place.versions("ab/", 2) == {}
    for key in ("ab/c/1", "ab/d/2", "abc/3"):
        await place.put_new(key, file)
    first = await place.versions("ab/", 2)
    assert first.keys() == {"ab/c/1", "ab/d/2"} and None not in first.values()
    await place.put("ab/c/1", other)
    await place.put_new("ab/d/2", large)
    second = await place.versions("ab/", 2)
    assert second["ab/c/1"] != first["ab/c/1"] and second["ab/d/2"] == first["ab/d/2"]
    with pytest.raises(ArchiveDamaged, match="more than 1 "):
        await place.versions("ab/", 1)


async def test_missing_key_is_not_there(place: ArchiveBackend, file: Path, tmp_path: Path) -> None:
    assert await place.size(KEY) is None
    assert not await place.get(KEY, tmp_path / "again", 100)
    await place.put("ab/other", file)
    assert await place.size(KEY) is None
    assert not await place.get(KEY, tmp_path / "again", 100)


async def test_more_than_is_allowed_is_not_fetched(place: ArchiveBackend, file: Path, tmp_path: Path) -> None:
    await place.put(KEY, file)
    with pytest.raises(ArchiveDamaged, match="13 bytes, 12 at the most"):
        await place.get(KEY, tmp_path / "again", 12)


async def test_a_place_that_takes_files_passes_the_check(place: ArchiveBackend) -> None:
    await place.check()
    await place.check()


def opened(setting: str, base: Path, endpoint: str | None = None) -> ArchiveBackend:
    return open_backend(setting, endpoint=endpoint, region=None, environ={}, base=base)


def test_a_path_is_a_directory_from_the_base_on(tmp_path: Path) -> None:
    place = opened("old", tmp_path)
    assert isinstance(place, DirectoryBackend) and place.name == str(tmp_path / "old")
    assert opened("/srv/old", tmp_path).name == "/srv/old"


def test_a_url_is_a_bucket(tmp_path: Path) -> None:
    place = opened("s3://bucket/a/b/", tmp_path, "http://127.0.0.1:9000")
    assert isinstance(place, S3Backend) and place.name == "s3://bucket/a/b"


@pytest.mark.parametrize(
    "setting",
    [
        "",
        "s3://",
        "s3:///prefix",
        "gs://bucket",
        "file:///srv",
        "s3://b/../c",
        "s3://b/a//c",
        "s3://key@b/a",
        "s3://b?x=1",
    ],
)
def test_setting_that_is_neither_path_nor_bucket_is_refused_at_boot(setting: str, tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="archive"):
        opened(setting, tmp_path)


def test_an_endpoint_is_a_url(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="archive_endpoint"):
        opened("s3://bucket", tmp_path, "127.0.0.1:9000")
