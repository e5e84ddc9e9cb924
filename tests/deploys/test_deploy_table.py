"""How many deploys of an app are kept."""

import pytest

from hawker.deploys.deploy_table import KEPT, DeployTable
from hawker.record.deploy import DEPLOY_SLOTS, DEPLOYS, DeployLimits, DeployRecord, SlotKind, SlotRecord
from hawker.sim.node.sim_worker import APP, SimWorker
from tests.simulated_worker import worker

__all__ = ["worker"]  # nobody works on these deploys, so what holds of deploys does not hold of them
pytestmark = pytest.mark.anyio


async def test_the_newest_deploys_are_kept_with_their_slots(worker: SimWorker) -> None:
    table = DeployTable(worker.store, worker.parts.deps.clock)
    slot = SlotRecord(number=0, kind=SlotKind.CREATE, group="app", region=None, at=0.0)
    for version in range(1, KEPT + 3):
        record = DeployRecord(version=version, strategy="rolling", limits=DeployLimits(), began_at=0.0)
        await worker.store.write(lambda tx, record=record: table.insert(tx, APP, record, [slot]))  # type: ignore[misc]
    assert [record.version for _, record in worker.store.scan(DEPLOYS)] == list(range(3, KEPT + 3))
    assert worker.store.count(DEPLOY_SLOTS) == KEPT


async def test_each_change_of_a_slot_raises_the_deploys_serial(worker: SimWorker) -> None:
    table = DeployTable(worker.store, worker.parts.deps.clock)
    record = DeployRecord(version=1, strategy="rolling", limits=DeployLimits(), began_at=0.0)
    slot = SlotRecord(number=0, kind=SlotKind.CREATE, group="app", region=None, at=0.0)
    await worker.store.write(lambda tx: table.insert(tx, APP, record, [slot]))
    await worker.store.write(lambda tx: table.change_slot(tx, APP, 1, 0, text="now"))
    assert table.find(worker.store, APP, 1).serial == 2
    await table.until(APP, 1, after=1, within_s=30)
