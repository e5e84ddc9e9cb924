from typing import Any

import msgspec
import pytest

from hawker.fleet.quotas import USAGE, QuotaExchange, quota_sources
from hawker.fleet.rows import upsert
from hawker.ids import AppName, NodeId
from hawker.quota.quotas import EVERY_ORG, Quotas
from hawker.quota.tally import IN_TURN, UsageTally
from hawker.record.app import APPS, AppRecord
from hawker.record.org import QUOTAS, Amount, QuotaRule
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.store.contract import Bucket, Tx
from hawker.store.memory_store import MemoryStore
from tests.fleet.desk import Desk

pytestmark = pytest.mark.anyio

FAR, OTHER = NodeId("0000000b"), NodeId("0000000c")
SUBJECT = f"app/{APP}"


def observed(worker: SimWorker) -> MemoryStore:
    assert isinstance(worker.store, MemoryStore)
    return worker.store


def exchange(worker: SimWorker, desk: Desk, noted: list[tuple[str, str]]) -> QuotaExchange:
    parts, tally = worker.parts, UsageTally(observed(worker), worker.parts.quotas.count)
    return QuotaExchange(
        parts.node.id, worker.store, parts.deps.clock, parts.quotas, tally, desk, lambda *key: noted.append(key)
    )


def put(desk: Desk, node: NodeId, machines: int, at: float) -> None:
    limits = msgspec.json.encode(QuotaRule(machines=machines)).decode()
    desk.run("INSERT INTO quotas VALUES (?, ?, ?, ?, 'ann')", node, SUBJECT, limits, at)


async def test_the_newest_quota_of_the_fleet_and_all_that_others_have_is_learned(worker: SimWorker) -> None:
    desk, quotas = Desk(), worker.parts.quotas
    put(desk, FAR, 5, 1.0)
    put(desk, OTHER, 7, 2.0)
    put(desk, worker.parts.node.id, 9, 3.0)  # this node's own row is its store's
    for node in (FAR, OTHER, worker.parts.node.id):
        amount = msgspec.json.encode(Amount(machines=2, cpus=1)).decode()
        desk.run("INSERT INTO quota_usage VALUES (?, ?, ?)", node, SUBJECT, amount)
    await exchange(worker, desk, []).look()
    assert quotas.all(worker.store)[SUBJECT].limits.machines == 7
    assert quotas.elsewhere(SUBJECT) == Amount(machines=4, cpus=2)


async def test_rows_that_no_node_writes_do_not_end_the_one_that_reads_them(worker: SimWorker) -> None:
    desk, quotas = Desk(), worker.parts.quotas
    put(desk, FAR, 5, 1.0)
    desk.run("INSERT INTO quotas VALUES (?, ?, 'no json', 9.0, 'eve')", OTHER, SUBJECT)
    desk.run("INSERT INTO quotas VALUES (?, ?, '{}', 'no time', 'eve')", NodeId("0000000d"), SUBJECT)
    desk.run("INSERT INTO quota_usage VALUES (?, ?, '[1]')", OTHER, SUBJECT)
    await exchange(worker, desk, []).look()
    assert quotas.all(worker.store)[SUBJECT].limits.machines == 5
    assert quotas.elsewhere(SUBJECT) == Amount()


async def test_a_subject_s_gains_and_losses_are_told_anew(worker: SimWorker) -> None:
    noted: list[tuple[str, str]] = []
    look = exchange(worker, Desk(), noted).look
    await worker.parts.quotas.put(SUBJECT, QuotaRule(machines=3), "ann")
    await look()
    assert noted == [(USAGE, SUBJECT)]
    await worker.create(order={"skip_launch": True})
    assert noted[1:] == [(USAGE, SUBJECT)]
    await look()
    await look()
    assert len(noted) == 3


async def test_rows_say_what_was_set_here_and_what_its_subjects_have(worker: SimWorker) -> None:
    quotas: Quotas = worker.parts.quotas
    told = quota_sources(worker.parts.node.id, worker.store, quotas, UsageTally(observed(worker), quotas.count))
    sources = {source.name: source for source in told}
    await worker.create(order={"skip_launch": True})
    assert list(sources[USAGE].every()) == [] and list(sources[USAGE].rows(SUBJECT)) == []
    await quotas.put(SUBJECT, QuotaRule(machines=3), "ann")
    (usage,), (quota,) = sources[USAGE].rows(SUBJECT), sources[QUOTAS.name].rows(SUBJECT)
    desk = Desk()
    for row in (usage, quota):
        statement = upsert(row)
        desk.run(statement.query, *statement.params)
    assert msgspec.json.decode(str(usage.values[0]), type=Amount).machines == 1


async def test_a_look_reads_no_app_and_no_snapshot_where_nothing_was_written(
    worker: SimWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(tx: Tx) -> None:
        for number in range(200):
            name = AppName(f"app-{number}")
            record = AppRecord(
                id=f"i{number}",
                number=number,
                name=name,
                org=f"org-{number % 40}",
                network="default",
                network_id=number,
                created_at=1.0,
            )
            tx.put(APPS, name, record)

    await worker.store.write(fill)
    await worker.parts.quotas.put(EVERY_ORG, QuotaRule(machines=3), "ann")
    look = exchange(worker, Desk(), []).look
    await look()
    scanned: list[str] = []
    scan = worker.store.scan

    def watched(bucket: Bucket[Any], *args: Any, **options: Any) -> Any:
        scanned.append(bucket.name)
        return scan(bucket, *args, **options)

    monkeypatch.setattr(worker.store, "scan", watched)
    await look()
    assert not {"apps", "snapshots"} & set(scanned) and len(scanned) <= 2 * IN_TURN + 2
