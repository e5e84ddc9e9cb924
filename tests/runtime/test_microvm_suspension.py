"""Suspending and resuming a real guest: what it keeps, and what is so when a daemon dies on the way."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hawker.errors import SnapshotLost
from hawker.host.rmtree import remove_tree
from hawker.host.vmm_user import user_of
from hawker.ids import MachineId
from hawker.runtime import microvm_suspension
from hawker.runtime.driver import Phase
from hawker.runtime.microvm_launch import MicroVMPlan, StoredGrant, read_plan
from hawker.runtime.microvm_suspension import (
    SAVED,
    MicroVMSnapshot,
    came_as,
    drop_files,
    forget_snapshot,
    make_room,
    moved_place,
    publish_snapshot,
    read_snapshot,
    refuse_unusable,
    saved_directory,
    saved_files,
)
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm.contract import Vm
from hawker.runtime.vmm.keeper import read_record
from hawker.runtime.vmm.qemu import Qemu
from tests.host.test_rmtree import nest
from tests.runtime.guests import CLOCK, guests

pytestmark = [pytest.mark.anyio, pytest.mark.root]
DEEPER_THAN_A_STACK = 1500
COUNTING = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done"


async def test_memory_survives_and_a_torn_snapshot_is_an_end_that_says_why(tmp_path: Path) -> None:
    async with guests(tmp_path) as there:
        spec = there.spec(COUNTING)
        run = there.run(spec)
        await there.driver.start(spec)
        await there.hears(spec, "\n5\n")
        await there.driver.suspend(spec.machine_id)
        assert not run.alive() and run.saved()
        counted = len(there.said(spec).split())
        await there.renew().resume(spec.machine_id)
        assert run.alive() and not run.saved() and not saved_directory(run).exists()
        await there.hears(spec, f"\n{counted + 5}\n")
        whole = there.said(spec).rpartition("\n")[0].split()  # it goes on, and a line may come in two pieces
        assert whole == [str(number + 1) for number in range(len(whole))]

        await there.driver.suspend(spec.machine_id)
        os.truncate(saved_directory(run) / "memory", 1 << 20)
        with pytest.raises(SnapshotLost, match="torn"):
            await there.renew().resume(spec.machine_id)
        found = await there.driver.inspect(spec.machine_id)
        assert found.phase is Phase.EXITED and found.exit is not None and "torn" in found.exit.fault
        assert not run.alive() and not run.saved()


async def test_a_daemon_that_died_on_the_way_leaves_it_running_or_suspended(tmp_path: Path) -> None:
    async with guests(tmp_path) as there:
        spec = there.spec(COUNTING)
        run = there.run(spec)
        await there.driver.start(spec)
        await there.hears(spec, "\n3\n")
        qemu, plan = Qemu(CLOCK, accelerates=False), read_plan(run)

        make_room(run, user_of(spec.machine_id))
        await qemu.save(plan.vm, run, f"{plan.vm.directory}/{SAVED}")  # and no record of it
        held = len(there.said(spec))
        assert (await there.renew().recover(spec.machine_id)).phase is Phase.RUNNING
        await there.hears(spec, "\n", since=held)
        assert not saved_directory(run).exists()

        make_room(run, user_of(spec.machine_id))
        await qemu.save(plan.vm, run, f"{plan.vm.directory}/{SAVED}")
        program = await qemu.version()
        publish_snapshot(run, MicroVMSnapshot(program=program, plan=plan, files=saved_files(run), available_mib=1))
        held = len(there.said(spec))
        assert run.alive(), "its VMM is left over"
        assert (await there.renew().recover(spec.machine_id)).phase is Phase.SUSPENDED
        await there.renew().suspend(spec.machine_id)
        assert not run.alive() and run.saved()
        await there.renew().resume(spec.machine_id)
        await there.hears(spec, "\n", since=held)


async def test_another_version_s_snapshot_is_lost_and_the_machine_can_be_destroyed(tmp_path: Path) -> None:
    async with guests(tmp_path) as there:
        spec = there.spec(COUNTING)
        await there.driver.start(spec)
        await there.driver.suspend(spec.machine_id)
        run = there.run(spec)
        snapshot = microvm_suspension.read_snapshot(run)
        publish_snapshot(
            run, MicroVMSnapshot(program="QEMU 1", plan=snapshot.plan, files=snapshot.files, available_mib=0)
        )
        with pytest.raises(SnapshotLost, match="was made by QEMU 1"):
            await there.renew().resume(spec.machine_id)
        await there.driver.destroy(spec.machine_id)
        assert not run.exists() and read_record(run).vmm is None


async def test_whoever_looks_while_a_memory_is_taken_in_sees_no_instance_or_a_suspended_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance that nobody runs and that is in no snapshot has ended, and who sees that drops its memory."""
    async with guests(tmp_path) as there:
        spec = there.spec(COUNTING)
        run = there.run(spec)
        await there.driver.start(spec)
        await there.hears(spec, "\n5\n")
        await there.driver.suspend(spec.machine_id)
        for name in ("instance", "plan", "snapshot"):  # as they come from another node
            moved_place(run, name).rename(moved_place(run, came_as(name)))
        driver = there.renew()

        def dies(*_: object) -> None:
            raise OSError("the daemon died")

        for place, step in ((microvm_suspension, "publish_snapshot"), (RunDir, "write_spec")):
            with monkeypatch.context() as patch:
                patch.setattr(place, step, dies)
                with pytest.raises(OSError, match="died"):
                    await driver.take_in(spec)
            assert (await driver.inspect(spec.machine_id)).phase is Phase.ABSENT, f"before {step}"
        await driver.take_in(spec)
        assert (await driver.inspect(spec.machine_id)).phase is Phase.SUSPENDED
        counted = len(there.said(spec).split())
        await driver.resume(spec.machine_id)
        await there.hears(spec, f"\n{counted + 5}\n")


