"""What is mended: once is enough, twice does no harm, a machine that runs goes on, and what somebody is at is left."""

import pytest

from hawker.ids import InstanceId, MachineId, first_ulid
from hawker.machine import State
from hawker.record.machine import machine_resource
from hawker.record.node import NODE, NodeRecord
from hawker.runtime.driver import LostPart
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.lifecycle.start import START, Launch
from hawker.worker.reconcile import Finding, Kind, Mender
from hawker.worker.reconcile.findings import REPAIRS
from tests.worker.invariants import check_at_rest
from tests.worker.reconcile.test_detect import OTHER, spec

pytestmark = pytest.mark.anyio
ASKED = frozenset({Mender.NODE, Mender.OPERATOR})


@pytest.fixture
def stall(stall: MemoryWorld) -> MemoryWorld:
    stall.reconciles = False
    return stall


async def running(worker: SimWorker) -> MachineId:
    return MachineId(await worker.started())


def test_every_kind_has_a_repair_and_a_mender() -> None:
    assert set(REPAIRS) == set(Kind)
    assert all(REPAIRS[kind].text for kind in Kind)


def test_nothing_that_ends_a_known_or_foreign_machine_is_the_nodes_to_do() -> None:
    assert {kind for kind in Kind if REPAIRS[kind].by is not Mender.NODE} == {
        Kind.FOREIGN_INSTANCE,
        Kind.LOST_RUNTIME_STATE,
        Kind.LATE_HISTORIES,
        Kind.WRONG_CLOCK,
        Kind.CATALOG_AGENT,
        Kind.LOST_IMAGE,
        Kind.FOREIGN_VOLUME,
        Kind.LOST_VOLUME,
        Kind.HELD_VOLUME,
        Kind.DAMAGED_BACKUP,
        Kind.FULL_CONNECTIONS,
        Kind.EXPOSED_METADATA,
        Kind.NO_RESERVE,
        Kind.NO_MESH,
        Kind.SILENT_TUNNEL,
        Kind.ENDING_CERTIFICATE,
        Kind.UNREACHED_API,
    }


