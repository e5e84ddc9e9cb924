"""Changed block tracking over a real loop device: what was written is told, what was not is not, and a tracker that
missed something says so.
"""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.host import changed_blocks
from hawker.host.block import attach_loop
from hawker.host.changed_blocks import BLOCK_BYTES, BlockRange, ChangedBlocks, close_left_over, rings, spans_of, track

pytestmark = pytest.mark.root
SIZE = 64 << 20
NODE = f"test{os.getpid()}"


def write(device: str, offset: int, data: bytes) -> None:
    fd = os.open(device, os.O_WRONLY)
    try:
        os.pwrite(fd, data, offset)
        os.fsync(fd)
    finally:
        os.close(fd)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    file = tmp_path / "disk"
    with file.open("wb") as made:
        made.truncate(SIZE)
    with attach_loop(file, writable=True) as device:
        yield device, file


@pytest.fixture
def tracker(disk: tuple[str, Path]) -> Iterator[ChangedBlocks]:
    tracker = track(*disk, NODE, "one")
    if tracker is None:
        pytest.skip("this kernel has no trace of block requests")
    yield tracker
    tracker.close()


def test_spans_are_as_few_as_there_can_be() -> None:
    assert spans_of([3, 1, 2, 9]) == (BlockRange(1, 3), BlockRange(9, 1))
    assert spans_of([]) == ()


def test_each_write_is_told_once_a_mark_and_reads_are_not(disk: tuple[str, Path], tracker: ChangedBlocks) -> None:
    device, _ = disk
    found = tracker.since(0)
    assert found is not None and found[1] == ()
    write(device, 5 * BLOCK_BYTES + 4096, b"x" * 4096)
    write(device, 40 * BLOCK_BYTES - 4096, b"y" * 8192)
    Path(device).read_bytes()
    first = tracker.since(found[0])
    assert first is not None and first[1] == (BlockRange(5, 1), BlockRange(39, 2))
    assert tracker.since(first[0]) is not None
    write(device, 7 * BLOCK_BYTES, b"z" * 512 * 8)
    second = tracker.since(first[0])
    assert second is not None and second[1] == (BlockRange(7, 1),)
    whole = tracker.since(0)
    assert whole is not None and whole[1] == (BlockRange(5, 1), BlockRange(7, 1), BlockRange(39, 2))
    again = tracker.since(first[0])  # an answer that was lost is given again
    assert again is not None and again[1] == (BlockRange(7, 1),)


def test_other_devices_are_not_told(disk: tuple[str, Path], tracker: ChangedBlocks, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with other.open("wb") as made:
        made.truncate(SIZE)
    with attach_loop(other, writable=True) as device:
        write(device, 0, b"x" * 4096)
    found = tracker.since(0)
    assert found is not None and found[1] == ()


def test_writes_that_the_ring_could_not_hold_make_it_lost(disk: tuple[str, Path], tracker: ChangedBlocks) -> None:
    ring = next(Path(f"/proc/self/fd/{tracker._root}/instances").glob(f"hawker-{NODE}-one"))
    (ring / "tracing_on").write_text("0")  # as good as full
    write(disk[0], 0, b"x" * 4096)
    assert tracker.since(0) is None and tracker.lost
    (ring / "tracing_on").write_text("1")
    assert tracker.since(0) is None


@pytest.mark.parametrize("emptied", [True, False])
def test_ring_that_is_emptied_in_time_holds_any_number_of_writes(
    disk: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, emptied: bool
) -> None:
    monkeypatch.setattr(changed_blocks, "_RING_KIB", 4)
    tracker = track(*disk, NODE, "small")
    if tracker is None:
        pytest.skip("this kernel has no trace of block requests")
    try:
        for number in range(1000):
            write(disk[0], number % 500 * BLOCK_BYTES, b"x" * 4096)
            if emptied and number % 10 == 0:
                assert tracker.empty()
        assert tracker.empty() == emptied
        found = tracker.since(0)
        assert (found is not None and found[1] == (BlockRange(0, 500),)) == emptied
    finally:
        tracker.close()
    assert tracker.since(0) is None and tracker.empty() == emptied


def test_rings_are_made_and_removed_in_turn_by_all_processes(
    disk: tuple[str, Path], tracker: ChangedBlocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = os.open(Path(f"/proc/self/fd/{tracker._root}/instances"), os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with monkeypatch.context() as impatient:  # for as long as nobody else of the host may have the lock
            impatient.setattr(changed_blocks, "_LOOKS", 5)
            assert track(*disk, NODE, "two") is None
            with pytest.raises(BlockingIOError):
                close_left_over(NODE, [])
    finally:
        os.close(held)
    assert f"hawker-{NODE}-two" not in rings()
    two = track(*disk, NODE, "two")
    assert two is not None
    two.close()


def test_traces_a_daemon_left_are_removed(disk: tuple[str, Path]) -> None:
    tracker = track(*disk, NODE, "left")
    if tracker is None:
        pytest.skip("this kernel has no trace of block requests")
    assert f"hawker-{NODE}-left" in rings()
    assert close_left_over("other", []) == []
    assert close_left_over(NODE, ["left"]) == []
    os.close(tracker._pipe)  # as a death does
    os.close(tracker._root)
    assert close_left_over(NODE, ["other"]) == ["left"]
    assert close_left_over(NODE, []) == []
