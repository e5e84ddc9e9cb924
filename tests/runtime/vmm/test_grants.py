"""Facts about who owns what a jail is granted."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.errors import Unavailable
from hawker.host.cgroup_restore import Bounds
from hawker.ids import MachineId
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm.contract import JailCell, JailGrant
from hawker.runtime.vmm.grants import own

UID = 0x7000_1234
BOUNDS = Bounds(cpu_period_us=1, cpu_quota_us=1, cpu_shares=1, memory_bytes=1, swapped_bytes=1, pids=1)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    (tmp_path / "run").mkdir(mode=0o700)
    return RunDir(tmp_path / "run")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "file"
    path.touch(mode=0o600)
    yield path


def cell(*grants: JailGrant, uid: int = UID) -> JailCell:
    return JailCell(
        machine_id=MachineId("0123456789abcd"),
        uid=uid,
        argv=("/bin/true",),
        grants=grants,
        devices=(),
        netns=None,
        bounds=BOUNDS,
    )


@pytest.mark.root
def test_a_writable_file_belongs_to_the_user_alone(run: RunDir, file: Path) -> None:
    file.chmod(0o666)
    own(cell(JailGrant(file, "/cell/file", writable=True), JailGrant(run.vmm, "/cell/vmm", writable=True)), run)
    for path, mode in ((file, 0o600), (run.vmm, 0o700)):
        found = path.stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (UID, UID, mode)


def test_a_shared_file_is_readable_and_keeps_its_owner(run: RunDir, file: Path) -> None:
    own(cell(JailGrant(file, "/cell/file")), run)
    found = file.stat()
    assert (found.st_uid, found.st_mode & 0o7777) == (os.getuid(), 0o644)


def test_a_readable_file_is_left_as_it_is(run: RunDir, file: Path) -> None:
    file.chmod(0o755)
    before = file.stat().st_ctime_ns
    own(cell(JailGrant(file, "/cell/file")), run)
    assert file.stat().st_ctime_ns == before


def test_a_link_in_a_writable_file_s_place_is_refused_and_not_followed(run: RunDir, file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(Unavailable, match="link cannot be given to machine 0123456789abcd"):
        own(cell(JailGrant(tmp_path / "link", "/cell/file", writable=True)), run)
    assert file.stat().st_uid == os.getuid()


def test_a_missing_file_is_named(run: RunDir, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"none cannot be given .* No such file"):
        own(cell(JailGrant(tmp_path / "none", "/cell/none")), run)


def test_nothing_is_granted_out_of_the_vmm_s_own_directory(run: RunDir) -> None:
    """Whatever is there, an earlier VMM may have put it there."""
    run.vmm.mkdir()
    (run.vmm / "snapshot").touch()
    with pytest.raises(AssertionError, match="VMM's own directory"):
        own(cell(JailGrant(run.vmm / "snapshot", "/cell/snapshot")), run)
