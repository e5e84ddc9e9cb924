"""The run directory: life is the journal's lock; a file that a crash cut is as if it had not been written."""

import fcntl
import os
from pathlib import Path

import msgspec
import pytest

from hawker.ids import InstanceId, MachineId
from hawker.runtime.driver import Exit
from hawker.runtime.pilot.channel import pilot_files
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import InstanceLimits, InstanceSpec


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def test_nothing_is_not_alive(run: RunDir) -> None:
    assert not run.alive()


def test_whoever_holds_the_pilot_s_files_is_alive(run: RunDir) -> None:
    with pilot_files(run) as fds:
        inherited = os.dup(fds[1])
    assert run.alive()
    os.close(inherited)
    assert not run.alive()


def test_asking_does_not_make_alive(run: RunDir) -> None:
    run.journal.touch()
    fd = os.open(run.journal, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    assert not run.alive()
    os.close(fd)


def test_values_come_back(run: RunDir) -> None:
    exit = Exit(exit_code=3, exited_at=1.5)
    run.write_exit(exit)
    run.write_pid(77)
    assert (run.exit(), run.pid(), run.spec()) == (exit, 77, None)


SPEC = InstanceSpec(
    machine_id=MachineId("00000000000001"),
    instance_id=InstanceId("I1"),
    hostname="name",
    processes=(),
    limits=InstanceLimits(cpus=1, cpu_weight=1, memory_mib=1, pids=1),
)


def test_an_exit_goes_into_the_block_that_was_kept_for_it(run: RunDir) -> None:
    run.write_spec(SPEC)
    kept = (run.path / "exit.new").stat()
    exit = Exit(exit_code=3, exited_at=1.5)
    run.write_exit(exit)
    written = (run.path / "exit").stat()
    assert (written.st_ino, written.st_size) == (kept.st_ino, kept.st_size) and run.exit() == exit


@pytest.mark.parametrize("left", [b"", b'{"exit_code":', b"[]", b"\xff"])
def test_a_cut_file_is_no_file(run: RunDir, left: bytes) -> None:
    (run.path / "exit").write_bytes(left)
    assert run.exit() is None


def test_remains_of_a_crash_are_not_in_the_next_file(run: RunDir) -> None:
    (run.path / "pid.new").write_bytes(b"1234567890")
    run.write_pid(77)
    assert (run.path / "pid").read_bytes() == b"77"


@pytest.mark.parametrize("length", [65536 - 100, 65536, 2 * 65536, 200_000])
def test_a_long_spec_comes_back_whole(run: RunDir, length: int) -> None:
    short = len(msgspec.json.encode(SPEC)) - len(SPEC.hostname)
    long = msgspec.structs.replace(SPEC, hostname="x" * (length - short))
    run.write_spec(long)
    assert (run.path / "instance").stat().st_size == length and run.spec() == long


def test_removing_twice_is_no_error(run: RunDir) -> None:
    run.write_pid(1)
    run.remove()
    run.remove()
    assert not run.exists()


def test_a_machine_in_a_snapshot_lives_without_a_process(run: RunDir) -> None:
    assert not run.lives()
    run.snapshot.touch()
    assert run.lives() and run.saved() and not run.alive()


def test_a_machine_is_known_by_its_directory() -> None:
    assert RunDir(Path("/srv/machines/0123456789abcd/run")).machine_id == "0123456789abcd"
