"""Filesystems in files: made, checked, mounted once and grown, whoever else works on the file."""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hawker.errors import BadRequest, NotServed, Unavailable
from hawker.host import ext4
from hawker.host.block import loops
from hawker.host.ext4 import read_superblock
from hawker.host.mount import unmount
from hawker.host.sparse import allocated_bytes
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]
MIB = 1 << 20


def _mark_as_faulty(file: Path) -> None:
    """As the kernel does when it finds an error."""
    command = ["debugfs", "-w", "-R", "set_super_value state 2", str(file)]
    subprocess.run(command, check=True, capture_output=True)


def _blank(file: Path) -> None:
    file.write_bytes(bytes(64 * MIB))


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    file = tmp_path / "disk"
    file.touch()
    os.truncate(file, 64 * MIB)
    await ext4.make_filesystem(file)
    return file


def lose_inodes(file: Path) -> None:
    """Zeros where a disk could not be read: among others what says where the root directory is."""
    told = subprocess.run(["debugfs", "-R", "stats", str(file)], check=True, capture_output=True, text=True).stdout
    block = int(told.partition("inode table at ")[2].split()[0])
    with file.open("r+b") as opened:
        found = read_superblock(file)
        assert found is not None
        opened.seek(block * found.block_size)
        opened.write(bytes(4096))


@pytest.fixture
def targets(tmp_path: Path) -> Iterator[list[Path]]:
    """Below a folder of a name of which hosts of a street let go: else they have copies of these mounts for minutes."""
    made = [tmp_path / "mounts" / name for name in ("one", "two")]
    for target in made:
        target.mkdir(parents=True)
    yield made
    for target in made:
        unmount(target)


async def test_a_filesystem_is_made_quickly_and_takes_next_to_nothing(file: Path) -> None:
    found = read_superblock(file)
    assert found is not None and found.whole and found.bytes == 64 * MIB
    assert allocated_bytes(file) < 2 * MIB


async def test_a_file_that_is_mounted_twice_has_one_device(file: Path, targets: list[Path]) -> None:
    for target in targets:
        ext4.mount_filesystem(file, target)
    (targets[0] / "file").write_text("once")
    assert (targets[1] / "file").read_text() == "once"
    assert len(loops(file.parent)) == 1 and ext4.device_of(file) is not None
    for target in targets:
        unmount(target)
    # A process that has just begun elsewhere on the host may have a copy of the mounts for a moment.
    await eventually(lambda: ext4.device_of(file) is None)


async def test_filesystem_that_cannot_be_mended_is_damaged(file: Path, targets: list[Path]) -> None:
    _blank(file)
    with pytest.raises(BadRequest, match="damaged"):
        await ext4.check_filesystem(file)
    with pytest.raises(BadRequest, match="damaged"):
        ext4.mount_filesystem(file, targets[0])
    await eventually(lambda: not loops(file.parent))


async def test_a_check_mends_what_was_marked_as_faulty(file: Path) -> None:
    _mark_as_faulty(file)
    before = read_superblock(file)
    assert before is not None and not before.whole
    await ext4.check_filesystem(file)
    after = read_superblock(file)
    assert after is not None and after.whole


async def test_one_that_an_earlier_daemon_s_child_works_on_is_left_to_it(file: Path) -> None:
    with file.open("r+b") as child:
        fcntl.flock(child, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="still being checked"):
            await ext4.check_filesystem(file)
    await ext4.check_filesystem(file)


async def test_an_unmounted_one_grows_to_its_file_and_keeps_what_is_in_it(file: Path, targets: list[Path]) -> None:
    ext4.mount_filesystem(file, targets[0])
    (targets[0] / "file").write_text("kept")
    unmount(targets[0])
    await eventually(lambda: ext4.device_of(file) is None)
    os.truncate(file, 256 * MIB)
    await ext4.grow_unmounted(file)
    ext4.mount_filesystem(file, targets[0])
    assert (targets[0] / "file").read_text() == "kept"
    assert os.statvfs(targets[0]).f_blocks * 4096 > 200 * MIB


