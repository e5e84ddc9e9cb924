import msgspec
import pytest

from hawker.containment import UNFORESEEN
from hawker.fsm.journal import CLOSED
from hawker.ids import InstanceId, MachineId
from hawker.machine import State
from hawker.record.machine import DESTROYED, EVENTS, Network
from hawker.record.node import NODE, NodeRecord
from hawker.runtime.fake_driver import FakeDriver
from hawker.runtime.fake_host import FakeFault
from hawker.runtime.spec import InstanceLimits, InstanceSpec, ProcessSpec
from hawker.sim.harness.loop import eventually
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.store.contract import Tx
from hawker.worker.reconcile import Finding, Kind, Mender
from hawker.worker.reconcile.gone import KEPT_OF_APP
from tests.sim.moves.fleets import played_fleet
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio
STRAY, OTHER = MachineId("00000000000bad"), MachineId("00000000000bbb")


@pytest.fixture
def stall(stall: MemoryWorld) -> MemoryWorld:
    """One that is reconciled only when a test says so."""
    stall.reconciles = False
    return stall


def _spec() -> InstanceSpec:
    return InstanceSpec(
        machine_id=STRAY,
        instance_id=InstanceId("I1"),
        hostname="stray",
        processes=(ProcessSpec(argv=("serve",), env={}),),
        limits=InstanceLimits(cpus=1, cpu_weight=1, memory_mib=1, pids=1),
    )


async def test_a_healthy_worker_has_no_findings(worker: SimWorker) -> None:
    await worker.started()
    await worker.stopped()
    assert await worker.reconciler.find() == []


async def test_strays_are_found_and_removed(worker: SimWorker, stall: MemoryWorld) -> None:
    kept = await worker.started()
    stall.host.launch(stall.host.place(_spec()))
    stall.rootfs.directories.add(STRAY)
    stall.networks.plugged[STRAY] = Network(private_ip="fdaa::2", network_id=1)
    found = await worker.reconciler.once()
    kinds = (Kind.STRAY_INSTANCE, Kind.STRAY_NETWORK, Kind.STRAY_DIRECTORY)
    assert found == [Finding(kind, STRAY) for kind in kinds]
    assert await worker.reconciler.find() == []
    assert stall.host.machines() == [kept]
    check_at_rest(stall)


