import pytest

from hawker.api.contract.exec import MACHINE_STATS
from hawker.api.contract.node import MACHINE_METRICS
from hawker.errors import WrongState
from hawker.sim.node.sim_worker import SimWorker, params

pytestmark = pytest.mark.anyio


async def test_a_started_machine_tells_what_it_uses(worker: SimWorker) -> None:
    machine_id = await worker.started()
    stats = await worker.api.call(MACHINE_STATS, params=params(machine_id))
    assert (stats.pids, stats.memory_bytes) == (2, 1 << 20)
    assert stats.disk_read_bytes is None and stats.network_sent_bytes is None


async def test_a_stopped_machine_uses_nothing(worker: SimWorker) -> None:
    machine_id = await worker.started()
    await worker.stop(machine_id)
    with pytest.raises(WrongState):
        await worker.api.call(MACHINE_STATS, params=params(machine_id))


async def test_usage_of_started_machines_is_on_the_machines_page(worker: SimWorker) -> None:
    machine_id, stopped = await worker.started(), await worker.started()
    await worker.stop(stopped)
    page = await worker.api.call(MACHINE_METRICS)
    lines = [line for line in page.splitlines() if line.startswith("hawker_machine_cpu_seconds_total{")]
    assert len(lines) == 1 and f'instance="{machine_id}"' in lines[0]