async def test_a_mounted_one_grows_where_this_process_may_do_that(file: Path, targets: list[Path]) -> None:
    ext4.mount_filesystem(file, targets[0])
    os.truncate(file, 256 * MIB)
    assert ext4.grow_mounted(file, targets[0]) == ext4.may_grow_mounted()
    grown = os.statvfs(targets[0]).f_blocks * os.statvfs(targets[0]).f_frsize > 200 * MIB
    assert grown == ext4.may_grow_mounted()


async def test_without_the_tool_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ext4, "_find", lambda tool: None)
    with pytest.raises(NotServed, match="apt-get install e2fsprogs"):
        await ext4.make_filesystem(tmp_path / "disk")


async def test_a_deleted_file_takes_no_room_once_it_is_trimmed(file: Path, targets: list[Path]) -> None:
    ext4.mount_filesystem(file, targets[0])
    (targets[0] / "big").write_bytes(os.urandom(8 * MIB))
    ext4.sync_filesystem(targets[0])
    assert allocated_bytes(file) > 8 * MIB
    (targets[0] / "big").unlink()
    ext4.sync_filesystem(targets[0])
    following = ext4.trim(targets[0], 0)
    assert following is not None and ext4.trim(targets[0], following) is None
    assert allocated_bytes(file) < 8 * MIB


@pytest.mark.parametrize("confined", [False, True])
async def test_filesystem_of_which_some_is_lost_is_repaired_and_checking_it_again_finds_nothing(
    file: Path, targets: list[Path], confined: bool
) -> None:
    lose_inodes(file)
    with pytest.raises(BadRequest, match="e2fsck -p ended with"):
        await ext4.check_filesystem(file, thoroughly=True)
    await ext4.repair_filesystem(file, confined=confined)
    await ext4.check_filesystem(file, thoroughly=True)
    ext4.mount_filesystem(file, targets[0])
    (targets[0] / "written").write_text("kept")


async def test_file_that_is_no_filesystem_any_more_cannot_be_repaired(file: Path) -> None:
    _blank(file)
    with pytest.raises(BadRequest, match="cannot be repaired: e2fsck -fy ended with"):
        await ext4.repair_filesystem(file)


async def test_a_check_that_gets_no_memory_says_nothing_of_the_filesystem(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was made to take all: it is neither whole nor damaged, and the host has its memory."""
    os.truncate(file, 8 << 30)
    await ext4.make_filesystem(file)
    _mark_as_faulty(file)
    monkeypatch.setattr(ext4, "_bounds", lambda size: ("--data=1000000",))
    for call in (ext4.check_filesystem, ext4.filesystem_damage, ext4.repair_filesystem, ext4.grow_unmounted):
        with pytest.raises(Unavailable, match=r"before it had looked .* run `e2fsck -f` by hand"):
            await call(file, confined=True)
    monkeypatch.undo()
    await ext4.check_filesystem(file, confined=True)
    assert await ext4.filesystem_damage(file, confined=True) is None


@pytest.fixture
def told() -> Iterator[Path]:
    """What a stand-in for e2fsck is told of itself; in a place that nobody can get to, too."""
    with TemporaryDirectory() as place:
        script, told = Path(place, "e2fsck"), Path(place, "told")
        script.write_text(f"#!/bin/sh\ncat /proc/self/oom_score_adj /proc/self/limits > {told}\n")
        for path, mode in ((Path(place), 0o755), (script, 0o755), (told, 0o666)):
            path.touch()
            path.chmod(mode)
        yield told


async def test_a_confined_tool_has_bounds_and_every_tool_is_the_first_to_go(
    file: Path, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{told.parent}:{os.environ['PATH']}")
    os.truncate(file, 3 << 30)
    await ext4.check_filesystem(file)
    assert _told(told)["score"] == "1000"
    await ext4.check_filesystem(file, confined=True)
    found, memory = _told(told), (256 << 20) + (24 << 20) + (2 << 20) * (os.cpu_count() or 1)
    assert (found["score"], found["Max data size"], found["Max cpu time"]) == ("1000", str(memory), "126")


def _told(file: Path) -> dict[str, str]:
    score, *limits = file.read_text().splitlines()
    return {"score": score} | {line[:26].strip(): line[26:].split()[0] for line in limits}
