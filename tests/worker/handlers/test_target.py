import pytest

from hawker.errors import NotFound
from hawker.sim.node.sim_worker import SimWorker, params
from hawker.worker.handlers.target import MachineFinder, target_of

pytestmark = pytest.mark.anyio


async def test_the_app_is_missed_before_the_machine(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    machines = MachineFinder(worker.parts.deps.store, worker.parts.deps.table, worker.parts.apps)
    assert machines.find(params(machine_id)).id == machine_id
    with pytest.raises(NotFound, match="machine not found"):
        machines.find(params("00000000000000"))
    with pytest.raises(NotFound, match="app not found"):
        machines.find(params(machine_id, "nosuch"))


def test_a_target_carries_the_nonce() -> None:
    assert target_of(params("1"), "nonce").nonce == "nonce"
