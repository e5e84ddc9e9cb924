"""Facts about control groups: the three layouts from recorded mounts and trees, and the real one with processes."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hawker.errors import NotFound
from hawker.host.cgroup import CgroupLayout, Cgroups, CgroupUsage, Hierarchies, find_hierarchies
from hawker.host.mount import mounts, parse_mountinfo
from hawker.ids import MachineId, NodeId
from tests.node_ids import own_node_id

NODE = NodeId("fe12cd34")
MACHINE = MachineId("0123456789abcd")

V2 = "30 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot"
V1 = """\
30 23 0:26 / /sys/fs/cgroup ro shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/systemd rw shared:10 - cgroup cgroup rw,xattr,name=systemd
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:11 - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/memory rw shared:12 - cgroup cgroup rw,memory
34 30 0:30 / /sys/fs/cgroup/pids rw shared:13 - cgroup cgroup rw,pids
"""
HYBRID = V1 + "35 30 0:31 / /sys/fs/cgroup/unified rw shared:14 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize(
    "text, layout",
    [(V2, CgroupLayout.V2), (V1, CgroupLayout.V1), (HYBRID, CgroupLayout.HYBRID), ("", CgroupLayout.NONE)],
)
def test_layout_is_told_by_the_mounts(text: str, layout: CgroupLayout) -> None:
    assert find_hierarchies(parse_mountinfo(text)).layout is layout


def test_v1_controllers_that_share_a_tree_are_both_found() -> None:
    found = find_hierarchies(parse_mountinfo(HYBRID))
    assert found.of("cpuacct") == found.of("cpu") == Path("/sys/fs/cgroup/cpu,cpuacct")
    assert Path("/sys/fs/cgroup/systemd") in found.trees()
    assert Path("/sys/fs/cgroup/unified") not in found.trees()
    assert len(found.trees()) == 4


def test_missing_controller_is_named() -> None:
    with pytest.raises(NotFound, match="'hugetlb'"):
        find_hierarchies(parse_mountinfo(V1)).of("hugetlb")


def _write(group: Path, files: dict[str, str]) -> None:
    group.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (group / name).write_text(text)


@pytest.fixture
def v2(tmp_path: Path) -> Cgroups:
    _write(
        tmp_path / "hawker-fe12" / MACHINE,
        {
            "memory.events": "low 0\nhigh 0\nmax 9\noom 2\noom_kill 3\noom_group_kill 0\n",
            "cpu.stat": "usage_usec 2500000\nuser_usec 1\nsystem_usec 2\nthrottled_usec 1500000\n",
            "memory.current": "4096\n",
            "memory.max": "8192\n",
            "memory.stat": "anon 1\ninactive_file 1024\n",
            "io.stat": "8:0 rbytes=10 wbytes=7 rios=1 wios=1\n8:16 rbytes=20 wbytes=0 rios=1\n",
            "pids.current": "5\n",
        },
    )
    return Cgroups(NODE, Hierarchies({}, tmp_path))


@pytest.fixture
def v1(tmp_path: Path) -> Cgroups:
    trees = {name: tmp_path / name for name in ("memory", "cpuacct", "pids", "cpu", "blkio")}
    files = {
        "memory": {
            "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
            "memory.usage_in_bytes": "4096\n",
            "memory.limit_in_bytes": "8192\n",
            "memory.stat": "inactive_file 5\ntotal_inactive_file 1024\n",
        },
        "cpuacct": {"cpuacct.usage": "2500000000\n"},
        "pids": {"pids.current": "5\n"},
        "cpu": {"cpu.stat": "nr_periods 9\nnr_throttled 2\nthrottled_time 1500000000\n"},
        "blkio": {"blkio.throttle.io_service_bytes": "8:0 Read 10\n8:0 Write 7\n8:16 Read 20\nTotal 37\n"},
    }
    for name, tree in trees.items():
        _write(tree / "hawker-fe12" / MACHINE, files[name])
    return Cgroups(NODE, Hierarchies(trees, tmp_path / "unified"))


@pytest.mark.parametrize("kind", ["v1", "v2"])
def test_counters_read_the_same_in_both_versions(kind: str, request: pytest.FixtureRequest) -> None:
    cgroups: Cgroups = request.getfixturevalue(kind)
    assert cgroups.oom_kills(MACHINE) == 3
    assert cgroups.usage(MACHINE) == CgroupUsage(
        cpu_s=2.5,
        memory_bytes=4096,
        pids=5,
        working_set_bytes=3072,
        memory_limit_bytes=8192,
        oom_kills=3,
        throttled_s=1.5,
        read_bytes=30,
        written_bytes=7,
    )
    assert cgroups.list() == [MACHINE]
    assert cgroups.path_of(MACHINE) == f"/hawker-fe12/{MACHINE}"


def test_a_machine_without_a_group_has_no_usage_and_was_not_killed(v2: Cgroups) -> None:
    other = MachineId("ffffffffffffff")
    assert v2.oom_kills(other) == 0
    with pytest.raises(NotFound):
        v2.usage(other)
    v2.remove(other)


def test_no_groups_at_all_lists_nothing(tmp_path: Path) -> None:
    assert Cgroups(NODE, Hierarchies({}, tmp_path)).list() == []


@pytest.fixture
def real() -> Iterator[Cgroups]:
    cgroups = Cgroups(own_node_id(), find_hierarchies(mounts()))
    yield cgroups
    for machine_id in cgroups.list():
        cgroups.remove(machine_id)


_FORKER = "import os, signal\nos.fork()\nos.fork()\nprint(flush=True)\nsignal.pause()"


@pytest.mark.root
def test_remove_ends_a_family_of_processes_and_every_group(real: Cgroups) -> None:
    hierarchies = find_hierarchies(mounts())
    groups = [tree / real.path_of(MACHINE).lstrip("/") for tree in hierarchies.trees()]
    for group in groups:
        (group / "inner").mkdir(parents=True)
    inner = hierarchies.of("pids") / real.path_of(MACHINE).lstrip("/") / "inner"
    with subprocess.Popen([sys.executable, "-c", f"input()\n{_FORKER}"], stdin=-1, stdout=-1) as process:
        assert process.stdin is not None and process.stdout is not None
        (inner / "cgroup.procs").write_text(str(process.pid))
        process.stdin.write(b"\n")
        process.stdin.flush()
        for _ in range(4):
            process.stdout.readline()
        assert real.list() == [MACHINE]
        real.remove(MACHINE)
        assert process.wait(timeout=60) == -9
    assert real.list() == []
    assert not any(group.parent.exists() for group in groups)


@pytest.mark.root
def test_the_node_s_group_goes_though_the_machine_s_was_lost(real: Cgroups) -> None:
    groups = [tree / real.path_of(MACHINE).lstrip("/") for tree in find_hierarchies(mounts()).trees()]
    for group in groups:
        group.mkdir(parents=True)
        group.rmdir()
    real.remove(MACHINE)
    assert not any(group.parent.exists() for group in groups)


@pytest.mark.root
def test_many_may_remove_one_group_at_once(real: Cgroups) -> None:
    """Everybody who waits for a machine clears it when it ends."""
    groups = [tree / real.path_of(MACHINE).lstrip("/") for tree in find_hierarchies(mounts()).trees()]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(100):
            for group in groups:
                group.mkdir(parents=True)
            list(pool.map(real.remove, [MACHINE] * 8))
            assert real.list() == []
