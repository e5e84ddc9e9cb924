"""Changed block tracking by clones, on real file systems that share blocks: what was written is told, and nothing of a
clone is left.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.host.changed_blocks import BLOCK_BYTES, BlockRange
from hawker.host.cloned_blocks import ClonedBlocks, remove_clones
from tests.fixtures.sharing_disk import KINDS, sharing_disk

pytestmark = pytest.mark.root
SIZE = 64 << 20


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with sharing_disk(tmp_path_factory.mktemp("disk"), request.param) as place:
        yield place


@pytest.fixture
def file(place: Path) -> Iterator[Path]:
    file = place / "disk"
    file.write_bytes(os.urandom(2 << 20))
    os.truncate(file, SIZE)
    yield file
    file.unlink()


@pytest.fixture
def tracker(file: Path) -> Iterator[ClonedBlocks]:
    tracker = ClonedBlocks(file, file.parent / ".watched" / "one", 0)
    yield tracker
    tracker.close()


def write(file: Path, offset: int, data: bytes) -> None:
    """As a program does that is in no hurry to have it on disk."""
    fd = os.open(file, os.O_WRONLY)
    try:
        os.pwrite(fd, data, offset)
    finally:
        os.close(fd)


def test_writes_since_a_mark_are_told_and_no_others(file: Path, tracker: ClonedBlocks) -> None:
    first = tracker.since(0)
    assert first is not None and first[1] == ()
    second = tracker.since(first[0])
    assert second is not None and second[1] == ()
    write(file, 5 * BLOCK_BYTES + 4096, b"x" * 4096)
    write(file, 900 * BLOCK_BYTES - 4096, b"y" * 8192)
    third = tracker.since(second[0])
    assert third is not None and third[1] == (BlockRange(5, 1), BlockRange(899, 2))
    write(file, 7 * BLOCK_BYTES, b"z")
    fourth = tracker.since(third[0])
    assert fourth is not None and fourth[1] == (BlockRange(7, 1),)
    again = tracker.since(third[0])  # an answer that was lost is given again
    assert again is not None and again[1] == (BlockRange(7, 1),)
    whole = tracker.since(first[0])
    assert whole is not None and whole[1] == (BlockRange(5, 1), BlockRange(7, 1), BlockRange(899, 2))


def test_block_of_zeros_is_told(file: Path, tracker: ClonedBlocks) -> None:
    first = tracker.since(0)
    assert first is not None
    with file.open("r+b") as opened:
        opened.seek(3 * BLOCK_BYTES)
        opened.write(bytes(BLOCK_BYTES))
    found = tracker.since(first[0])
    assert found is not None and found[1] == (BlockRange(3, 1),)


def test_mark_that_is_not_kept_any_more_is_not_known(file: Path, tracker: ClonedBlocks) -> None:
    marks = list[int]()
    for _ in range(4):
        found = tracker.since(marks[-1] if marks else 0)
        assert found is not None
        marks.append(found[0])
    assert tracker.since(marks[1]) is None
    assert tracker.since(marks[0]) is not None
    assert len(list((file.parent / ".watched" / "one").iterdir())) <= 3


def test_nothing_is_told_without_room_for_what_is_written_anew(file: Path) -> None:
    tracker = ClonedBlocks(file, file.parent / ".watched" / "one", 1 << 40)
    assert tracker.since(0) is None
    tracker.close()


def test_end_leaves_nothing_also_of_a_daemon_that_was_killed(file: Path) -> None:
    clones = file.parent / ".watched" / "one"
    tracker = ClonedBlocks(file, clones, 0)
    assert tracker.since(0) is not None and tracker.empty()
    tracker.close()
    assert not clones.exists() and tracker.since(0) is None and not tracker.empty()
    ClonedBlocks(file, clones, 0).since(0)
    remove_clones(clones)
    remove_clones(clones)
    assert not clones.exists()
