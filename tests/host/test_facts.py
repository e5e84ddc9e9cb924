"""Facts about facts."""

import os
from pathlib import Path

from hawker.host.facts import TOOLS, disk_of, read_facts


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
