import errno
import os
import stat
from pathlib import Path

import pytest

from hawker.archive.directory import MARK, DirectoryBackend
from hawker.archive.failure import ArchiveDamaged, ArchiveRefused
from hawker.errors import Unavailable

pytestmark = pytest.mark.anyio
KEY = "ab/abcdef.sqlite.zst"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"what happened")
    return tmp_path / "file"


async def test_all_that_is_made_belongs_to_the_nodes_user_alone(tmp_path: Path, file: Path) -> None:
    place = DirectoryBackend(tmp_path / "a" / "b")
    before = os.umask(0)
    try:
        await place.check()
        await place.put(KEY, file)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a" / "b").rglob("*")}
    assert modes == {MARK: 0o600, "ab": 0o700, "abcdef.sqlite.zst": 0o600}
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


async def test_half_a_file_of_a_daemon_that_died_is_written_over(tmp_path: Path, file: Path) -> None:
    place = DirectoryBackend(tmp_path / "kept")
    (tmp_path / "kept" / "ab").mkdir(parents=True)
    (tmp_path / "kept" / f"{KEY}.partial").write_bytes(b"wha")
    assert await place.size(KEY) is None
    await place.put(KEY, file)
    assert [path.name for path in (tmp_path / "kept" / "ab").iterdir()] == ["abcdef.sqlite.zst"]


async def test_a_file_in_the_way_is_for_someone_to_see_to(tmp_path: Path, file: Path) -> None:
    place = DirectoryBackend(file)
    for call in (place.check(), place.put(KEY, file), place.size(KEY), place.get(KEY, tmp_path / "again", 100)):
        with pytest.raises((ArchiveRefused, Unavailable), match=str(file)):
            await call


async def test_a_directory_that_may_not_be_written_is_refused(file: Path) -> None:
    """Not even root makes one there."""
    place = DirectoryBackend(Path("/sys/kernel/hawker"))
    for call in (place.check(), place.put(KEY, file)):
        with pytest.raises(
            ArchiveRefused, match=r"/sys/kernel/hawker cannot be used: .*must belong to the node's user"
        ):
            await call


async def test_folder_that_cannot_be_listed_does_not_count_as_empty(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = DirectoryBackend(tmp_path / "kept")
    assert await place.names("", 10) == []
    await place.put(KEY, file)
    await place.put("cd/cdef.sqlite.zst", file)
    scandir = os.scandir

    def failing(path: str) -> object:
        if path.endswith("ab"):
            raise OSError(errno.EIO, "Input/output error")
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing)
        with pytest.raises(Unavailable, match="Input/output error"):
            await place.names("", 10)
    assert await place.names("", 10) == [KEY, "cd/cdef.sqlite.zst"]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.mkdir()], ids=["pipe", "directory"])
async def test_entry_that_is_no_regular_file_is_not_read(tmp_path: Path, make: object) -> None:
    (tmp_path / "ab").mkdir()
    assert callable(make)
    make(tmp_path / KEY)
    place = DirectoryBackend(tmp_path)
    assert await place.size(KEY) is None
    with pytest.raises((ArchiveDamaged, ArchiveRefused)):
        await place.get(KEY, tmp_path / "again", 100)
