"""Facts about block files and loop devices."""

import struct
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from hawker.errors import BadRequest
from hawker.host.block import attach_loop, detach_loop, filesystem_of, held_loop, loops
from tests.waiting import wait_for


def _file(path: Path, offset: int, magic: bytes) -> Path:
    content = bytearray(8192)
    content[1024 + offset : 1024 + offset + len(magic)] = magic
    path.write_bytes(content)
    return path


def test_a_filesystem_is_known_by_its_superblock(tmp_path: Path) -> None:
    assert filesystem_of(_file(tmp_path / "a", 0, struct.pack("<I", 0xE0F5E1E2))) == "erofs"
    assert filesystem_of(_file(tmp_path / "b", 56, struct.pack("<H", 0xEF53))) == "ext4"


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 8192])
def test_anything_else_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "image"
    file.write_bytes(content)
    with pytest.raises(BadRequest, match="image is not a block image"):
        filesystem_of(file)


@pytest.mark.root
def test_a_loop_device_shows_the_file_read_only_and_is_released(tmp_path: Path) -> None:
    file = tmp_path / "image"
    file.write_bytes(b"0123" * 1024)
    with attach_loop(file) as device:
        name = Path(device).name
        assert Path(device).read_bytes() == file.read_bytes()
        assert Path("/sys/block", name, "ro").read_text() == "1\n"
        assert Path("/sys/block", name, "loop/backing_file").read_text().strip() == str(file)
    wait_for(lambda: not loops(tmp_path))  # whoever looks for a free device may have it open


@pytest.mark.root
def test_two_devices_at_once_are_two(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "ab"]
    for file in files:
        file.write_bytes(file.name.encode() * 4096)
    with attach_loop(files[0]) as one, attach_loop(files[1]) as other:
        assert one != other
        assert Path(other).read_bytes()[:1] == b"b"


@pytest.mark.root
def test_loop_device_that_is_held_stays_over_its_file_when_its_last_user_goes(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("mine", "another")]
    for file in files:
        file.write_bytes(file.name.encode() * 4096)
    with ExitStack() as last_user:
        device = last_user.enter_context(attach_loop(files[0]))
        with held_loop(files[0]) as held:
            last_user.close()
            with attach_loop(files[1]) as next_one:
                assert held == device != next_one
                assert (device, files[0]) in loops(tmp_path)
    wait_for(lambda: not loops(tmp_path))
    with held_loop(files[0]) as held:
        assert held is None


@pytest.mark.root
def test_a_loop_device_that_was_left_is_found_by_its_file_and_let_go(tmp_path: Path) -> None:
    file = tmp_path / "image"
    file.write_bytes(b"0123" * 1024)
    left = subprocess.run(["losetup", "--find", "--show", str(file)], check=True, capture_output=True, text=True)
    device = left.stdout.strip()
    assert loops(tmp_path) == [(device, file)]
    assert loops(tmp_path / "elsewhere") == []
    for _ in range(2):
        detach_loop(device)
    wait_for(lambda: not loops(tmp_path))
