"""The freezer: in plain directories that look like each version's groups, and in the kernel's own."""

import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.errors import NotFound
from hawker.host.cgroup import find_hierarchies, freeze, is_frozen, thaw
from hawker.host.mount import mounts


@pytest.fixture(params=["v1", "v2"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """With its files as they are before anything was frozen."""
    if request.param == "v1":
        (tmp_path / "freezer.state").write_text("THAWED\n")
    else:
        (tmp_path / "cgroup.freeze").write_text("0\n")
        (tmp_path / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    return tmp_path


def test_a_group_is_told_in_the_words_of_its_version(group: Path) -> None:
    assert not is_frozen(group)
    freeze(group)
    assert [file.read_text() for file in group.iterdir() if file.name in ("freezer.state", "cgroup.freeze")] in (
        ["FROZEN"],
        ["1"],
    )
    thaw(group)
    assert not is_frozen(group)


def test_v2_is_frozen_once_all_of_it_is(tmp_path: Path) -> None:
    (tmp_path / "cgroup.freeze").write_text("0")
    (tmp_path / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    assert not freeze(tmp_path)
    (tmp_path / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    assert freeze(tmp_path)


def test_v1_is_frozen_once_all_of_it_is(tmp_path: Path) -> None:
    (tmp_path / "freezer.state").write_text("FREEZING\n")
    assert not is_frozen(tmp_path)


def test_missing_group_cannot_be_frozen_and_need_not_be_thawed(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(NotFound, match="gone"):
        freeze(gone)
    thaw(gone)
    assert not is_frozen(gone)


@pytest.fixture
def real_group() -> Iterator[Path]:
    """With a process in it that sleeps."""
    found = find_hierarchies(mounts())
    tree = found.v1.get("freezer", found.v2)
    if tree is None:
        pytest.skip("this host has no freezer")
    made = tree / f"hawker-test-{secrets.token_hex(4)}"
    made.mkdir()
    sleeper = subprocess.Popen(["sleep", "1000"])
    (made / "cgroup.procs").write_text(str(sleeper.pid))
    yield made
    thaw(made)
    sleeper.kill()
    sleeper.wait()
    made.rmdir()


@pytest.mark.root
def test_a_real_group_is_held_still_and_let_go(real_group: Path) -> None:
    while not freeze(real_group):
        os.sched_yield()
    assert is_frozen(real_group)
    thaw(real_group)
    assert not is_frozen(real_group)
