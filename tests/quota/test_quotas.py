from pathlib import Path
from typing import Any

import anyio
import pytest

from hawker.api.contract.app import ASSIGN_IP, CREATE_APP, AppParams, AssignIpRequest, CreateAppRequest
from hawker.errors import QuotaExceeded, Unprocessable
from hawker.ids import AppName
from hawker.machine import State
from hawker.quota.quotas import EVERY_ORG, MOST_QUOTAS, UsageCount
from hawker.record.org import QUOTAS, Amount, QuotaRecord, QuotaRule
from hawker.record.volume import SNAPSHOTS
from hawker.sim.node.sim_worker import APP, SimWorker, config_of
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio

COUNT = UsageCount(machine_disk_mib=256, logs_mib=8)


def test_a_machine_has_what_its_config_asks_for() -> None:
    size = COUNT.of_machine(config_of(guest={"cpus": 4, "memory_mb": 1024}))
    assert size == Amount(machines=1, cpus=4, memory_mb=1024, disk_mb=264)


def test_a_root_filesystem_counts_with_its_own_size() -> None:
    assert COUNT.of_machine(config_of(rootfs={"size_gb": 500})).disk_mb == 500 * 1024 + 8


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


class LookedAt:
    """A snapshot of the app `stall` that counts who asks for its app."""

    size = 1
    looks = 0

    @property
    def app(self) -> AppName:
        self.looks += 1
        return AppName(APP)


