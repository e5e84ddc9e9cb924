import pytest

from hawker.ids import AppName
from hawker.quota.usage import UsageCount
from hawker.record.quota import Amount
from hawker.sim.node.sim_worker import APP, SimWorker, config_of

pytestmark = pytest.mark.anyio

COUNT = UsageCount(machine_disk_mib=256, logs_mib=8)


def test_a_machine_has_what_its_config_asks_for() -> None:
    size = COUNT.of_machine(config_of(guest={"cpus": 4, "memory_mb": 1024}))
    assert size == Amount(machines=1, cpus=4, memory_mb=1024, disk_mb=264)


async def test_an_image_counts_once_however_many_machines_use_it(worker: SimWorker) -> None:
    for _ in range(3):
        await worker.create(order={"skip_launch": True})
    used = COUNT.of_app(worker.store, AppName(APP))
    image = worker.record((await worker.create(order={"skip_launch": True})).id).image
    assert used.machines == 3 and used.disk_mb == 3 * 264 + -(-image.size_bytes // (1 << 20))


async def test_an_org_has_what_its_apps_have(worker: SimWorker) -> None:
    await worker.app("other")
    await worker.create(order={"skip_launch": True})
    await worker.create(app="other", order={"skip_launch": True})
    assert COUNT.of_org(worker.store, "personal").machines == 2
    assert COUNT.of_org(worker.store, "acme") == Amount()
