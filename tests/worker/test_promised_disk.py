"""What of a disk can be promised, with a disk that is told how full it is and files that are really sparse."""

from pathlib import Path

import anyio
import pytest

from hawker.clock import SystemClock
from hawker.host.facts import DiskSpace, disk_of
from hawker.place import Place
from hawker.worker.capacity import PromisedDisk
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
MIB = 1 << 20


class Host:
    """A disk of 1,000 MiB of which `stored` MiB are in use."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.others = 0
        self.disk = PromisedDisk(Place(root), self.look)
        self.disk._shares = False

    def look(self, _: Path) -> DiskSpace:
        mine = sum(file.stat().st_blocks * 512 for file in self.root.rglob("*") if file.is_file())
        return DiskSpace(total_bytes=1000 * MIB, free_bytes=1000 * MIB - mine - self.others * MIB)

    def write(self, name: str, mib: int) -> Path:
        """Of a file of 100 MiB that is else a hole."""
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as opened:
            opened.truncate(100 * MIB)
            opened.seek(0)
        with file.open("r+b") as opened:
            opened.write(b"x" * mib * MIB)
        return file

    def usable(self) -> int:
        self.disk.measure()
        return round(self.disk.usable_bytes / MIB)  # a file may have a block more once it is on the disk


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


PROMISED = [
    "volumes/vol_1/disk",
    "machines/m1/disks/I1",
    "machines/m1/disks/I1.volumes/shared",
    "machines/m1/layers/I1/disk",
]


@pytest.mark.parametrize("name", PROMISED)
def test_bytes_machines_and_volumes_store_were_promised_and_change_nothing(host: Host, name: str) -> None:
    before = host.usable()
    host.write(name, 40)
    assert before == 1000 == host.usable()


@pytest.mark.parametrize("name", ["images/blob", "snapshots/s1", "hawker.db", "machines/m1/output.0"])
def test_other_bytes_take_from_the_disk_that_can_be_promised(host: Host, name: str) -> None:
    host.write(name, 40)
    assert host.usable() == 960
    host.others = 100
    assert host.usable() == 860


def test_between_two_looks_no_more_is_promised_than_at_the_last(host: Host) -> None:
    file = host.write(PROMISED[0], 40)
    assert host.usable() == 1000
    host.write("images/blob", 30)
    assert round(host.disk.usable_bytes / MIB) == 970
    file.unlink()
    assert round(host.disk.usable_bytes / MIB) <= 1000
    assert host.usable() == 970


@pytest.mark.parametrize("name", ["snapshots/s1", "volumes/vol_1/saved-ab"])
def test_blocks_that_snapshots_share_are_needed_again(host: Host, name: str) -> None:
    host.disk._shares = True
    host.write(PROMISED[0], 40)
    assert host.usable() == 1000
    host.write(name, 30)
    host.others = -30  # shared: the disk has them once
    assert host.usable() == 970


def test_a_directory_that_is_not_there_yet_has_nothing_stored(tmp_path: Path) -> None:
    seen = list[int]()  # others write to this disk meanwhile

    def look(place: Path) -> DiskSpace:
        seen.append(disk_of(place).free_bytes)
        return DiskSpace(total_bytes=1 << 50, free_bytes=seen[-1])

    disk = PromisedDisk(Place(tmp_path), look)
    disk.measure()
    assert disk.usable_bytes == min(seen[-2:]) > 0


async def test_the_disk_is_measured_as_soon_as_it_is_served(host: Host) -> None:
    host.write(PROMISED[0], 40)
    assert round(host.disk.usable_bytes / MIB) == 960
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.disk.serve, SystemClock())
        await eventually(lambda: round(host.disk.usable_bytes / MIB) == 1000)
        tasks.cancel_scope.cancel()
