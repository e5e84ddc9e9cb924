"""A store on a disk that somebody fills to the last block: a small file system of its own."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.errors import Unavailable
from hawker.store.contract import Bucket
from hawker.store.sqlite import DiskReserve, SqliteStore

pytestmark = [pytest.mark.root, pytest.mark.anyio]
WORDS = Bucket("words", bytes)
KEEP = 8 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    image, target = tmp_path / "image", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", str(image)], check=True, timeout=60)
    target.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(target)], check=True, timeout=60)
    yield target
    subprocess.run(["umount", "-l", str(target)], check=True, timeout=60)


def fill(disk: Path) -> None:
    """To the last block."""
    with (disk / "filler").open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                os.fsync(file.fileno())
    assert os.statvfs(disk).f_bavail < 16


async def _write(store: SqliteStore, count: int) -> int:
    """How many durable transactions of 16 KiB could be committed."""
    for number in range(count):
        key, value = f"{number}", os.urandom(16 << 10)
        try:
            await store.write(lambda tx, key=key, value=value: tx.put(WORDS, key, value))  # type: ignore[misc]
        except Unavailable:
            return number
    return count


async def test_store_with_a_reserve_goes_on_recording_on_a_full_disk(disk: Path) -> None:
    store = SqliteStore(disk / "store.db", reserve_bytes=KEEP)
    assert await _write(store, 1) == 1
    fill(disk)
    assert await _write(store, 100) == 100
    assert store.count(WORDS) == 100
    await store.close()


async def test_store_without_a_reserve_does_not(disk: Path) -> None:
    store = SqliteStore(disk / "store.db")
    assert await _write(store, 1) == 1
    fill(disk)
    assert await _write(store, 100) < 50
    (disk / "filler").unlink()
    assert await _write(store, 10) == 10
    await store.close()


async def test_store_that_stopped_in_order_has_its_reserve_on_a_full_disk_again(disk: Path) -> None:
    store = SqliteStore(disk / "store.db", reserve_bytes=KEEP)
    await _write(store, 1)
    await store.close()
    fill(disk)
    store = SqliteStore(disk / "store.db", reserve_bytes=KEEP)
    assert store.lacks_reserve == ""
    assert await _write(store, 100) == 100
    await store.close()


async def test_lack_of_a_reserve_is_told_as_long_as_it_lasts(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever opens the store tells of a lack from the beginning: what is refused then has one line."""
    fill(disk)
    os.truncate(disk / "filler", (disk / "filler").stat().st_size - (2 << 20))
    store = SqliteStore(disk / "store.db", reserve_bytes=KEEP)
    await _write(store, 3)
    assert store.lacks_reserve == os.strerror(errno.ENOSPC) and caplog.records == []
    (disk / "filler").unlink()
    await _write(store, 3)
    assert store.lacks_reserve == ""
    await store.close()


async def test_reserve_comes_back_when_there_is_room_again(disk: Path) -> None:
    store = SqliteStore(disk / "store.db", reserve_bytes=KEEP)
    await _write(store, 1)
    fill(disk)
    await _write(store, 100)
    (disk / "filler").unlink()
    await _write(store, 1)
    fill(disk)
    assert await _write(store, 100) == 100
    await store.close()


def test_reserve_leaves_the_file_as_long_as_it_is(disk: Path) -> None:
    file = disk / "log"
    file.write_bytes(b"abc")
    DiskReserve(file, KEEP).follow(3)
    assert file.read_bytes() == b"abc" and file.stat().st_blocks * 512 >= KEEP


def test_disk_without_room_for_a_reserve_is_no_error(disk: Path) -> None:
    file = disk / "log"
    file.write_bytes(b"abc")
    reserve = DiskReserve(file, 1 << 30)
    for _ in range(2):
        reserve.follow(3)
    DiskReserve(disk / "absent", KEEP).follow(3)
    DiskReserve(disk / "absent", 0).follow(3)
