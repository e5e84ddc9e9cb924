import errno
import os
import stat
from pathlib import Path

import anyio
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


async def test_half_a_file_of_a_daemon_that_died_goes_a_day_later(tmp_path: Path, file: Path) -> None:
    place = DirectoryBackend(tmp_path / "kept")
    (tmp_path / "kept" / "ab").mkdir(parents=True)
    folder = tmp_path / "kept" / "ab"
    drafts = ("abcdef.sqlite.zst.partial", ".abcdef.sqlite.zst.x1.partial", ".other.x1.partial")
    halves = [folder / name for name in drafts]
    for half in halves:
        half.write_bytes(b"wha")
    assert await place.size(KEY) is None
    await place.put(KEY, file)
    assert {*folder.iterdir()} == {tmp_path / "kept" / KEY, *halves}, "somebody may be at them"
    for half in halves:
        os.utime(half, (half.stat().st_atime, half.stat().st_mtime - 86_401))
    await place.put(KEY, file)
    assert {*folder.iterdir()} == {tmp_path / "kept" / KEY, halves[-1]}


async def test_nodes_that_check_a_place_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(_check_often, DirectoryBackend(tmp_path / "kept"))
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [MARK]


async def _check_often(place: DirectoryBackend) -> None:
    for _ in range(50):
        await place.check()


async def test_draft_that_could_not_be_written_does_not_stay(tmp_path: Path) -> None:
    place = DirectoryBackend(tmp_path / "kept")
    (tmp_path / "kept" / KEY).mkdir(parents=True)
    file = tmp_path / "file"
    file.write_bytes(b"what happened")
    with pytest.raises(ArchiveRefused):
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
