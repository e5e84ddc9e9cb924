"""A control group made by hand: in plain directories that look like v1's trees, and in the kernel's own."""

import os
import subprocess
from pathlib import Path

import pytest

from hawker.errors import WrongState
from hawker.host.cgroup import Cgroups, Hierarchies, find_hierarchies
from hawker.host.cgroup_restore import Bounds, is_populated, restore_group
from hawker.host.mount import mounts
from hawker.ids import MachineId, NodeId
from tests.node_ids import own_node_id

MACHINE = MachineId("00000000000001")
BOUNDS = Bounds(
    cpu_period_us=100_000,
    cpu_quota_us=200_000,
    cpu_shares=512,
    memory_bytes=64 << 20,
    swapped_bytes=96 << 20,
    pids=50,
)


def test_processes_go_into_every_tree(tmp_path: Path) -> None:
    trees = [tmp_path / "cpu", tmp_path / "memory"]
    for tree in trees:
        (tree / "node").mkdir(parents=True)
    restore_group(trees, Path("node/one"), BOUNDS, [7])
    assert [(tree / "node/one/cgroup.procs").read_text() for tree in trees] == ["7", "7"]


def test_more_devices_are_allowed_after_the_usual_ones(tmp_path: Path) -> None:
    (tmp_path / "node/one").mkdir(parents=True)
    for name in ("devices.deny", "devices.allow"):
        (tmp_path / "node/one" / name).touch()
    restore_group([tmp_path], Path("node/one"), BOUNDS, [], ["c 10:200 rw"])
    assert (tmp_path / "node/one/devices.deny").read_text() == "a"
    assert (tmp_path / "node/one/devices.allow").read_text() == "c 10:200 rw", "the last that was written"


def test_a_group_without_a_process_is_as_good_as_none(tmp_path: Path) -> None:
    assert not is_populated(tmp_path / "none")
    (tmp_path / "cgroup.procs").write_text("")
    assert not is_populated(tmp_path)
    (tmp_path / "cgroup.procs").write_text("7\n")
    assert is_populated(tmp_path)


@pytest.mark.parametrize(("text", "populated"), [("populated 1\nfrozen 0\n", True), ("populated 0\nfrozen 0\n", False)])
def test_v2_counts_the_groups_below(tmp_path: Path, text: str, populated: bool) -> None:
    (tmp_path / "cgroup.procs").write_text("")
    (tmp_path / "cgroup.events").write_text(text)
    assert is_populated(tmp_path) is populated


def test_where_only_the_runtime_knows_the_device_rules_nothing_is_made(tmp_path: Path) -> None:
    cgroups = Cgroups(NodeId("fe12cd34"), Hierarchies({}, tmp_path))
    assert cgroups.is_lost(MACHINE)
    with pytest.raises(WrongState, match="restart it"):
        cgroups.gather(MACHINE, BOUNDS, [os.getpid()])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_the_kernel_takes_the_bounds_and_the_processes() -> None:
    found = find_hierarchies(mounts())
    if not found.v1:
        pytest.skip("this host has cgroup v2 only")
    cgroups = Cgroups(own_node_id(), found)
    with subprocess.Popen(["sleep", "1000"]) as first, subprocess.Popen(["true"]) as gone:
        gone.wait()
        assert cgroups.is_lost(MACHINE)
        for _ in range(2):
            cgroups.gather(MACHINE, BOUNDS, [gone.pid, first.pid])
        assert not cgroups.is_lost(MACHINE)
        group = found.of("memory") / cgroups.path_of(MACHINE).lstrip("/")
        assert int((group / "memory.limit_in_bytes").read_text()) == BOUNDS.memory_bytes
        group = found.of("pids") / cgroups.path_of(MACHINE).lstrip("/")
        assert (group / "pids.max").read_text() == "50\n" and cgroups.usage(MACHINE).pids == 1
        cgroups.remove(MACHINE)
        assert first.wait() == -9
    assert cgroups.list() == []
