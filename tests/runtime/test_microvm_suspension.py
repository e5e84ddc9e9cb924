"""Suspending and resuming a real guest: what it keeps, and what is so when a daemon dies on the way."""

import os
from pathlib import Path

import pytest

from hawker.errors import SnapshotLost
from hawker.host.vmm_user import user_of
from hawker.runtime import microvm_snapshot
from hawker.runtime.driver import Phase
from hawker.runtime.microvm_launch import read_plan
from hawker.runtime.microvm_snapshot import SAVED, MicroVMSnapshot, describe, make_room, publish, saved_directory
from hawker.runtime.vmm.keeper import read_record
from hawker.runtime.vmm.qemu import Qemu
from tests.runtime.guests import CLOCK, guests

pytestmark = [pytest.mark.anyio, pytest.mark.root]
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
        assert there.said(spec).split() == [str(number + 1) for number in range(len(there.said(spec).split()))]

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
        publish(run, MicroVMSnapshot(program=program, plan=plan, files=describe(run), available_mib=1))
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
        snapshot = microvm_snapshot.read(run)
        publish(run, MicroVMSnapshot(program="QEMU 1", plan=snapshot.plan, files=snapshot.files, available_mib=0))
        with pytest.raises(SnapshotLost, match="was made by QEMU 1"):
            await there.renew().resume(spec.machine_id)
        await there.driver.destroy(spec.machine_id)
        assert not run.exists() and read_record(run).vmm is None
