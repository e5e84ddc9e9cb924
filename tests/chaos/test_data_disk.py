"""What a node's disk can be made to do, on a real one."""

import errno
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hawker.chaos.daemon import GONE_WITHIN_S
from hawker.chaos.data_disk import DataDisk
from hawker.errors import CannotStart
from hawker.host.mount import is_mounted, mounts
from hawker.host.residue import host, left
from tests.waiting import wait_for

pytestmark = pytest.mark.root


@pytest.fixture
def place() -> Iterator[Path]:
    """Outside of the tests' own directories: a filesystem is mounted below it."""
    before = host()
    with tempfile.TemporaryDirectory(prefix="hawker-ground-") as name:
        yield Path(name)
    wait_for(lambda: not left(before, name), GONE_WITHIN_S)


@pytest.fixture
def data_disk(place: Path) -> Iterator[DataDisk]:
    made = DataDisk(place / "image", place / "data")
    made.make(24)
    yield made
    made.remove()
    assert not is_mounted(place / "data") and not (place / "image").exists()


def refused(call: Callable[[], object]) -> int | None:
    """The number of the error that it meets."""
    try:
        call()
    except OSError as error:
        return error.errno
    return None


def test_a_full_disk_has_no_room_for_a_byte_until_it_is_drained(data_disk: DataDisk, place: Path) -> None:
    file = place / "data" / "file"
    file.touch()
    data_disk.fill()
    assert refused(lambda: file.write_bytes(b"x")) == errno.ENOSPC
    data_disk.drain()
    assert file.write_bytes(b"x") == 1


def test_on_a_disk_that_stalls_a_write_waits_until_it_goes_on(data_disk: DataDisk, place: Path) -> None:
    data_disk.stall()
    with subprocess.Popen(["touch", str(place / "data" / "file")]) as writer:
        wait_for(lambda: Path(f"/proc/{writer.pid}/stat").read_text().rpartition(") ")[2][0] == "D")
        assert not (place / "data" / "file").exists()
        data_disk.go_on()
        assert writer.wait(60) == 0
    data_disk.go_on()
    assert (place / "data" / "file").exists()


def test_frozen_files_take_nothing_also_through_what_was_open(data_disk: DataDisk, place: Path) -> None:
    data = place / "data"
    (data / "machines" / "m1" / "run").mkdir(parents=True)
    store, journal = data / "store", data / "machines" / "m1" / "run" / "journal"
    with store.open("ab", buffering=0) as opened, journal.open("ab", buffering=0) as pilots:
        data_disk.freeze()
        assert refused(lambda: opened.write(b"x")) == errno.EPERM
        assert refused((data / "machines" / "m2").mkdir) == errno.EPERM
        assert pilots.write(b"x") == 1, "what a pilot writes is its own"
        data_disk.thaw()
        assert opened.write(b"x") == 1
    (data / "machines" / "m2").mkdir()


def test_a_covered_directory_is_read_only_to_whoever_comes_and_not_to_who_is_there(
    data_disk: DataDisk, place: Path
) -> None:
    data = place / "data"
    with (data / "store").open("ab", buffering=0) as opened:
        data_disk.cover()
        assert refused((data / "new").mkdir) == errno.EROFS and not os.access(data, os.W_OK)
        assert opened.write(b"x") == 1
        data_disk.uncover()
    (data / "new").mkdir()
    assert len(mounts(data)) == 1
    data_disk.uncover()
    assert len(mounts(data)) == 1, "only the cover is taken away"


def test_data_disk_is_removed_in_any_state(place: Path) -> None:
    data_disk = DataDisk(place / "image", place / "data")
    data_disk.make(24)
    data_disk.fill()
    data_disk.freeze()
    data_disk.cover()
    data_disk.stall()
    data_disk.remove()
    data_disk.remove()


def test_data_disk_that_cannot_be_made_is_refused_with_the_reason(place: Path) -> None:
    data_disk = DataDisk(place / "image", place / "data")
    with pytest.raises(CannotStart, match="mke2fs"):
        data_disk.make(0)
    data_disk.remove()
