import pytest

from hawker.fleet.publish import Publisher
from hawker.fleet.rows import KEYS, NodeFacts
from hawker.fleet.sources import follow, worker_sources
from hawker.record.machine import MACHINES
from hawker.record.node import NODE
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.up.fleet_wiring import published_by
from tests.fleet.desk import Desk

pytestmark = pytest.mark.anyio

SAID = NodeFacts(api="http://a", version="1", drivers=("fake",), labels={}, started_at=1.0)


async def test_every_source_has_rows_of_the_worker(worker: SimWorker) -> None:
    machine = await worker.started(services=[{"protocol": "tcp", "internal_port": 80}])
    await worker.parts.deps.store.write(lambda tx: tx.put(NODE, "self", worker.parts.node))
    rows = [
        row
        for source in worker_sources(published_by(worker.parts), SAID)
        for key in source.every()
        for row in source.rows(key)
    ]
    assert {row.at.table for row in rows} <= KEYS.keys()
    assert {"nodes", "apps", "machines", "services", "capacity", "images"} <= {row.at.table for row in rows}
    (found,) = [row for row in rows if row.at.table == "machines"]
    assert found.at.key == (worker.parts.node.id, machine) and "started" in found.values


async def test_a_machine_that_is_gone_has_no_rows(worker: SimWorker) -> None:
    for source in worker_sources(published_by(worker.parts), SAID):
        if not source.looked_at:
            assert list(source.rows("nothing")) == []


async def test_changes_of_the_store_and_of_health_are_noted(worker: SimWorker, stall: MemoryWorld) -> None:
    noted: list[tuple[str, str]] = []
    publisher = Publisher(
        Desk(), worker.parts.deps.clock, worker.parts.node.id, worker_sources(published_by(worker.parts), SAID)
    )
    publisher.note = lambda source, key: noted.append((source, key))  # type: ignore[method-assign]
    follow(publisher, stall.store, worker.parts.changes.listen)
    machine = await worker.started()
    assert ("health", machine) in noted
    record = worker.record(machine)
    await stall.store.write(lambda tx: tx.put(MACHINES, machine, record))
    assert noted[-1] == ("machines", machine)
