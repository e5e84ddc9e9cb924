"""Facts about frozen file systems, on a real one: writers wait, and nobody's end leaves them waiting."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from hawker.errors import Unavailable
from hawker.host.block import loops
from hawker.host.fsfreeze import frozen, thaw
from hawker.host.mount import is_mounted, unmount
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]

_FREEZER = """
import anyio, sys
from pathlib import Path
from hawker.host.fsfreeze import frozen

async def main():
    async with frozen(Path(sys.argv[1]), 30):
        print("frozen", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A small ext4 of its own, below a folder of a name of which hosts of a street let go."""
    file, target = tmp_path / "volume", tmp_path / "mounts" / "volume"
    target.mkdir(parents=True)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", str(file), "8M"], check=True)
    subprocess.run(["mount", "-o", "loop", str(file), str(target)], check=True)
    try:
        yield target
    finally:
        if is_mounted(target):
            thaw(target)
        unmount(target)


def _daemon(mounted: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", _FREEZER, str(mounted)], stdout=subprocess.PIPE)


def _writer(mounted: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["/bin/sh", "-c", 'echo hello >"$1"', "sh", str(mounted / "file")])


async def _ends_well(writer: "subprocess.Popen[bytes]") -> bool:
    return await eventually(lambda: writer.poll() is not None) and writer.returncode == 0


def _is_waiting(writer: "subprocess.Popen[bytes]") -> bool:
    """In an uninterruptible sleep: in the kernel, for the file system."""
    return Path(f"/proc/{writer.pid}/stat").read_text().rpartition(")")[2].split()[0] == "D"


async def test_a_writer_waits_until_the_block_is_left(mounted: Path) -> None:
    async with frozen(mounted, 30):
        writer = _writer(mounted)
        await eventually(lambda: _is_waiting(writer))
        assert (mounted / "lost+found").is_dir(), "who reads does not wait"
    assert await _ends_well(writer)
    assert (mounted / "file").read_text() == "hello\n"


async def test_a_killed_daemon_leaves_nothing_frozen(mounted: Path) -> None:
    with _daemon(mounted) as daemon:
        assert daemon.stdout is not None
        assert await anyio.to_thread.run_sync(daemon.stdout.readline) == b"frozen\n"
        writer = _writer(mounted)
        await eventually(lambda: _is_waiting(writer))
        daemon.kill()
    assert await _ends_well(writer)


async def test_filesystem_frozen_for_too_long_is_thawed_and_told(mounted: Path) -> None:
    with pytest.raises(Unavailable, match=r"more than 0\.2 s"):
        async with frozen(mounted, 0.2):
            assert await _ends_well(_writer(mounted)), "the writer went on within the block"


async def test_an_error_within_the_block_thaws_and_is_what_is_raised(mounted: Path) -> None:
    with pytest.raises(KeyError):
        async with frozen(mounted, 30):
            raise KeyError
    assert await _ends_well(_writer(mounted))


async def test_filesystem_that_cannot_be_frozen_says_why(tmp_path: Path, mounted: Path) -> None:
    with pytest.raises(Unavailable, match="No such file"):
        async with frozen(tmp_path / "nope", 1):
            pass
    (tmp_path / "plain").mkdir()
    with pytest.raises(Unavailable, match="nothing is mounted there"):
        async with frozen(tmp_path / "plain", 1):
            pass
    async with frozen(mounted, 30):
        with pytest.raises(Unavailable, match="busy"):
            async with frozen(mounted, 30):
                pass


async def test_a_file_system_that_is_detached_meanwhile_is_thawed_all_the_same(tmp_path: Path, mounted: Path) -> None:
    async with frozen(mounted, 30):
        unmount(mounted)
        assert (tmp_path / "beside").write_text("the host's own is not frozen")
    await eventually(lambda: not loops(tmp_path))


async def test_filesystem_that_a_killed_child_left_frozen_is_thawed(mounted: Path) -> None:
    with pytest.raises(Unavailable, match="keeper ended with -9"):
        async with frozen(mounted, 30):
            os.kill(_keeper_of(mounted), signal.SIGKILL)
    writer = _writer(mounted)
    await eventually(lambda: _is_waiting(writer))
    assert thaw(mounted)
    assert await _ends_well(writer)
    assert not thaw(mounted)


def _keeper_of(mounted: Path) -> int:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile, before its file was opened or after
        if b"hawker-freeze" in command and str(mounted).encode() in command:
            return int(process.name)
    raise AssertionError("nobody keeps it frozen")
