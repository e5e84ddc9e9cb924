import pytest

from hawker.config import validate
from hawker.machine import State
from hawker.proof import invariants
from hawker.sim.node.kit import FEATURES
from hawker.sim.node.sim_worker import SimWorker, config_of
from hawker.sim.node.world import MemoryWorld
from hawker.sim.worker.containers import WORDS, containers, containers_for

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


async def test_they_come_in_their_order_and_end_with_the_last(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(containers=containers(), restart={"policy": "no"})
    record = worker.record(machine_id)
    await stall.clock.sleep(60)
    shown = dict(worker.parts.tending.containers(record))
    assert shown == {"web": "running", "db": "running", "init": "exited", "job": "exited"}
    assert invariants.at_rest(worker.store, stall.seen()) == []
    for index in (0, 1):
        stall.host.end_process(record.id, index, 0)
    await worker.reaches(machine_id, State.STOPPED)
    assert (await worker.exits(machine_id))[0].request is not None
    assert invariants.at_rest(worker.store, stall.seen()) == []
