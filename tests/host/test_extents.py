"""Facts about which bytes of two files are told to differ, on real file systems: what is called the same is that."""

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hawker.host.extents import MOST_EXTENTS, SharedFiles, tells_places
from hawker.host.sparse import shares_blocks
from hawker.host.unreadable import FileRange
from tests.fixtures.sharing_disk import KINDS, sharing_disk

BLOCK, MIB = 4096, 1 << 20
SIZE = 8 * MIB

pytestmark = pytest.mark.root


@pytest.fixture(scope="module", params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with sharing_disk(tmp_path_factory.mktemp("disk"), request.param) as root:
        yield root


@pytest.fixture
def file(disk: Path) -> Iterator[Path]:
    """Data in pieces with holes between them."""
    file, chance = disk / "file", random.Random(1)
    with file.open("wb") as stream:
        stream.truncate(SIZE)
        for at in range(0, SIZE, MIB):
            stream.seek(at)
            stream.write(chance.randbytes(MIB // 2))
    yield file
    for each in disk.iterdir():
        each.unlink()


def shared(file: Path) -> Path:
    copy = file.with_name("copy")
    clone(file, copy)
    return copy


def clone(source: Path, target: Path) -> None:
    subprocess.run(["cp", "--reflink=always", str(source), str(target)], check=True)


def differing(one: Path, other: Path, start: int = 0, count: int = SIZE) -> list[FileRange]:
    with one.open("rb") as here, other.open("rb") as there:
        return list(SharedFiles(here.fileno(), there.fileno()).differing(start, count))


def change(file: Path, *changes: Callable[[int], object]) -> None:
    fd = os.open(file, os.O_RDWR)
    try:
        for each in changes:
            each(fd)
    finally:
        os.close(fd)


def punch(offset: int, count: int) -> Callable[[int], None]:
    def punch(fd: int) -> None:
        subprocess.run(
            ["fallocate", "-p", "-o", str(offset), "-l", str(count), f"/proc/self/fd/{fd}"], check=True, pass_fds=[fd]
        )

    return punch


def check_told(one: Path, other: Path) -> int:
    """Bytes outside of what is told to differ are the same; how many are told to."""
    at, here, there, told = 0, one.read_bytes(), other.read_bytes(), differing(one, other)
    for each in (*told, FileRange(SIZE, 0)):
        assert here[at : each.offset] == there[at : each.offset]
        at = each.end
    return sum(each.count for each in told)


def test_copy_by_reference_differs_nowhere(file: Path) -> None:
    assert differing(file, shared(file)) == []


def test_only_the_block_that_was_written_differs(file: Path) -> None:
    copy = shared(file)
    change(copy, lambda fd: os.pwrite(fd, b"!", 5 * BLOCK + 7))
    assert differing(file, copy) == [FileRange(5 * BLOCK, BLOCK)]
    assert differing(file, copy, 6 * BLOCK, MIB) == [] and differing(file, copy, 5 * BLOCK, 0) == []
    assert differing(file, copy, 5 * BLOCK + 9, 10) == [FileRange(5 * BLOCK + 9, 10)]


def test_write_that_is_not_yet_on_the_disk_differs(file: Path) -> None:
    """Into a hole, and over what is shared; nobody has synced it."""
    copy = shared(file)
    change(copy, lambda fd: os.pwrite(fd, b"new", MIB // 2), lambda fd: os.pwrite(fd, b"new", MIB))
    assert differing(file, copy) == [FileRange(MIB // 2, BLOCK), FileRange(MIB, BLOCK)]


def test_hole_that_was_punched_and_zeros_that_were_written_differ(file: Path) -> None:
    copy = shared(file)
    change(copy, punch(2 * BLOCK, 3 * BLOCK), lambda fd: os.pwrite(fd, bytes(BLOCK), MIB))
    assert differing(file, copy) == [FileRange(2 * BLOCK, 3 * BLOCK), FileRange(MIB, BLOCK)]


def test_room_that_is_only_reserved_is_not_believed(file: Path) -> None:
    change(file, lambda fd: os.posix_fallocate(fd, MIB // 2, BLOCK))
    assert FileRange(MIB // 2, BLOCK) in differing(file, shared(file))


def test_equal_bytes_of_their_own_are_not_believed(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(file.read_bytes())
    assert differing(file, other)[0].offset == 0


def test_files_whose_blocks_others_have_too_are_the_same(file: Path) -> None:
    """A third file shares the blocks, and is written to: who has them still, has them as they were."""
    copy = shared(file)
    third = file.with_name("third")
    clone(copy, third)
    change(third, lambda fd: os.pwrite(fd, os.urandom(SIZE), 0))
    assert differing(file, copy) == [] and check_told(file, third) >= SIZE // 2


def test_blocks_that_were_moved_are_not_missed(file: Path, disk: Path) -> None:
    copy = shared(file)
    change(copy, lambda fd: os.pwrite(fd, b"!", 0))
    tool = ["btrfs", "filesystem", "defragment", str(copy)] if disk.name == "btrfs" else ["xfs_fsr", str(copy)]
    subprocess.run(tool, check=True, capture_output=True)
    os.sync()
    check_told(file, copy)


def test_file_in_too_many_pieces_is_not_looked_up(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shared(file)
    monkeypatch.setattr("hawker.host.extents.MOST_EXTENTS", 4)
    assert MOST_EXTENTS > 4 and differing(file, copy) == [FileRange(0, SIZE)]


@pytest.mark.parametrize("seed", range(12))
def test_random_changes_are_never_called_the_same(file: Path, seed: int) -> None:
    chance, copy = random.Random(seed), shared(file)

    def step(fd: int) -> None:
        at = chance.randrange(SIZE - MIB)
        match chance.randrange(4):
            case 0:
                punch(at, chance.choice([BLOCK, 70_000]))(fd)
            case 1:
                os.ftruncate(fd, at)
                os.ftruncate(fd, SIZE)
            case _:
                os.pwrite(fd, chance.randbytes(chance.choice([10, BLOCK, 50_000])), at)

    change(copy, *[step] * chance.randrange(1, 8))
    check_told(file, copy)


def test_file_system_without_shared_blocks_is_not_believed(tmp_path: Path, file: Path) -> None:
    one = tmp_path / "one"
    one.write_bytes(b"a" * BLOCK)
    if not shares_blocks(tmp_path):
        assert not tells_places(one) and differing(one, one, 0, BLOCK) == [FileRange(0, BLOCK)]
    assert tells_places(file)
    assert differing(one, file, 0, BLOCK) == [FileRange(0, BLOCK)], "of two file systems"
