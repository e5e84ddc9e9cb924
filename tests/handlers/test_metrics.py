"""What Prometheus reads of what the node has now."""

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from hawker.api.contract.node import METRICS
from hawker.archive.archive import Archive
from hawker.archive.directory import DirectoryBackend
from hawker.ids import MachineId
from hawker.machine import State
from hawker.record.machine import MACHINES
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import ROOM, MemoryWorld
from hawker.store.contract import Tx
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
MIB = 1 << 20


async def _read(worker: SimWorker) -> dict[tuple[str, ...], float]:
    """Values by name and labels' values."""
    text = await worker.api.call(METRICS)
    return {
        (sample.name.removeprefix("hawker_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_machines_are_counted_by_state_and_states_that_none_is_in_are_nothing(worker: SimWorker) -> None:
    await worker.started()
    await worker.started()
    gone = await worker.stopped()
    found = await _read(worker)
    assert (found["machines", "started"], found["machines", "stopped"]) == (2, 1)
    await worker.destroy(gone)
    await worker.at_rest()
    assert (await _read(worker))["machines", "stopped"] == 0
    assert {name[1] for name in await _read(worker) if name[0] == "machines"} == {state.value for state in State}


async def test_thousands_are_counted(worker: SimWorker) -> None:
    record = worker.record(await worker.started())

    def multiply(tx: Tx) -> None:
        for number in range(1234):
            tx.put(MACHINES, f"{number:014x}", replace(record, id=MachineId(f"{number:014x}")))

    await worker.store.write(multiply)
    assert (await _read(worker))["machines", "started"] == 1235


async def test_histories_that_wait_for_the_archive_are_counted(stall: MemoryWorld) -> None:
    for archive, count in (
        (None, 0),
        (Archive(DirectoryBackend(stall.directory / "kept"), stall.directory / "way"), 1),
    ):
        stall.archive = archive
        async with stall.open() as worker:
            if archive is None:
                await worker.app()
                gone = await worker.stopped()
                await worker.destroy(gone)
                await worker.reaches(gone, State.DESTROYED)
            assert (await _read(worker))["histories_waiting",] == count
            await stall.clock.sleep(2 * stall.settings.reconcile_every_s)
            assert (await _read(worker))["histories_waiting",] == 0


async def test_capacity_is_in_bytes_and_cpus_by_kind(worker: SimWorker) -> None:
    await worker.started(guest={"cpu_kind": "performance", "cpus": 1, "memory_mb": 2048 // 2})
    found = await _read(worker)
    assert found["capacity_cpus", "performance"] == ROOM.cpus
    assert found["capacity_cpus", "shared"] == ROOM.cpus * ROOM.shared_ratio
    assert (found["used_cpus", "performance"], found["used_cpus", "shared"]) == (1, 0)
    assert (found["used_memory_bytes",], found["capacity_memory_bytes",]) == (1024 * MIB, ROOM.memory_mib * MIB)
    assert found["capacity_disk_bytes",] == ROOM.disk_mib * MIB > found["used_disk_bytes",] > 0


async def test_open_runs_are_counted_by_state_and_queues_by_name(stall: MemoryWorld) -> None:
    let_go = stall.hold()
    async with stall.open() as worker:
        await worker.app()
        await worker.create()
        await eventually(lambda: worker.parts.runner.queues()[0].active == 1)
        found = await _read(worker)
        assert (found["runs_open", "running"], found["runs_open", "waiting"]) == (1, 1)
        assert (found["queue_limit", "pulls"], found["queue_active", "pulls"]) == (3, 1)
        assert found["queue_waiting", "pulls"] == 0
        let_go.set()
        await worker.at_rest()
        assert (await _read(worker))["runs_open", "running"] == 0