VM = Vm(MachineId("m"), 1, 128, 128, "/k", "/i", "console=ttyS0", (), "/cell/vmm")
PROGRAM = "QEMU emulator version 7.2"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDir]:
    """With a snapshot that is published."""
    run = RunDir(tmp_path / "machine" / "run")
    run.vmm.mkdir(parents=True)
    (tmp_path / "kernel").touch()
    make_room(run, os.getuid())
    (saved_directory(run) / "memory").write_bytes(os.urandom(300 << 10))
    (saved_directory(run) / "state").write_bytes(b"few")
    plan = MicroVMPlan(vm=VM, shown=(StoredGrant(source=str(tmp_path / "kernel"), target="/k", writable=False),))
    publish_snapshot(run, MicroVMSnapshot(program=PROGRAM, plan=plan, files=saved_files(run), available_mib=50))
    yield run
    remove_tree(run.path)  # pytest itself cannot go as deep as a test here does


def check(run: RunDir, program: str = PROGRAM) -> None:
    refuse_unusable(run, read_snapshot(run), program)


def test_a_whole_one_is_used(run: RunDir) -> None:
    check(run)
    assert run.saved() and read_snapshot(run).available_mib == 50
    assert [file.name for file in read_snapshot(run).files] == ["memory", "state"]


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
        forget_snapshot(run)
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


def test_directories_in_it_are_out_of_the_vmm_s_reach_however_deep(run: RunDir) -> None:
    """They go with the machine's run directory, once no VMM is left to exchange them meanwhile."""
    for depth in (DEEPER_THAN_A_STACK, 3):
        nest(saved_directory(run), depth)
        make_room(run, os.getuid())
        assert list(run.vmm.iterdir()) == [saved_directory(run)] and list(saved_directory(run).iterdir()) == []
    assert len(list(run.path.glob("dropped-*"))) == 2
    run.remove()
    assert not run.path.exists()
