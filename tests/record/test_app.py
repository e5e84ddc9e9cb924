import pytest

from hawker.record.app import org_of
from hawker.sim.node.sim_worker import SimWorker

pytestmark = pytest.mark.anyio


async def test_an_app_belongs_to_its_organization_and_an_unknown_one_to_itself(worker: SimWorker) -> None:
    await worker.started()
    store = worker.parts.deps.store
    (record,) = worker.parts.apps.list(None)
    assert org_of(store, record.name) == record.org == "personal"
    assert org_of(store, "unknown") == "unknown"
