import msgspec
import pytest

from hawker.fleet.quotas import USAGE, QuotaExchange, quota_sources
from hawker.fleet.rows import upsert
from hawker.ids import NodeId
from hawker.quota.quotas import Quotas
from hawker.record.org import QUOTAS, Amount, QuotaRule
from hawker.sim.node.sim_worker import APP, SimWorker
from tests.fleet.desk import Desk

pytestmark = pytest.mark.anyio

FAR, OTHER = NodeId("0000000b"), NodeId("0000000c")
SUBJECT = f"app/{APP}"


def exchange(worker: SimWorker, desk: Desk, noted: list[tuple[str, str]]) -> QuotaExchange:
    parts = worker.parts
    return QuotaExchange(
        parts.node.id, parts.deps.store, parts.deps.clock, parts.quotas, desk, lambda *key: noted.append(key)
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
    sources = {source.name: source for source in quota_sources(worker.parts.node.id, worker.store, quotas)}
    await worker.create(order={"skip_launch": True})
    assert list(sources[USAGE].every()) == [] and list(sources[USAGE].rows(SUBJECT)) == []
    await quotas.put(SUBJECT, QuotaRule(machines=3), "ann")
    (usage,), (quota,) = sources[USAGE].rows(SUBJECT), sources[QUOTAS.name].rows(SUBJECT)
    desk = Desk()
    for row in (usage, quota):
        statement = upsert(row)
        desk.run(statement.query, *statement.params)
    assert msgspec.json.decode(str(usage.values[0]), type=Amount).machines == 1
