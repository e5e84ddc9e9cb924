from pathlib import Path
from typing import Any

import anyio
import pytest

from hawker.config import validate
from hawker.errors import NotFound
from hawker.ids import MachineId, SnapshotId, VolumeId
from hawker.machine import State
from hawker.node import Resources
from hawker.proof import invariants
from hawker.proof.violation import Invariant, Violation
from hawker.record.node import USED
from hawker.sim.harness.loop import LoopClock
from hawker.sim.harness.trace import Speaker, Trace
from hawker.sim.node.kit import FEATURES
from hawker.sim.node.sim_worker import SimWorker, config_of
from hawker.sim.node.world import MemoryWorld
from hawker.sim.worker.client import (
    WORDS,
    ClientGate,
    SimConnectionLost,
    SnapshotOperations,
    WorkerLedger,
    containers,
    containers_for,
)
from hawker.sim.worker.plan import WorkerOperation, WorkerVerb
from hawker.sim.worker.simulation import WorkerOutcome, play
from hawker.store.memory_store import MemoryStore
from hawker.time_window import DAY_S
from tests.sim.played import call, order, plan

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("word", WORDS)
def test_the_simulators_containers_are_a_config_that_is_accepted(word: str) -> None:
    validate(config_of(containers=containers_for(word)), FEATURES)
    assert containers_for("another word") is None


async def test_a_batch_ends_by_itself(worker: SimWorker) -> None:
    machine_id = await worker.started(containers=containers_for("batch"), restart={"policy": "no"})
    record = await worker.reaches(machine_id, State.STOPPED)
    assert record.running is not None and record.running.exit is not None
    assert record.running.exit.exit_code == 2


