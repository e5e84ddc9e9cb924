"""Names of files that lost something, of real filesystems of which a part is zeros."""

import os
import subprocess
from pathlib import Path

import pytest

from hawker.host import ext4
from hawker.host.mount import unmount
from hawker.host.unreadable import FileRange
from hawker.volume.lost_files import LONGEST_NAME, MOST_FILES, blocks_of, lost_files, names_in, owners_in
from tests.host.test_ext4 import lose_inodes
from tests.waiting import eventually

MIB = 1 << 20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_blocks_are_those_that_lie_in_a_range_also_in_part() -> None:
    assert blocks_of([FileRange(4096, 4096), FileRange(9000, 1)], 4096) == ([1, 2], 2)
    assert blocks_of([FileRange(4096, 4096)], 1024) == ([4, 5, 6, 7], 4)
    assert blocks_of([], 4096) == ([], 0)


def test_blocks_beyond_the_bound_are_chosen_evenly() -> None:
    chosen, total = blocks_of([FileRange(0, 1000), FileRange(5000, 1000)], 1, most=20)
    assert total == 2000 and len(chosen) == 20 and chosen[:2] == [0, 100] and chosen[-1] == 5900
    scattered = [FileRange(2 * number, 1) for number in range(100)]
    assert len(blocks_of(scattered, 1, most=20)[0]) == 20


def test_answers_are_read_and_names_are_printable_and_bounded() -> None:
    banner = "debugfs 1.47.0 (5-Feb-2023)\n"
    assert owners_in(f"{banner}Block\tInode number\n9000\t13\n300\t<block not found>\n") == {9000: 13}
    said = f"{banner}Inode\tPathname\n12\t//dir\n13\t/a\x1b[31m\n14\t//odd\nname\n15\t/{'x' * 9999}\n"
    names = names_in(said)
    assert names[0] == "/a\\x1b[31m" and names[1:3] == ("/dir", "/odd") and len(names[3]) == LONGEST_NAME
    assert len(names_in("".join(f"{number}\t/{number}\n" for number in range(9999)))) == MOST_FILES


@pytest.fixture
async def disk(tmp_path: Path) -> Path:
    """With one file whose blocks are known, and much that is free."""
    file, target = tmp_path / "disk", tmp_path / "mounts" / "disk"  # hosts of a street let go of what is below `mounts`
    file.touch()
    os.truncate(file, 64 * MIB)
    await ext4.make_filesystem(file)
    target.mkdir(parents=True)
    ext4.mount_filesystem(file, target)
    (target / "dir").mkdir()
    (target / "dir" / "ledger").write_bytes(os.urandom(MIB))
    (target / "other").write_bytes(os.urandom(MIB))
    unmount(target)
    await eventually(lambda: ext4.device_of(file) is None)  # then all of it is in the file
    return file


def place_of(disk: Path, name: str) -> int:
    told = subprocess.run(["debugfs", "-R", f"blocks {name}", str(disk)], check=True, capture_output=True, text=True)
    found = ext4.read_superblock(disk)
    assert found is not None
    return int(told.stdout.split()[0]) * found.block_size


@pytest.mark.root
@pytest.mark.anyio
async def test_file_that_lost_bytes_is_named_and_no_other_is(disk: Path) -> None:
    place = place_of(disk, "/dir/ledger")
    found = await lost_files(disk, [FileRange(place, 4096)])
    assert (found.names, found.unnamed) == (("/dir/ledger",), "")
    both = await lost_files(disk, [FileRange(place, 4096), FileRange(place_of(disk, "/other"), 4096)])
    assert both.names == ("/dir/ledger", "/other")
    assert "blocks are of no file" in (await lost_files(disk, [FileRange(60 * MIB, 4096)])).unnamed


@pytest.mark.root
@pytest.mark.anyio
async def test_filesystem_that_cannot_say_whose_bytes_they_were_says_that(disk: Path) -> None:
    place = place_of(disk, "/dir/ledger")
    lose_inodes(disk)
    found = await lost_files(disk, [FileRange(place, 4096)])
    assert found.names == () and "whole files may be gone" in found.unnamed
    with disk.open("r+b") as opened:
        opened.write(bytes(4096))
    assert "is laid out is lost" in (await lost_files(disk, [FileRange(0, 4096)])).unnamed


@pytest.mark.root
@pytest.mark.anyio
async def test_search_that_takes_too_long_is_ended_and_said(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ext4, "_ASKED_S", 0)
    assert "too long" in (await lost_files(disk, [FileRange(place_of(disk, "/other"), 4096)])).unnamed
