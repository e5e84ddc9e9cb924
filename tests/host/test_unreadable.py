"""Facts about reading from a disk that is dying: a real one that has lost its end, and a file that fails as told."""

import errno
import os
from pathlib import Path

import pytest

from hawker.host.unreadable import (
    SEARCHED_SECTORS,
    SECTOR_BYTES,
    TRIES,
    FileRange,
    PatientReader,
    UnreadableBytes,
    joined,
)
from tests.fixtures.dying_disk import dying_disk

PIECE = 1 << 20


def test_ranges_are_joined_where_they_touch() -> None:
    ranges = [FileRange(8192, 4096), FileRange(0, 4096), FileRange(4096, 8192), FileRange(40960, 1)]
    assert joined(ranges) == (FileRange(0, 12288), FileRange(40960, 1))
    assert joined([]) == ()


@pytest.mark.root
def test_sector_that_a_disk_has_lost_is_named_and_all_else_is_read(tmp_path: Path) -> None:
    with dying_disk(tmp_path, 64) as disk:
        file, content = disk.root / "file", os.urandom(2 * PIECE)
        file.write_bytes(content)
        lost = disk.cut(file, PIECE + 5 * SECTOR_BYTES)
        with file.open("rb", buffering=0) as opened:
            reader = PatientReader(file, opened.fileno())
            assert reader.read_some(0, 2 * PIECE) == content[:lost]
            with pytest.raises(UnreadableBytes) as caught:
                reader.read(0, 2 * PIECE)
            assert caught.value.offset == lost and caught.value.errno == errno.EIO
            gone = FileRange(lost, 2 * PIECE - lost)
            past = PatientReader(file, opened.fileno(), (gone,))
            assert past.read(0, 3 * PIECE) == content[:lost] + bytes(gone.count), "zeros end with the file"
            assert past.read_some(lost + 100, 200) == bytes(200)


class Faulty:
    """The sectors of a file that fail, each so many times more, as a disk's do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failing: dict[int, int] = {}
        self._pread, self._preadv = os.pread, os.preadv
        monkeypatch.setattr(os, "pread", self.pread)
        monkeypatch.setattr(os, "preadv", self.preadv)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        self._check(offset, count)
        return self._pread(fd, count, offset)

    def preadv(self, fd: int, buffers: list[memoryview], offset: int) -> int:
        self._check(offset, SECTOR_BYTES)
        return self._preadv(fd, buffers, offset)

    def _check(self, offset: int, count: int) -> None:
        for sector, left in self.failing.items():
            if offset <= sector * SECTOR_BYTES < offset + count and left:
                self.failing[sector] -= 1
                raise OSError(errno.EIO, "as told")


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Faulty:
    return Faulty(monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "file"
    made.write_bytes(os.urandom(16 * SECTOR_BYTES))
    return made


@pytest.mark.parametrize("fails", [0, TRIES - 1, TRIES, 2 * TRIES - 1])
def test_sector_that_is_read_at_last_is_no_loss(file: Path, faulty: Faulty, fails: int) -> None:
    faulty.failing = {3: fails}
    with file.open("rb", buffering=0) as opened:
        assert PatientReader(file, opened.fileno()).read_some(0, 16 * SECTOR_BYTES) == file.read_bytes()


def test_sector_that_fails_three_times_more_by_itself_is_lost(file: Path, faulty: Faulty) -> None:
    faulty.failing = {3: 2 * TRIES}
    with file.open("rb", buffering=0) as opened:
        found = PatientReader(file, opened.fileno()).read_some(0, 16 * SECTOR_BYTES)
        assert len(found) == 3 * SECTOR_BYTES and faulty.failing == {3: 0}
        faulty.failing = {3: 2 * TRIES}
        with pytest.raises(UnreadableBytes) as caught:
            PatientReader(file, opened.fileno()).read_some(3 * SECTOR_BYTES, 16 * SECTOR_BYTES)
        assert caught.value.offset == 3 * SECTOR_BYTES


def test_loss_that_was_noted_is_not_read_again_and_stays_zeros(file: Path, faulty: Faulty) -> None:
    content, lost = file.read_bytes(), (FileRange(3 * SECTOR_BYTES, SECTOR_BYTES),)
    with file.open("rb", buffering=0) as opened:
        faulty.failing = {3: 999}
        found = PatientReader(file, opened.fileno(), lost).read(0, len(content))
        assert found == content[: 3 * SECTOR_BYTES] + bytes(SECTOR_BYTES) + content[4 * SECTOR_BYTES :]
        assert faulty.failing == {3: 999}
        faulty.failing = {}
        assert PatientReader(file, opened.fileno(), lost).read(0, len(content)) == found


def test_search_for_what_else_is_lost_ends_soon_and_begins_only_where_losses_are_taken(
    tmp_path: Path, faulty: Faulty
) -> None:
    file = tmp_path / "large"
    file.write_bytes(os.urandom(2 * SEARCHED_SECTORS * SECTOR_BYTES))
    with file.open("rb", buffering=0) as opened:
        for lost, found in ((None, 1), ((), SEARCHED_SECTORS)):
            faulty.failing = dict.fromkeys(range(2 * SEARCHED_SECTORS), 999)
            with pytest.raises(UnreadableBytes) as caught:
                PatientReader(file, opened.fileno(), lost).read_some(0, 2 * SEARCHED_SECTORS * SECTOR_BYTES)
            assert caught.value.lost == FileRange(0, found * SECTOR_BYTES)
        faulty.failing = {5: 999, 6: 999}
        with pytest.raises(UnreadableBytes) as caught:
            PatientReader(file, opened.fileno(), ()).read(0, 16 * SECTOR_BYTES)
        assert caught.value.lost == FileRange(5 * SECTOR_BYTES, 2 * SECTOR_BYTES)


def test_trouble_that_is_not_the_disk_s_is_raised_as_it_is(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, count: int, offset: int) -> bytes:
        raise OSError(errno.EBADF, "as told")

    monkeypatch.setattr(os, "pread", refuse)
    with file.open("rb", buffering=0) as opened, pytest.raises(OSError, match="as told") as caught:
        PatientReader(file, opened.fileno()).read(0, 1)
    assert not isinstance(caught.value, UnreadableBytes)


def test_file_system_without_direct_reads_is_read_through_its_cache(
    file: Path, faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, opens = file.read_bytes(), os.open

    def refuse(path: Path, flags: int, *mode: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct reads")
        return opens(path, flags, *mode)

    with file.open("rb", buffering=0) as opened:
        monkeypatch.setattr(os, "open", refuse)
        faulty.failing = {3: TRIES + 1}
        assert PatientReader(file, opened.fileno()).read(0, len(content)) == content
