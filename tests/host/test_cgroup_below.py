"""Facts about what is found below the mount of control groups of version 2, on a host where that hides something."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.host.cgroup import Cgroups, Hierarchies, machines_below, remove_below
from hawker.host.mount import mount, unmount
from hawker.ids import MachineId, NodeId

pytestmark = pytest.mark.root

MACHINE = MachineId("0123456789abcd")
PARENT = "hawker-ab12"


@pytest.fixture
def unified(tmp_path: Path) -> Iterator[Path]:
    """A mount over a directory in which an older runtime left a machine's files."""
    place = tmp_path / "cgroup"
    place.mkdir()
    mount("tmpfs", place, "tmpfs", 0, "size=1m")
    left = place / "unified" / PARENT / MACHINE
    left.mkdir(parents=True)
    (left / "cgroup.procs").write_text("4711\n")
    mount("tmpfs", place / "unified", "tmpfs", 0, "size=1m")
    yield place / "unified"
    unmount(place / "unified")
    unmount(place)


def test_groups_hidden_by_the_mount_are_listed_and_removed_and_the_mount_stays(unified: Path) -> None:
    assert list(unified.iterdir()) == []
    assert machines_below(unified, PARENT) == [MACHINE]
    remove_below(unified, PARENT, MACHINE)
    assert machines_below(unified, PARENT) == []
    subprocess.run(["mountpoint", "-q", str(unified)], check=True)
    unmount(unified)
    assert list(unified.iterdir()) == []


def test_nothing_is_found_where_nothing_is(unified: Path, tmp_path: Path) -> None:
    assert machines_below(unified, "hawker-none") == []
    assert machines_below(tmp_path / "nowhere/unified", PARENT) == []
    remove_below(unified, "hawker-none", MACHINE)


def test_a_machine_of_which_only_that_is_left_is_listed_and_forgotten(unified: Path, tmp_path: Path) -> None:
    tree = tmp_path / "pids"
    tree.mkdir()
    cgroups = Cgroups(NodeId("ab12cd34"), Hierarchies({"pids": tree}, unified))
    assert cgroups.list() == [MACHINE]
    assert cgroups.knows(MACHINE)
    cgroups.remove(MACHINE)
    assert (cgroups.list(), cgroups.knows(MACHINE)) == ([], False)
