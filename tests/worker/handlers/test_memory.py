"""What the calls answer is in tests/worker/test_memory.py; here is what they do not take."""

import pytest

from hawker.api.contract.memory import GET_MEMORY, RECLAIM_MEMORY, SET_MEMORY, ReclaimRequest, SetMemoryRequest
from hawker.errors import NotFound
from hawker.sim.node.sim_worker import SimWorker, params

pytestmark = pytest.mark.anyio
NOBODY = "00000000000bad"


async def test_a_machine_that_is_not_there_has_no_memory(worker: SimWorker) -> None:
    with pytest.raises(NotFound, match="machine not found"):
        await worker.api.call(GET_MEMORY, params=params(NOBODY))
    with pytest.raises(NotFound, match="machine not found"):
        await worker.api.call(SET_MEMORY, params=params(NOBODY), body=SetMemoryRequest(limit_mb=64))
    with pytest.raises(NotFound, match="machine not found"):
        await worker.api.call(RECLAIM_MEMORY, params=params(NOBODY), body=ReclaimRequest(amount_mb=1))


async def test_a_machine_of_another_app_is_not_there_either(worker: SimWorker) -> None:
    await worker.app("other")
    machine_id = await worker.started()
    with pytest.raises(NotFound, match="machine not found"):
        await worker.api.call(GET_MEMORY, params=params(machine_id, "other"))
