"""The record of a snapshot: what it is worth when something has happened to it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hawker.errors import SnapshotLost
from hawker.ids import MachineId
from hawker.runtime.microvm_plan import MicroVMPlan, StoredGrant
from hawker.runtime.microvm_snapshot import (
    MicroVMSnapshot,
    describe,
    drop_files,
    forget,
    make_room,
    publish,
    read,
    refuse_unusable,
    saved_directory,
)
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm.contract import Vm

VM = Vm(MachineId("m"), 1, 128, 128, "/k", "/i", "console=ttyS0", (), "/cell/vmm")
PROGRAM = "QEMU emulator version 7.2"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """With a snapshot that is published."""
    run = RunDir(tmp_path / "machine" / "run")
    run.vmm.mkdir(parents=True)
    (tmp_path / "kernel").touch()
    make_room(run, os.getuid())
    (saved_directory(run) / "memory").write_bytes(os.urandom(300 << 10))
    (saved_directory(run) / "state").write_bytes(b"few")
    plan = MicroVMPlan(vm=VM, shown=(StoredGrant(source=str(tmp_path / "kernel"), target="/k", writable=False),))
    publish(run, MicroVMSnapshot(program=PROGRAM, plan=plan, files=describe(run), available_mib=50))
    return run


def check(run: RunDir, program: str = PROGRAM) -> None:
    refuse_unusable(run, read(run), program)


def test_a_whole_one_is_used(run: RunDir) -> None:
    check(run)
    assert run.saved() and read(run).available_mib == 50
    assert [file.name for file in read(run).files] == ["memory", "state"]


def overwrite(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
        file.write(b"\0\1\2\3")


def link(path: Path) -> None:
    path.rename(path.with_suffix(".away"))
    path.symlink_to("/etc/passwd")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda path: os.truncate(path, 1000), "torn"),
        (lambda path: path.open("ab").write(b"more"), "torn"),
        (lambda path: overwrite(path, 0), "torn"),
        (lambda path: overwrite(path, -4), "torn"),
        (Path.unlink, "torn"),
        (link, "torn"),
        (pipe, "tampered"),
        (lambda path: path.parent.rename(path.parent.with_name("away")), "gone"),
    ],
)
def test_damage_is_seen(run: RunDir, damage: Callable[[Path], object], text: str) -> None:
    damage(saved_directory(run) / "memory")
    with pytest.raises(SnapshotLost, match=text):
        check(run)


def test_another_version_does_not_take_it(run: RunDir) -> None:
    with pytest.raises(SnapshotLost, match=r"was made by QEMU emulator version 7\.2, and this is QEMU 8"):
        check(run, "QEMU 8")


def test_without_its_kernel_it_is_lost(run: RunDir, tmp_path: Path) -> None:
    (tmp_path / "kernel").unlink()
    with pytest.raises(SnapshotLost, match="kernel is gone"):
        check(run)


def test_a_record_that_was_cut_is_lost_and_still_there(run: RunDir) -> None:
    os.truncate(run.snapshot, 20)
    assert run.saved()
    with pytest.raises(SnapshotLost, match="cannot be read"):
        check(run)


def test_forgetting_and_dropping_may_be_repeated(run: RunDir) -> None:
    for _ in range(2):
        forget(run)
        drop_files(run)
        assert not run.saved() and not saved_directory(run).exists()


def test_a_link_in_the_place_of_the_files_is_all_that_goes(run: RunDir, tmp_path: Path) -> None:
    drop_files(run)
    (tmp_path / "other").mkdir()
    saved_directory(run).symlink_to(tmp_path / "other")
    with pytest.raises(SnapshotLost, match="gone"):
        check(run)
    drop_files(run)
    assert (tmp_path / "other").is_dir() and not saved_directory(run).is_symlink()
