"""Facts about the places to stage an image in."""

import os
import stat
from pathlib import Path

import pytest

from hawker.image.block_image import Staging, StagingPlace, area, available_memory

pytestmark = pytest.mark.anyio

_SHM = Path("/dev/shm")
needs_tmpfs = pytest.mark.skipif(not os.path.ismount(_SHM), reason="needs shared memory")


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    made = Staging(tmp_path / "staging", _SHM)
    made.clear()
    return made


@needs_tmpfs
def test_memory_is_first_and_disk_takes_all(staging: Staging, tmp_path: Path) -> None:
    memory, disk = staging.places(1 << 40)
    assert memory.directory == _SHM
    assert 0 < memory.budget < 1 << 40
    assert disk == StagingPlace(tmp_path / "staging", 1 << 40)


@needs_tmpfs
async def test_no_user_of_the_host_can_enter(staging: Staging) -> None:
    for place in staging.places(1 << 30):
        async with area(place.directory, place.prefix) as directory:
            info = directory.stat()
            assert (stat.S_IMODE(info.st_mode), info.st_uid) == (0o700, os.geteuid())


@needs_tmpfs
@pytest.mark.parametrize("trap", ["file", "link", "open directory"])
def test_files_of_others_in_shared_memory_are_left_alone(staging: Staging, tmp_path: Path, trap: str) -> None:
    [memory, _] = staging.places(1 << 30)
    place = _SHM / f"{memory.prefix}trap"
    match trap:
        case "file":
            place.touch()
        case "link":
            place.symlink_to(tmp_path)
        case _:
            place.mkdir()
            place.chmod(0o777)
    try:
        staging.clear()
        assert place.exists()
        assert tmp_path.exists()
    finally:
        place.rmdir() if trap == "open directory" else place.unlink()


def test_directory_on_disk_is_not_taken_for_memory(tmp_path: Path) -> None:
    staging = Staging(tmp_path / "staging", tmp_path)
    staging.clear()
    assert [place.directory for place in staging.places(1)] == [tmp_path / "staging"]


async def test_area_is_gone_afterwards(tmp_path: Path) -> None:
    async with area(tmp_path) as directory:
        (directory / "root/deep").mkdir(parents=True)
        (directory / "root/deep").chmod(0)
    assert os.listdir(tmp_path) == []


async def test_area_is_gone_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"):
        async with area(tmp_path):
            raise ValueError("no")
    assert os.listdir(tmp_path) == []


@needs_tmpfs
def test_clear_removes_what_a_crash_left(staging: Staging, tmp_path: Path) -> None:
    left = [place.directory / f"{place.prefix}left" for place in staging.places(1 << 30)]
    for directory in left:
        directory.mkdir(mode=0o700)
        (directory / "root").mkdir()
    staging.clear()
    assert [directory for directory in left if directory.exists()] == []
    assert os.listdir(tmp_path / "staging") == []


def test_memory_that_is_free_is_known() -> None:
    assert available_memory() > 1 << 20
