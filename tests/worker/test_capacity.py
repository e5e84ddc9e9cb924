from pathlib import Path

import pytest

from hawker.gpu import Gpu
from hawker.host.cgroup import CgroupLayout
from hawker.host.facts import Facts, disk_of
from hawker.settings import Settings
from hawker.worker.capacity import Room

FACTS = Facts(
    cpus=8, memory_mib=10_000, kernel="6.1", cgroups=next(iter(CgroupLayout)), root=False, tools={}, boot_id="boot"
)


def test_the_host_keeps_some_memory_for_itself(tmp_path: Path) -> None:
    room = Room(Settings(data_dir=tmp_path, free_disk_floor_mib=1), FACTS)()
    assert (room.cpus, room.memory_mib) == (8, 9500)
    assert room.disk_mib == disk_of(tmp_path).total_bytes // (1 << 20) - 1


def test_settings_say_what_is_sold(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, cpus=2, memory_mib=100, disk_mib=7, shared_cpu_ratio=3.0)
    room = Room(settings, FACTS)()
    assert (room.cpus, room.memory_mib, room.disk_mib, room.shared_ratio) == (2, 100, 7, 3.0)


def test_gpus_are_those_that_the_settings_name(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, gpu_devices=("a10=0000:65:00.0",))
    assert Room(settings, FACTS)().gpus == (Gpu(kind="a10", address="0000:65:00.0"),)
    assert Room(Settings(data_dir=tmp_path), FACTS)().gpus == ()


@pytest.mark.parametrize("disk_mib", [None, 1000])
def test_a_disk_that_is_full_has_no_room_whatever_the_settings_say(tmp_path: Path, disk_mib: int | None) -> None:
    settings = Settings(data_dir=tmp_path, disk_mib=disk_mib, free_disk_floor_mib=1 << 40)
    assert Room(settings, FACTS)().disk_mib == 0
