"""Changed block tracking of a file by the disk below its file system: a copy that is given only the blocks that are
told stays equal, whatever is done to the file.
"""

import os
import random
import subprocess
import threading
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path

import pytest

from hawker.host import disk_blocks
from hawker.host.block import attach_loop
from hawker.host.changed_blocks import BLOCK_BYTES, BlockRange, ChangedBlocks, rings
from hawker.host.disk_blocks import track_on_disk
from hawker.host.mount import mount, unmount
from tests.host.test_changed_blocks import NODE
from tests.host.test_extents import punch

pytestmark = pytest.mark.root
SIZE = 16 << 20


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "disk"
    made.write_bytes(random.Random(1).randbytes(SIZE))
    yield made


@pytest.fixture
def tracker(file: Path) -> Iterator[ChangedBlocks]:
    tracker = track_on_disk(file, NODE, "below")
    if tracker is None:
        pytest.skip("this directory is not on ext4 on one disk, or the kernel has no trace of its requests")
    yield tracker
    tracker.close()
    assert not [ring for ring in rings() if NODE in ring]


def first_mark(tracker: ChangedBlocks) -> int:
    found = tracker.since(0)
    assert found is not None
    return found[0]


def write(file: Path, offset: int, data: bytes, flags: int = 0) -> None:
    fd = os.open(file, os.O_WRONLY | flags)
    try:
        os.pwrite(fd, data, offset)
    finally:
        os.close(fd)


def write_direct(file: Path, offset: int, count: int) -> None:
    with mmap(-1, count) as aligned:
        aligned.write(os.urandom(count))
        fd = os.open(file, os.O_WRONLY | os.O_DIRECT)
        try:
            os.pwritev(fd, [aligned], offset)
        finally:
            os.close(fd)


def test_each_write_is_told_once_a_mark_through_the_page_cache_and_around_it(
    file: Path, tracker: ChangedBlocks
) -> None:
    mark = first_mark(tracker)
    write(file, 3 * BLOCK_BYTES + 5, b"cached")
    write_direct(file, 9 * BLOCK_BYTES, 2 * BLOCK_BYTES)
    found = tracker.since(mark)
    assert found is not None and found[1] == (BlockRange(3, 1), BlockRange(9, 2))
    again = tracker.since(mark)
    assert again is not None and again[1] == found[1], "of an earlier mark it is told again"
    assert tracker.since(again[0]) == (again[0] + 1, ())


def test_writes_to_other_files_of_the_disk_are_not_told(file: Path, tracker: ChangedBlocks) -> None:
    mark = first_mark(tracker)
    other = file.with_name("other")
    other.write_bytes(os.urandom(4 << 20))
    os.sync()
    found = tracker.since(mark)
    assert found is not None and found[1] == ()


def test_room_that_is_punched_reserved_and_added_is_told(file: Path, tracker: ChangedBlocks) -> None:
    mark = first_mark(tracker)
    with file.open("r+b") as opened:
        punch(5 * BLOCK_BYTES, BLOCK_BYTES)(opened.fileno())
        os.ftruncate(opened.fileno(), SIZE + 4 * BLOCK_BYTES)
        os.pwrite(opened.fileno(), b"more", SIZE + BLOCK_BYTES)
    found = tracker.since(mark)
    assert found is not None
    assert set(found[1]) == {BlockRange(5, 1), BlockRange(SIZE // BLOCK_BYTES + 1, 1)}


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_that_is_given_what_is_told_stays_equal(file: Path, tracker: ChangedBlocks, seed: int) -> None:
    chosen, copy = random.Random(seed), bytearray(file.read_bytes())
    mark, over = first_mark(tracker), threading.Event()
    bring(file, copy, (BlockRange(0, SIZE // BLOCK_BYTES),))

    def change() -> None:
        for _ in range(150):
            change_once(file, chosen)
        over.set()

    writer = threading.Thread(target=change)
    writer.start()
    rounds = 0
    while not over.is_set() or rounds == 0:
        mark = bring_since(tracker, mark, file, copy)
        rounds += 1
    writer.join()
    bring_since(tracker, mark, file, copy)
    assert copy == file.read_bytes()


def bring_since(tracker: ChangedBlocks, mark: int, file: Path, copy: bytearray) -> int:
    found = tracker.since(mark)
    assert found is not None
    bring(file, copy, found[1])
    return found[0]


def bring(file: Path, copy: bytearray, spans: tuple[BlockRange, ...]) -> None:
    """Around the page cache, as `write_direct` writes."""
    fd = os.open(file, os.O_RDONLY | os.O_DIRECT)
    try:
        for span in spans:
            at = span.first * BLOCK_BYTES
            with mmap(-1, span.count * BLOCK_BYTES) as aligned:
                read = os.preadv(fd, [aligned], at)
                copy[at : at + read] = aligned[:read]
    finally:
        os.close(fd)


def change_once(file: Path, chosen: random.Random) -> None:
    at, count = chosen.randrange(0, SIZE - (1 << 20), 4096), chosen.randrange(4096, 1 << 18, 4096)
    match chosen.randrange(6):
        case 0 | 1:
            write(file, at + chosen.randrange(4096), os.urandom(chosen.randrange(1, count)))
        case 2:
            write_direct(file, at, count)
        case 3:
            write(file, at, os.urandom(4096), os.O_DSYNC)
        case 4:
            with file.open("r+b") as opened:
                punch(at, count)(opened.fileno())
        case 5:
            subprocess.run(
                ["fallocate", chosen.choice(("--zero-range", "--punch-hole")), "-o", str(at), "-l", str(count), file],
                check=True,
            )


def test_a_file_in_too_many_pieces_is_lost(file: Path, tracker: ChangedBlocks, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = first_mark(tracker)
    monkeypatch.setattr(disk_blocks, "MOST_EXTENTS", 2)
    with file.open("r+b") as opened:
        for block in range(1, 40, 3):
            punch(block * BLOCK_BYTES, BLOCK_BYTES)(opened.fileno())
    assert tracker.since(mark) is None and tracker.lost


@pytest.mark.parametrize("options", ["data=journal", "data=ordered"])
def test_a_file_system_that_writes_data_to_its_journal_is_not_believed(tmp_path: Path, options: str) -> None:
    image, target = tmp_path / "image", tmp_path / "mounted"
    target.mkdir()
    with image.open("wb") as made:
        made.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    with attach_loop(image, writable=True) as device:
        mount(device, target, "ext4", 0, options)
        try:
            (target / "file").write_bytes(bytes(1 << 20))
            tracker = track_on_disk(target / "file", NODE, "journal")
            assert (tracker is None) == (options == "data=journal")
            if tracker is not None:
                mark = first_mark(tracker)
                write(target / "file", BLOCK_BYTES, b"x")
                found = tracker.since(mark)
                tracker.close()
                assert found is not None and found[1] == (BlockRange(1, 1),)
        finally:
            unmount(target)


def test_a_file_system_without_a_disk_is_not_believed() -> None:
    shared = Path("/dev/shm") / NODE
    shared.write_bytes(b"x")
    try:
        assert track_on_disk(shared, NODE, "memory") is None
    finally:
        shared.unlink()
