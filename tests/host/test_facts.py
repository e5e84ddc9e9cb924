"""Facts about facts."""

import os
from pathlib import Path

import pytest

from hawker.host.cgroup import Cgroups, Hierarchies
from hawker.host.facts import TOOLS, cloud_of, disk_of, lack_of_swap, read_facts
from hawker.ids import NodeId


def test_facts_agree_with_the_kernel() -> None:
    facts = read_facts()
    meminfo = Path("/proc/meminfo").read_text()
    total_kib = int(meminfo.split("MemTotal:")[1].split()[0])
    assert abs(facts.memory_mib - total_kib // 1024) <= 1
    assert facts.cpus == len(os.sched_getaffinity(0))
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts.kernel == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert facts.root == (os.geteuid() == 0)
    assert set(facts.tools) == set(TOOLS)


def test_disk_of_a_directory_yet_to_be_made_is_its_parents(tmp_path: Path) -> None:
    disk = disk_of(tmp_path / "not" / "there")
    assert disk.total_bytes == disk_of(tmp_path).total_bytes
    assert 0 < disk.free_bytes <= disk.total_bytes


HEAD = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
NODE = NodeId("0123abcd")


@pytest.fixture
def swaps(tmp_path: Path) -> Path:
    file = tmp_path / "swaps"
    file.write_text(f"{HEAD}/swapfile file 1048572 0 -2\n")
    return file


def v1(tree: Path) -> Cgroups:
    return Cgroups(NODE, Hierarchies({"memory": tree}, None))


def v2(tree: Path) -> Cgroups:
    return Cgroups(NODE, Hierarchies({}, tree))


def test_a_host_without_swap_says_how_to_get_some(tmp_path: Path) -> None:
    none = tmp_path / "swaps"
    none.write_text(HEAD)
    assert "swapon" in lack_of_swap(v1(tmp_path), none)


def test_a_kernel_that_does_not_account_for_swap_says_how_it_would(tmp_path: Path, swaps: Path) -> None:
    assert "swapaccount=1" in lack_of_swap(v1(tmp_path), swaps)
    assert "swapaccount=1" in lack_of_swap(v2(tmp_path), swaps)


def test_nothing_is_missing_where_swap_is_accounted_for(tmp_path: Path, swaps: Path) -> None:
    (tmp_path / "memory.memsw.limit_in_bytes").touch()
    (tmp_path / "group").mkdir()
    (tmp_path / "group/memory.swap.max").touch()
    assert lack_of_swap(v1(tmp_path), swaps) == "" == lack_of_swap(v2(tmp_path), swaps)


def test_a_host_without_memory_groups_says_so(swaps: Path) -> None:
    assert "no memory control groups" in lack_of_swap(Cgroups(NODE, Hierarchies({"cpu": Path("/x")}, None)), swaps)


def test_a_cloud_is_told_by_its_firmware(tmp_path: Path) -> None:
    assert cloud_of(tmp_path / "none") == "" == cloud_of(tmp_path)
    (tmp_path / "sys_vendor").write_text("Amazon EC2\n")
    assert cloud_of(tmp_path) == "AWS"
    (tmp_path / "sys_vendor").write_text("Microsoft Corporation\n")
    assert cloud_of(tmp_path) == ""
    (tmp_path / "chassis_asset_tag").write_text("7783-7084-3265-9085-8269-3286-77\n")
    assert cloud_of(tmp_path) == "Azure"
