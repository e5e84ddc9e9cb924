"""What is found: everything that was done behind the worker's back, and nothing while it works by itself."""

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from hawker.fsm.contract import WhenBusy
from hawker.ids import InstanceId, MachineId, NodeId, first_ulid
from hawker.machine import State
from hawker.record.machine import DESTROYED, machine_resource
from hawker.record.move import INCOMING, IncomingRecord
from hawker.record.node import NODE, NodeRecord
from hawker.runtime.driver import LostPart
from hawker.runtime.spec import InstanceLimits, InstanceSpec, ProcessSpec
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.store.contract import Tx
from hawker.worker.lifecycle.start import START, Launch
from hawker.worker.reconcile import Finding, Kind

pytestmark = pytest.mark.anyio
OTHER = MachineId("00000000000bad")


@pytest.fixture
def stall(stall: MemoryWorld) -> MemoryWorld:
    stall.reconciles = False
    return stall


def spec(machine_id: MachineId, instance_id: str) -> InstanceSpec:
    return InstanceSpec(
        machine_id=machine_id,
        instance_id=InstanceId(instance_id),
        hostname="other",
        processes=(ProcessSpec(argv=("serve",), env={}),),
        limits=InstanceLimits(cpus=1, cpu_weight=1, memory_mib=1, pids=1),
    )


async def running(worker: SimWorker) -> MachineId:
    return MachineId(await worker.started())


