import pytest

from hawker.fair.turns import NODE
from hawker.fsm import journal
from hawker.sim.node.sim_worker import SimWorker
from hawker.worker.run_owners import RunOwners

pytestmark = pytest.mark.anyio


async def test_work_of_a_machine_and_of_its_image_counts_for_its_organization(worker: SimWorker) -> None:
    await worker.started()
    store, owner_of = worker.parts.deps.store, RunOwners(worker.parts.deps.store)
    runs = [journal.find(store, view.run_id) for view in worker.parts.runner.list()]
    assert {run.resource.kind: owner_of(run) for run in runs if run} == {"machine": "personal", "image": "personal"}


async def test_work_on_what_is_gone_is_the_nodes_own(worker: SimWorker) -> None:
    machine_id = await worker.started()
    (create,) = worker.parts.runner.list(flow="create")
    store = worker.parts.deps.store
    run = journal.find(store, create.run_id)
    assert run is not None
    await worker.destroy(machine_id, force=True)
    await worker.at_rest()
    assert RunOwners(store)(run) == NODE