async def test_a_snapshot_is_looked_at_as_often_however_many_apps_an_org_has(
    worker: SimWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        await worker.app(f"other-{number}")
    scan, snapshots = worker.store.scan, [LookedAt(), LookedAt()]

    def scanned(bucket: Any, *at: Any, **options: Any) -> Any:
        return enumerate(snapshots) if bucket is SNAPSHOTS else scan(bucket, *at, **options)

    monkeypatch.setattr(worker.store, "scan", scanned)
    assert COUNT.of_org(worker.store, "personal").snapshots == 2
    assert max(each.looks for each in snapshots) <= 2


SKIP = {"skip_launch": True}


async def limit(worker: SimWorker, subject: str, **limits: int) -> None:
    await worker.parts.quotas.put(subject, QuotaRule(**limits), "ann")


async def test_machines_count_also_while_they_are_stopped(worker: SimWorker) -> None:
    await limit(worker, f"app/{APP}", machines=2)
    for _ in range(2):
        await worker.create(order=SKIP)
    with pytest.raises(QuotaExceeded) as refused:
        await worker.create(order=SKIP)
    assert refused.value.shortfall == {"machines": 1}
    expected = (
        f"the quota of app '{APP}' does not allow this: machines: has 2, asked for 1 more, may have 2, 1 too many"
    )
    assert str(refused.value) == expected


async def test_orders_that_come_at_once_are_within_the_quota(worker: SimWorker) -> None:
    await limit(worker, "org/personal", machines=3)
    made = []

    async def order() -> None:
        try:
            made.append(await worker.create(order=SKIP))
        except QuotaExceeded:
            return

    async with anyio.create_task_group() as tasks:
        for _ in range(12):
            tasks.start_soon(order)
    assert len(made) == 3


async def test_room_that_is_given_back_counts_no_more(worker: SimWorker) -> None:
    await limit(worker, f"app/{APP}", machines=1)
    one = await worker.stopped()
    await worker.destroy(one, force=True)
    await worker.reaches(one, State.DESTROYED)
    await worker.create(order=SKIP)


async def test_an_update_may_not_grow_a_machine_over_the_quota_and_may_shrink_it(worker: SimWorker) -> None:
    one = await worker.stopped(guest={"memory_mb": 512})
    await limit(worker, f"app/{APP}", memory_mb=256)
    with pytest.raises(QuotaExceeded, match="memory_mb: has 512, asked for 256 more, may have 256, 512 too many"):
        await worker.update(one, guest={"memory_mb": 768})
    await worker.update(one, order=SKIP, guest={"memory_mb": 256})


async def test_an_update_may_not_grow_a_root_filesystem_over_the_quota(worker: SimWorker) -> None:
    one = await worker.stopped()
    await limit(worker, f"app/{APP}", disk_mb=4096)
    with pytest.raises(QuotaExceeded, match="disk_mb"):
        await worker.update(one, order=SKIP, rootfs={"size_gb": 5})
    with pytest.raises(QuotaExceeded, match="disk_mb"):
        await worker.create(order=SKIP, rootfs={"size_gb": 5})
    await worker.update(one, order=SKIP, rootfs={"size_gb": 1})


async def test_volumes_snapshots_and_addresses_count(worker: SimWorker) -> None:
    await limit(worker, f"app/{APP}", volumes=1, disk_mb=2048, snapshots=1, addresses=1)
    volume = await worker.volume("data", size_gb=1)
    with pytest.raises(QuotaExceeded, match="volumes"):
        await worker.volume("more", size_gb=1)
    with pytest.raises(QuotaExceeded, match="disk_mb: has 1024, asked for 2048 more"):
        await worker.extend_volume(volume.id, 3)
    await worker.at_rest()
    await worker.snapshot(volume.id)
    await worker.at_rest()
    with pytest.raises(QuotaExceeded, match="snapshots"):
        await worker.snapshot(volume.id)
    request = AssignIpRequest(type="shared_v4")
    for kind, error in (("shared_v4", None), ("private_v6", QuotaExceeded)):
        request = AssignIpRequest(type=kind)
        if error is None:
            await worker.api.call(ASSIGN_IP, params=AppParams(app_name=APP), body=request)
            continue
        with pytest.raises(error, match="addresses"):
            await worker.api.call(ASSIGN_IP, params=AppParams(app_name=APP), body=request)


async def test_disk_has_root_filesystems_and_logs(tmp_path: Path) -> None:
    async with MemoryWorld(tmp_path, machine_disk_mib=100, logs_mib=8).open() as worker:
        await worker.app()
        await worker.create(order=SKIP)
        used = worker.parts.quotas.used(worker.store, f"app/{APP}")
        assert (used.machines, used.disk_mb >= 108) == (1, True)


async def test_every_org_but_the_operators_has_the_common_quota(worker: SimWorker) -> None:
    await limit(worker, EVERY_ORG, machines=1)
    await worker.api.call(CREATE_APP, body=CreateAppRequest(name="theirs", org_slug="acme"))
    for _ in range(2):
        await worker.create(order=SKIP)
    await worker.create(app="theirs", order=SKIP)
    with pytest.raises(QuotaExceeded, match="the quota of org 'acme'"):
        await worker.create(app="theirs", order=SKIP)
    await limit(worker, "org/acme", machines=2)
    await worker.create(app="theirs", order=SKIP)
    quotas = worker.parts.quotas
    assert quotas.subjects(worker.store, ["acme", "personal"]) == ["org/acme"]
    assert quotas.subjects(worker.store, ["acme", "beta"]) == ["org/acme", "org/beta"]
    limited = ["org/acme", "org/beta", "org/personal", EVERY_ORG, f"app/{APP}"]
    assert [quotas.is_limited(worker.store, subject) for subject in limited] == [True, True, False, False, False]


async def test_counts_of_other_nodes(worker: SimWorker) -> None:
    quotas = worker.parts.quotas
    record = QuotaRecord(subject=f"app/{APP}", limits=QuotaRule(machines=3), at=1.0, by="far")
    quotas.learn({record.subject: record}, {record.subject: Amount(machines=2)})
    await worker.create(order=SKIP)
    with pytest.raises(QuotaExceeded, match="has 3"):
        await worker.create(order=SKIP)


async def test_of_two_nodes_words_the_newer_counts(worker: SimWorker) -> None:
    quotas = worker.parts.quotas
    await limit(worker, f"app/{APP}", machines=0)
    mine = worker.store.get(QUOTAS, f"app/{APP}")
    assert mine is not None
    older = QuotaRecord(subject=mine.subject, limits=QuotaRule(machines=9), at=mine.at - 1, by="far")
    quotas.learn({older.subject: older}, {})
    with pytest.raises(QuotaExceeded):
        await worker.create(order=SKIP)
    cleared = QuotaRecord(subject=mine.subject, limits=QuotaRule(), at=mine.at + 1, by="far")
    quotas.learn({cleared.subject: cleared}, {})
    await worker.create(order=SKIP)
    assert quotas.all(worker.store) == {}
    await limit(worker, f"app/{APP}", machines=1)
    assert quotas.all(worker.store)[mine.subject].at > cleared.at


async def test_a_subject_is_told_once_what_it_got_is_committed(worker: SimWorker) -> None:
    told: list[str] = []
    worker.parts.quotas.listen(told.append)
    await worker.create(order=SKIP)
    assert told == []
    await limit(worker, f"app/{APP}", machines=2)
    await worker.create(order=SKIP)
    with pytest.raises(QuotaExceeded):
        await worker.create(order=SKIP)
    assert told == [f"app/{APP}"]


@pytest.mark.parametrize("most", [-1, 1 << 54])
async def test_a_limit_is_a_number_that_can_be_counted_to(worker: SimWorker, most: int) -> None:
    with pytest.raises(Unprocessable, match="machines: a limit is 0 or more"):
        await limit(worker, "org/acme", machines=most)
    assert MOST_QUOTAS > 0
