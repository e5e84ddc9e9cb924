import pytest

from hawker.errors import LeaseHeld
from hawker.machine import State
from hawker.sim.node.sim_worker import SimWorker

pytestmark = pytest.mark.anyio


async def test_a_client_orders_waits_and_looks(worker: SimWorker) -> None:
    machine_id = await worker.started(env={"A": "1"})
    assert worker.record(machine_id).config.env == {"A": "1"}
    assert worker.events(machine_id) == ["launch/created", "start/started"]
    await worker.stop(machine_id)
    await worker.at_rest()
    assert (await worker.reaches(machine_id, State.STOPPED)).state is State.STOPPED
    assert [record.id for record in worker.machines()] == [machine_id] and worker.under_way(machine_id) == []


async def test_a_lease_is_taken_and_given_back(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    lease = await worker.lease(machine_id, 60)
    with pytest.raises(LeaseHeld):
        await worker.start(machine_id)
    await worker.release(machine_id, lease.nonce)
    await worker.start(machine_id)


async def test_not_reaching_a_state_says_what_is_there(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    with pytest.raises(AssertionError, match="stopped"):
        await worker.reaches(machine_id, State.STARTED)
