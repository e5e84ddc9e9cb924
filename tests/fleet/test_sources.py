import pytest

from hawker.fleet.publish import Publisher
from hawker.fleet.rows import KEYS, Self
from hawker.fleet.sources import follow, worker_sources
from hawker.fleet.watch import WatchedStore
from hawker.record.machine import MACHINES
from hawker.record.node import NODE
from hawker.sim.node.sim_worker import SimWorker
from tests.fleet.desk import Desk

pytestmark = pytest.mark.anyio

SAID = Self(api="http://a", version="1", drivers=("fake",), labels={}, started_at=1.0)


async def test_every_source_has_rows_of_the_worker(worker: SimWorker) -> None:
    machine = await worker.started(services=[{"protocol": "tcp", "internal_port": 80}])
    await worker.parts.deps.store.write(lambda tx: tx.put(NODE, "self", worker.parts.node))
    rows = [row for source in worker_sources(worker.parts, SAID) for key in source.every() for row in source.rows(key)]
    assert {row.at.table for row in rows} <= KEYS.keys()
    assert {"nodes", "apps", "machines", "services", "capacity", "images"} <= {row.at.table for row in rows}
    (found,) = [row for row in rows if row.at.table == "machines"]
    assert found.at.key == (worker.parts.node.id, machine) and "started" in found.values


async def test_what_is_gone_has_no_rows(worker: SimWorker) -> None:
    for source in worker_sources(worker.parts, SAID):
        if not source.looked_at:
            assert list(source.rows("nothing")) == []


async def test_changes_of_the_store_and_of_health_are_noted(worker: SimWorker) -> None:
    store, noted = WatchedStore(worker.parts.deps.store), []
    publisher = Publisher(Desk(), worker.parts.deps.clock, worker.parts.node.id, worker_sources(worker.parts, SAID))
    publisher.note = lambda source, key: noted.append((source, key))  # type: ignore[method-assign]
    follow(publisher, store, worker.parts)
    machine = await worker.started()
    assert ("health", machine) in noted
    record = worker.record(machine)
    await store.write(lambda tx: tx.put(MACHINES, machine, record))
    assert noted[-1] == ("machines", machine)