async def test_a_repair_that_fails_as_nobody_foresaw_hinders_no_other_one(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    """By what a tenant made of a name, for example."""
    stall.host.launch(stall.host.place(_spec()))
    stall.host.script("destroy", FakeFault(error=UnicodeError("what a tenant made")))
    stall.rootfs.directories.add(OTHER)
    mended = await worker.reconciler.mend(frozenset({Mender.NODE}))
    assert [(each.finding.about, each.error) for each in mended] == [(STRAY, UNFORESEEN), (OTHER, None)]
    assert [each.finding.about for each in await worker.reconciler.mend(frozenset({Mender.NODE}))] == [STRAY]
    assert await worker.reconciler.find() == []


def _failing(monkeypatch: pytest.MonkeyPatch, call: str, about: tuple[MachineId, ...]) -> None:
    """Has the driver's next call about this raise what nobody foresaw."""
    sound, left = getattr(FakeDriver, call), [about]

    async def called(self: FakeDriver, *arguments: MachineId) -> object:
        if left == [arguments]:
            left.clear()
            raise UnicodeError("what a tenant made")
        return await sound(self, *arguments)

    monkeypatch.setattr(FakeDriver, call, called)


async def test_a_machine_that_cannot_be_inspected_hides_no_other_finding(
    worker: SimWorker, stall: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = NodeRecord(id=worker.parts.node.id, region="local", created_at=0.0)
    await worker.store.write(lambda tx: tx.put(NODE, "self", node))
    stall.host.launch(stall.host.place(_spec()))
    stall.rootfs.directories.add(OTHER)
    _failing(monkeypatch, "inspect", (STRAY,))
    kinds = {each.about: each.kind for each in await worker.reconciler.find()}
    assert kinds == {STRAY: Kind.FOREIGN_INSTANCE, OTHER: Kind.STRAY_DIRECTORY}


async def test_a_round_that_fails_as_nobody_foresaw_is_followed_by_the_next(
    worker: SimWorker, stall: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    stall.host.launch(stall.host.place(_spec()))
    _failing(monkeypatch, "list", ())
    worker.tasks.start_soon(worker.reconciler.serve, 1.0)
    await eventually(stall.clock, lambda: stall.host.machines() == [], 60)


async def test_a_machine_between_two_tries_is_not_forsaken(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    stall.host.end(MachineId(machine_id), 1)
    await worker.reaches(machine_id, State.STARTING)
    assert await worker.reconciler.find() == []


@pytest.mark.parametrize(
    ("state", "end"),
    [
        (State.STARTING, State.STOPPED),
        (State.STOPPING, State.STOPPED),
        (State.UPDATING, State.STOPPED),
        (State.DESTROYING, State.DESTROYED),
    ],
)
async def test_a_machine_that_nothing_is_at_is_taken_up(
    worker: SimWorker, stall: MemoryWorld, state: State, end: State
) -> None:
    machine_id = await worker.started()
    record, table = worker.record(machine_id), worker.parts.deps.table
    await worker.store.write(lambda tx: table.change(tx, record, state=state))
    assert await worker.reconciler.once() == [Finding(Kind.FORSAKEN, record.id)]
    await worker.reaches(machine_id, end)
    assert await worker.reconciler.once() == []
    check_at_rest(stall)


async def test_taking_up_twice_is_one_run(worker: SimWorker) -> None:
    machine_id = await worker.started()
    record, table = worker.record(machine_id), worker.parts.deps.table
    await worker.store.write(lambda tx: table.change(tx, record, state=State.STOPPING))
    finding = Finding(Kind.FORSAKEN, record.id)
    await worker.reconciler.repair(finding)
    await worker.reconciler.repair(finding)
    await worker.reaches(machine_id, State.STOPPED)
    assert len(worker.parts.runner.list(flow="stop")) == 1


async def test_a_repair_that_fails_is_tried_again_next_time(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.host.place(_spec())
    stall.host.script("destroy", FakeFault(error=OSError("busy")))
    assert len(await worker.reconciler.once()) == 1
    assert len(await worker.reconciler.once()) == 1
    assert await worker.reconciler.once() == []


async def test_a_host_that_cannot_be_listed_now_is_listed_later(
    stall: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def sweep() -> None:
        nonlocal tries
        tries += 1
        raise OSError("input/output error")

    monkeypatch.setattr(stall.rootfs, "sweep", sweep)
    stall.reconciles = True
    async with stall.open() as worker:
        await stall.clock.sleep(stall.settings.reconcile_every_s * 2 + 1)
        assert tries == 3 and worker.machines() == []


async def test_the_history_of_a_machine_is_dropped_after_a_while(worker: SimWorker, stall: MemoryWorld) -> None:
    machine = await worker.create(key="order")
    await worker.reaches(machine.id, State.STARTED)
    await worker.destroy(machine.id, force=True)
    await worker.reaches(machine.id, State.DESTROYED)
    await worker.reconciler.once()
    assert worker.store.count(DESTROYED) == 1
    await stall.clock.sleep(stall.settings.destroyed_kept_s + 1)
    await worker.reconciler.once()
    assert worker.store.count(DESTROYED) == worker.store.count(EVENTS) == 0
    assert worker.parts.runner.list() == []
    assert stall.rootfs.swept == stall.networks.swept == 2
    check_at_rest(stall)


async def test_runs_of_what_came_from_other_nodes_are_dropped_after_a_while() -> None:
    async with played_fleet() as fleet:
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        store, worker = fleet.hosts[1].world.store, fleet.worker(1)
        flows = {"receive", "bring_snapshots"}
        await eventually(fleet._clock, lambda: flows <= {run.flow for _, run in store.scan(CLOSED)}, 600)
        await worker.reconciler.once()
        assert flows <= {run.flow for run in worker.parts.runner.list()}
        old = fleet._clock.now() - fleet.hosts[1].world.settings.destroyed_kept_s - 1

        def age(tx: Tx) -> None:
            for key, run in list(tx.scan(CLOSED)):
                tx.put(CLOSED, key, msgspec.structs.replace(run, ended_at=old))

        await store.write(age)
        await worker.reconciler.once()
        assert not flows & {run.flow for run in worker.parts.runner.list()}


async def test_destroyed_machines_beyond_what_an_app_keeps_are_forgotten_although_nothing_can_be_compared(
    worker: SimWorker, stall: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant makes and deletes machines without end, and no quota counts those that are gone."""
    record = await worker.create(key="order")
    kept = worker.record(record.id)

    def fill(tx: Tx) -> None:
        for number in range(KEPT_OF_APP + 3):
            fields = {
                "id": MachineId(f"{number:014x}"),
                "state": State.DESTROYED,
                "updated_at": kept.updated_at + number,
            }
            gone = msgspec.structs.replace(kept, order=None, **fields)
            tx.put(DESTROYED, gone.id, gone)

    async def no_answer() -> list[MachineId]:
        raise OSError("no answer")

    await worker.store.write(fill)
    monkeypatch.setattr(stall.rootfs, "list", no_answer)
    with pytest.raises(OSError, match="no answer"):
        await worker.reconciler.once()
    assert worker.store.count(DESTROYED) == KEPT_OF_APP
    assert worker.store.sizes(DESTROYED)[0][0] == f"{3:014x}"