async def test_a_lost_part_of_a_running_machine_is_given_back_while_it_runs(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await running(worker)
    before = worker.record(machine_id)
    stall.rootfs.hidden.add(machine_id)
    stall.host.worn[machine_id] = {LostPart.CGROUP}
    stall.networks.torn[machine_id] = "its link is gone"
    stall.networks.rules = False
    assert len(await worker.reconciler.once()) == 4
    assert await worker.reconciler.find() == []
    assert worker.record(machine_id) == before
    check_at_rest(stall)


async def test_machines_are_held_still_and_let_go_as_their_records_say(worker: SimWorker, stall: MemoryWorld) -> None:
    suspended, started = await running(worker), await running(worker)
    await worker.suspend(suspended)
    await worker.reaches(suspended, State.SUSPENDED)
    await worker.parts.deps.driver.resume(suspended)
    await worker.parts.deps.driver.suspend(started)
    assert len(await worker.reconciler.once()) == 2
    assert await worker.reconciler.find() == []
    check_at_rest(stall)


@pytest.mark.parametrize("kind", [Kind.LOST_ROOTFS, Kind.LOST_CGROUP, Kind.LOST_NETWORK, Kind.NOT_HELD, Kind.LEFT_HELD])
async def test_nothing_is_given_back_to_a_machine_that_has_stopped_meanwhile(
    worker: SimWorker, stall: MemoryWorld, kind: Kind
) -> None:
    machine_id = await running(worker)
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    await worker.reconciler.repair(Finding(kind, machine_id))
    await worker.destroy(machine_id)
    await worker.reaches(machine_id, State.DESTROYED)
    await worker.reconciler.repair(Finding(kind, machine_id))
    check_at_rest(stall)


async def test_a_lost_instance_has_its_exit_recorded_and_follows_its_policy(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await running(worker)
    before = worker.record(machine_id)
    stall.host.lose_directory(machine_id)
    finding = Finding(Kind.LOST_INSTANCE, machine_id)
    await worker.reconciler.repair(finding)
    await worker.reconciler.repair(finding)
    record = await worker.reaches(machine_id, State.STARTED)
    assert record.running is not None and before.running is not None
    assert record.running.instance_id != before.running.instance_id
    assert stall.host.running() == {machine_id: record.running.instance_id}


async def test_an_instance_that_still_runs_is_not_lost(worker: SimWorker) -> None:
    machine_id = await running(worker)
    before = worker.record(machine_id)
    await worker.reconciler.repair(Finding(Kind.LOST_INSTANCE, machine_id))
    assert worker.record(machine_id) == before


async def test_an_unrecorded_instance_is_taken_up_and_watched(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = MachineId(await worker.stopped(restart={"policy": "no"}))
    stall.host.launch(stall.host.place(spec(machine_id, "I9")))
    stall.rootfs.mounted[machine_id] = (InstanceId("I9"), worker.record(machine_id).image.digest)
    await worker.reconciler.once()
    record = worker.record(machine_id)
    assert record.state is State.STARTED and record.running is not None and record.running.instance_id == "I9"
    assert record.holds.memory_mib > 0
    assert await worker.reconciler.find() == []
    stall.host.end(machine_id, 7)
    await worker.reaches(machine_id, State.STOPPED)
    (exit,) = await worker.exits(machine_id)
    assert exit.request is not None and exit.request.exit_event is not None
    assert exit.request.exit_event.exit_code == 7
    check_at_rest(stall)


async def test_an_instance_that_a_run_is_at_is_left_to_the_run(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = MachineId(await worker.stopped())
    stall.host.launch(stall.host.place(spec(machine_id, "I9")))
    await worker.store.write(
        lambda tx: worker.parts.runner.accept(
            tx, START, machine_resource(machine_id), Launch(instance_id=InstanceId("I10")), delay_s=3600
        )
    )
    assert await worker.reconciler.find() == []
    await worker.reconciler.repair(Finding(Kind.UNRECORDED_INSTANCE, machine_id))
    assert worker.record(machine_id).state is State.STOPPED


async def test_a_rootfs_left_mounted_is_given_back_by_a_run(worker: SimWorker, stall: MemoryWorld) -> None:
    record = worker.record(await worker.stopped())
    await stall.rootfs.mount(record.id, InstanceId("I1"), record.image.digest)
    finding = Finding(Kind.LEFT_MOUNTED, record.id)
    await worker.reconciler.repair(finding)
    await worker.reconciler.repair(finding)
    await worker.at_rest()
    assert not stall.rootfs.mounted and await worker.reconciler.find() == []
    assert len(worker.parts.runner.list(flow="rest")) == 1


async def test_a_rest_that_comes_late_does_not_touch_a_machine_that_runs(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = MachineId(await worker.stopped())
    await worker.reconciler.repair(Finding(Kind.LEFT_MOUNTED, machine_id))
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    assert machine_id in stall.rootfs.mounted
    await worker.reconciler.repair(Finding(Kind.LEFT_MOUNTED, machine_id))
    await worker.at_rest()
    assert machine_id in stall.rootfs.mounted


async def test_a_stray_run_is_aborted_however_often_it_takes(worker: SimWorker) -> None:
    await worker.store.write(
        lambda tx: worker.parts.runner.accept(
            tx, START, machine_resource(OTHER), Launch(instance_id=InstanceId("I1")), delay_s=3600
        )
    )
    for _ in range(5):
        await worker.reconciler.once()
        await worker.parts.deps.clock.sleep(600)
    assert await worker.reconciler.find() == []
    assert worker.parts.runner.list(resource=machine_resource(OTHER), active=True) == []


async def test_a_lost_image_waits_for_an_operator_and_is_pulled(worker: SimWorker) -> None:
    record = worker.record(await worker.stopped())
    digest = record.image.digest
    worker.parts.deps.images._index.remove(digest)
    await worker.reconciler.once()
    assert worker.parts.deps.images.find(digest) is None
    (mended,) = await worker.reconciler.mend(ASKED)
    assert mended.tried and mended.error is None
    await worker.at_rest()
    assert worker.parts.deps.images.find(digest) is not None
    assert await worker.reconciler.find() == []


async def test_a_foreign_machine_is_ended_only_when_that_is_said(worker: SimWorker, stall: MemoryWorld) -> None:
    record = NodeRecord(id=worker.parts.node.id, region="local", created_at=stall.clock.now())
    await worker.store.write(lambda tx: tx.put(NODE, "self", record))
    stall.host.launch(stall.host.place(spec(OTHER, first_ulid(record.created_at - 1))))
    stall.rootfs.directories.add(OTHER)
    for menders in (frozenset({Mender.NODE}), ASKED):
        (left,) = await worker.reconciler.mend(menders)
        assert not left.tried and OTHER in stall.host.running()
    (ended,) = await worker.reconciler.mend(ASKED | {Mender.FORCE})
    assert ended.tried and ended.error is None
    assert await worker.reconciler.find() == [] and not stall.host.running() and not stall.rootfs.directories


async def test_a_process_without_a_directory_is_ended(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = MachineId(await worker.stopped())
    stall.host.orphans |= {machine_id, OTHER}
    await worker.reconciler.once()
    assert not stall.host.orphans and await worker.reconciler.find() == []


async def test_mounts_and_links_of_nobody_are_removed(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.rootfs.stray.add("/mounts/none")
    stall.networks.stray.add("link-none")
    await worker.reconciler.once()
    assert not stall.rootfs.stray and not stall.networks.stray


async def test_a_repair_that_fails_says_so_and_the_others_are_done(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await running(worker)
    stall.host.worn[machine_id] = {LostPart.CGROUP}
    stall.networks.rules = False
    stall.host.script("mend", FakeFault(error=OSError("read-only file system")))
    mended = {each.finding.kind: each.error for each in await worker.reconciler.mend(ASKED)}
    assert mended == {Kind.LOST_CGROUP: "read-only file system", Kind.LOST_RULES: None}
    assert await worker.reconciler.once() == [Finding(Kind.LOST_CGROUP, machine_id)]
    assert await worker.reconciler.find() == []