async def test_a_rootfs_that_was_unmounted_under_a_machine(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await running(worker)
    stall.rootfs.hidden.add(machine_id)
    assert await worker.reconciler.find() == [Finding(Kind.LOST_ROOTFS, machine_id)]


@pytest.mark.parametrize(
    ("part", "kind"), [(LostPart.CGROUP, Kind.LOST_CGROUP), (LostPart.RUNTIME_STATE, Kind.LOST_RUNTIME_STATE)]
)
async def test_a_part_of_an_instance_that_was_removed(
    worker: SimWorker, stall: MemoryWorld, part: LostPart, kind: Kind
) -> None:
    machine_id = await running(worker)
    stall.host.worn[machine_id] = {part}
    assert await worker.reconciler.find() == [Finding(kind, machine_id)]


async def test_a_suspended_machine_that_somebody_thawed(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await running(worker)
    await worker.suspend(machine_id)
    await worker.reaches(machine_id, State.SUSPENDED)
    assert await worker.reconciler.find() == []
    await worker.parts.deps.driver.resume(machine_id)
    assert await worker.reconciler.find() == [Finding(Kind.NOT_HELD, machine_id)]


async def test_a_started_machine_that_somebody_froze(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await running(worker)
    await worker.parts.deps.driver.suspend(machine_id)
    assert await worker.reconciler.find() == [Finding(Kind.LEFT_HELD, machine_id)]


async def test_a_suspended_machine_loses_as_a_running_one_does(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await running(worker)
    await worker.suspend(machine_id)
    await worker.reaches(machine_id, State.SUSPENDED)
    stall.rootfs.hidden.add(machine_id)
    stall.host.worn[machine_id] = {LostPart.CGROUP}
    assert set(await worker.reconciler.once()) == {
        Finding(Kind.LOST_ROOTFS, machine_id),
        Finding(Kind.LOST_CGROUP, machine_id),
    }
    assert await worker.reconciler.find() == []


async def test_a_network_that_was_torn(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await running(worker)
    stall.networks.torn[machine_id] = "its link is gone"
    (finding,) = await worker.reconciler.find()
    assert finding == Finding(Kind.LOST_NETWORK, machine_id) and finding.detail == "its link is gone"


async def test_packet_rules_that_were_removed(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.networks.rules = False
    assert await worker.reconciler.find() == [Finding(Kind.LOST_RULES, "host")]


async def test_mounts_and_links_of_nobody(worker: SimWorker, stall: MemoryWorld) -> None:
    await running(worker)
    stall.rootfs.stray.add("/mounts/none")
    stall.networks.stray.add("link-none")
    assert await worker.reconciler.find() == [
        Finding(Kind.STRAY_MOUNT, "/mounts/none"),
        Finding(Kind.STRAY_INTERFACE, "link-none"),
    ]


async def test_a_rootfs_that_is_mounted_under_a_machine_that_is_off(worker: SimWorker, stall: MemoryWorld) -> None:
    record = worker.record(await worker.stopped())
    await stall.rootfs.mount(record.id, InstanceId("I1"), record.image.digest)
    assert await worker.reconciler.find() == [Finding(Kind.LEFT_MOUNTED, record.id)]


async def test_an_instance_that_nobody_saw_end(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await running(worker)
    stall.host.lose_directory(machine_id)
    (finding,) = await worker.reconciler.find()
    assert finding == Finding(Kind.LOST_INSTANCE, machine_id) and finding.detail.endswith("it is not on the host")


async def test_an_instance_that_no_record_knows(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = MachineId(await worker.stopped())
    stall.host.launch(stall.host.place(spec(machine_id, "I9")))
    (finding,) = await worker.reconciler.find()
    assert finding == Finding(Kind.UNRECORDED_INSTANCE, machine_id)
    assert "I9 runs" in finding.detail and "stopped" in finding.detail


async def test_a_process_that_lost_its_directory(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = MachineId(await worker.stopped())
    stall.host.orphans |= {machine_id, OTHER}
    found = await worker.reconciler.find()
    assert sorted(finding.about for finding in found) == sorted([machine_id, OTHER])
    assert {finding.kind for finding in found} == {Kind.STRAY_INSTANCE}


async def test_a_machine_on_its_way_here_is_no_stray(worker: SimWorker, stall: MemoryWorld) -> None:
    """Its memory is a run directory already, and to end it would take the files along."""
    machine = replace(worker.record(await worker.stopped()), id=OTHER)
    coming = IncomingRecord(
        move="01", source=NodeId("00000001"), app=machine.app, generation=2, machine=machine, created_at=0.0
    )
    stall.host.orphans.add(OTHER)
    stall.rootfs.directories.add(OTHER)
    await worker.store.write(lambda tx: tx.put(INCOMING, coming.move, coming))
    assert await worker.reconciler.find() == []
    await worker.store.write(lambda tx: tx.delete(INCOMING, coming.move))
    assert {each.kind for each in await worker.reconciler.find()} == {Kind.STRAY_INSTANCE, Kind.STRAY_DIRECTORY}


async def test_an_image_that_is_not_here_any_more(worker: SimWorker, stall: MemoryWorld) -> None:
    record = worker.record(await worker.stopped())
    worker.parts.deps.images._index.remove(record.image.digest)
    (finding,) = await worker.reconciler.find()
    assert finding == Finding(Kind.LOST_IMAGE, record.image.digest)
    assert finding.detail == "1 machine needs it to start again"


async def test_a_run_of_a_machine_that_was_never_there(worker: SimWorker) -> None:
    run_id = await worker.store.write(
        lambda tx: worker.parts.runner.accept(
            tx,
            START,
            machine_resource(OTHER),
            Launch(instance_id=InstanceId("I1")),
            delay_s=3600,
            when_busy=WhenBusy.QUEUE,
        )
    )
    (finding,) = await worker.reconciler.find()
    assert finding == Finding(Kind.STRAY_RUN, run_id) and OTHER in finding.detail


async def test_a_machine_of_another_store_is_foreign_with_all_that_it_has(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    born = stall.clock.now()
    record = NodeRecord(id=worker.parts.node.id, region="local", created_at=born)
    await worker.store.write(lambda tx: tx.put(NODE, "self", record))
    for machine_id, moment in (("000000000000a1", born - 60), ("000000000000b2", born + 60)):
        stall.host.launch(stall.host.place(spec(MachineId(machine_id), first_ulid(moment))))
        stall.rootfs.directories.add(MachineId(machine_id))
    stall.host.end(MachineId("000000000000a1"))
    found = await worker.reconciler.find()
    assert found == [
        Finding(Kind.STRAY_INSTANCE, "000000000000b2"),
        Finding(Kind.STRAY_DIRECTORY, "000000000000b2"),
        Finding(Kind.FOREIGN_INSTANCE, "000000000000a1"),
    ]
    assert found[-1].detail.startswith("it ended")


async def test_nothing_is_found_while_machines_come_and_go(worker: SimWorker, stall: MemoryWorld) -> None:
    """Looked at after every single transaction and every call of the host."""
    seen: list[Finding] = []
    looks = 0

    async def look() -> None:
        nonlocal looks
        while True:
            seen.extend(await worker.reconciler.find())
            looks += 1
            await stall.clock.sleep(0.001)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        machine_id = await running(worker)
        await worker.restart(machine_id)
        await worker.reaches(machine_id, State.STARTED)
        await worker.stop(machine_id)
        await worker.reaches(machine_id, State.STOPPED)
        await worker.start(machine_id)
        await worker.reaches(machine_id, State.STARTED)
        await worker.destroy(machine_id, force=True)
        await worker.reaches(machine_id, State.DESTROYED)
        tasks.cancel_scope.cancel()
    assert looks > 5 and seen == []


async def test_a_thing_that_goes_while_it_is_looked_at_is_no_stray(worker: SimWorker, stall: MemoryWorld) -> None:
    """A machine that was destroyed between the list of the host and the reading of the records."""
    machine_id = await running(worker)
    list_directories = stall.rootfs.list

    async def list_and_destroy() -> list[MachineId]:
        listed = await list_directories()
        if machine_id in listed:
            await worker.destroy(machine_id, force=True)
            await worker.reaches(machine_id, State.DESTROYED)
        return listed

    stall.rootfs.list = list_and_destroy  # type: ignore[method-assign]
    assert await worker.reconciler.find() == []
    assert worker.machines() == []


async def test_others_run_while_the_records_of_many_machines_are_compared(worker: SimWorker) -> None:
    made = worker.record(await worker.stopped())

    def fill(tx: Tx) -> None:
        for number in range(320):
            gone = replace(made, id=MachineId(f"{number:014x}"), order=None)
            tx.put(DESTROYED, gone.id, gone)

    await worker.store.write(fill)
    turns = list[int]()

    async def take_turns() -> None:
        while True:
            await checkpoint()
            turns.append(1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        assert await worker.reconciler.find() == []
        first = len(turns)
        assert await worker.reconciler.find() == []
        tasks.cancel_scope.cancel()
    assert first - (len(turns) - first) >= 19, "each is read once"