async def test_containers_start_in_their_order_and_end_with_the_last(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(containers=containers(), restart={"policy": "no"})
    record = worker.record(machine_id)
    await stall.clock.sleep(60)
    found = worker.parts.container_supervisors.containers(record)
    shown = {each.name: each.state for each in found}
    assert shown == {"web": "running", "db": "running", "init": "exited", "job": "exited"}
    assert invariants.at_rest(worker.store, stall.seen()) == []
    for index in (0, 1):
        stall.host.end_process(record.id, index, 0)
    await worker.reaches(machine_id, State.STOPPED)
    assert (await worker.exits(machine_id))[0].request is not None
    assert invariants.at_rest(worker.store, stall.seen()) == []


def operation(verb: WorkerVerb) -> WorkerOperation:
    return WorkerOperation(7, 0.0, "ann", verb, "ann-1")


async def test_answered_snapshot_is_promised_and_can_be_copied(tmp_path: Path) -> None:
    stall = MemoryWorld(tmp_path)
    ledger = WorkerLedger(stall.clock, Trace(False), lambda: None)
    async with stall.open() as worker:
        await worker.app()
        volume = await worker.volume("ann-1", size_gb=1)
        ledger.volumes["ann-1"] = VolumeId(volume.id)

        async def attempt(_: WorkerOperation, act: Any) -> Any:
            return await act(worker)

        operations = SnapshotOperations(ledger, stall.clock, attempt)
        await operations.do(operation(WorkerVerb.RESTORE))
        assert list(ledger.volumes) == ["ann-1"], "there is no snapshot yet"
        await operations.do(operation(WorkerVerb.SNAPSHOT))
        await worker.at_rest()
        [(snapshot_id, until)] = ledger.snapshot_promises.kept_until.items()
        assert ledger.snapshots == {"ann-1": snapshot_id}
        assert until == pytest.approx(stall.clock.now() + 5 * DAY_S, abs=60)
        await operations.do(operation(WorkerVerb.RESTORE))
        assert ledger.volumes["ann-1-7"] in stall.disks.files
        await operations.do(operation(WorkerVerb.FORK))
        assert list(ledger.snapshot_promises.broken(worker.store, stall.clock.now())) == []
        await worker.delete_volume(volume.id)
        ledger.volume_promises.created(VolumeId(volume.id), 1)
        ledger.volume_promises.let_go(VolumeId(volume.id), ledger.volume_promises.ask_end(VolumeId(volume.id)))
        await operations.do(operation(WorkerVerb.TAKE_BACK))
        assert list(ledger.volume_promises.broken(worker.store)) == []


async def test_unanswered_snapshot_is_not_promised(tmp_path: Path) -> None:
    stall = MemoryWorld(tmp_path)
    ledger = WorkerLedger(stall.clock, Trace(False), lambda: None)

    async def lost(_: WorkerOperation, act: object) -> None:
        return None

    operations = SnapshotOperations(ledger, stall.clock, lost)
    await operations.do(operation(WorkerVerb.SNAPSHOT))
    ledger.volumes["ann-1"] = VolumeId("vol_0000000000000001")
    ledger.snapshots["ann-1"] = SnapshotId("vs_0000000000000001")
    for verb in (WorkerVerb.SNAPSHOT, WorkerVerb.RESTORE, WorkerVerb.FORK, WorkerVerb.TAKE_BACK):
        await operations.do(operation(verb))
    assert ledger.snapshot_promises.kept_until == {}
    assert list(ledger.volumes) == ["ann-1"]


def said(outcome: WorkerOutcome) -> list[str]:
    return [line.text for line in outcome.lines if line.kind is Speaker.CLIENT]


def test_every_kind_of_call_is_made_and_answered() -> None:
    verbs = [
        WorkerVerb.STOP,
        WorkerVerb.START,
        WorkerVerb.RESTART,
        WorkerVerb.UPDATE,
        WorkerVerb.METADATA,
        WorkerVerb.LEASE,
        WorkerVerb.RELEASE,
        WorkerVerb.LOOK,
    ]
    calls = [call(verb, 10.0 * number, amount=60) for number, verb in enumerate(verbs, 1)]
    calls += [call(WorkerVerb.WAIT, 100, word="started", amount=20), call(WorkerVerb.DESTROY, 110, word="force")]
    outcome = play(plan(order(), *calls))
    assert outcome.found == () and outcome.operations == 11
    assert [text.split()[3] for text in said(outcome) if " is told" in text] == ["create", *verbs, "wait", "destroy"]


def test_a_call_on_a_machine_that_was_never_made_is_not_made() -> None:
    assert play(plan(call(WorkerVerb.STOP, 1, label="nobody-1"))).operations == 0


def test_a_refusal_is_an_answer() -> None:
    outcome = play(
        plan(
            order(word="not launched"),
            call(WorkerVerb.RELEASE, 5),
            call(WorkerVerb.DESTROY, 6),
            call(WorkerVerb.START, 20),
        )
    )
    assert outcome.operations == 3 and "refused start" in said(outcome)[-1] and outcome.found == ()


async def test_a_call_waits_for_a_daemon_and_hears_its_answer(tmp_path: Path) -> None:
    stall, gate = MemoryWorld(tmp_path), ClientGate()
    heard: list[str] = []

    async def ask() -> None:
        await gate.call(lambda worker: worker.app("early"))
        heard.append("done")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await stall.clock.sleep(1)
        assert heard == []
        async with stall.open() as worker:
            gate.open(worker)
            await stall.clock.sleep(1)
            assert heard == ["done"]
            gate.shut()


async def test_a_refusal_reaches_the_caller(worker: SimWorker) -> None:
    gate = ClientGate()
    gate.open(worker)
    with pytest.raises(NotFound):
        await gate.call(lambda there: there.get("none"))


async def test_a_call_under_way_is_lost_with_the_daemon(stall: MemoryWorld) -> None:
    gate = ClientGate()
    lost: list[float] = []

    async def ask() -> None:
        try:
            await gate.call(lambda worker: stall.clock.sleep(100))
        except SimConnectionLost:
            lost.append(stall.clock.monotonic())

    async with anyio.create_task_group() as tasks:
        async with stall.open() as worker:
            gate.open(worker)
            tasks.start_soon(ask)
            await stall.clock.sleep(1)
        gate.shut()
    assert len(lost) == 1


async def test_finding_is_said_once_and_raises_the_alarm() -> None:
    rung: list[str] = []
    trace = Trace()
    ledger = WorkerLedger(LoopClock(), trace, lambda: rung.append("rung"))
    ledger.find([])
    assert not rung
    violation = Violation(Invariant.KEPT, "m", "is forgotten")
    ledger.find([violation, violation])
    assert ledger.found == [violation] and [line.kind for line in trace.lines] == [Speaker.FOUND] and rung


async def test_the_store_is_looked_at_only_when_something_was_touched() -> None:
    ledger, store = WorkerLedger(LoopClock(), Trace(), lambda: None), MemoryStore()
    await store.write(lambda tx: tx.put(USED, "all", Resources(shared_cpus=1)))
    ledger.check(store)
    assert ledger.found == []
    ledger.touched.add(MachineId("all"))
    ledger.check(store)
    assert [violation.invariant for violation in ledger.found] == [Invariant.CAPACITY]
