from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from hawker.catalog.contract import Statement
from hawker.errors import BadRequest, Fault, Unavailable
from hawker.fleet.certificates import FleetCertificates
from hawker.fleet.publish import (
    LOOK_EVERY_S,
    ROWS_AT_ONCE,
    PublishedState,
    Publisher,
    Source,
    follow,
    worker_sources,
)
from hawker.fleet.quotas import quota_sources
from hawker.fleet.registry_logins import login_source
from hawker.fleet.rows import KEYS, NodeFacts, Row, image_row
from hawker.ids import AppName
from hawker.record.app import APPS, CERTIFICATES, IPS, WIREGUARD_PEERS, AppRecord
from hawker.record.machine import MACHINES
from hawker.record.node import NODE, REVOKED, TAKEOVERS
from hawker.record.org import QUOTAS, REGISTRY_LOGINS
from hawker.record.volume import VOLUMES
from hawker.sim.harness.loop import LoopClock
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.store.contract import Bucket
from hawker.store.memory_store import MemoryStore
from hawker.up.fleet_front import revocations_of
from hawker.up.fleet_wiring import published_by
from tests.fleet.desk import ME, Desk, Narrow
from tests.worker.hourglass import in_virtual_time

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


anyio_backend = in_virtual_time


class Shelf:
    """What there is to be told: digests by key."""

    def __init__(self, **digests: str) -> None:
        self.digests = digests

    def source(self, name: str = "shelf", *, calm: bool = False, looked_at: bool = False) -> Source:
        return Source(name=name, every=lambda: list(self.digests), rows=self._rows, calm=calm, looked_at=looked_at)

    def _rows(self, key: str) -> Iterable[Row]:
        return (image_row(ME, digest) for digest in self.digests.get(key, "").split())


@asynccontextmanager
async def publishing(desk: Desk, *sources: Source, compare_every_s: float | None = None) -> AsyncIterator[Publisher]:
    publisher = Publisher(desk, LoopClock(), ME, sources, compare_every_s=compare_every_s)
    async with anyio.create_task_group() as tasks:
        await tasks.start(publisher.serve)
        yield publisher
        tasks.cancel_scope.cancel()


def images(desk: Desk) -> list[str]:
    return [str(row[0]) for row in desk.rows("SELECT digest FROM images WHERE node = '0000000a' ORDER BY digest")]


async def test_all_is_compared_at_the_beginning() -> None:
    desk, shelf = Desk(), Shelf(a="a1 a2", b="b1")
    desk.run("INSERT INTO images VALUES ('0000000a', 'a1'), ('0000000a', 'stray'), ('0000000b', 'others')")
    async with publishing(desk, shelf.source()) as publisher:
        assert await publisher.settled(timeout_s=5) is not None
        assert images(desk) == ["a1", "a2", "b1"]
        assert desk.rows("SELECT digest FROM images WHERE node = '0000000b'") == [("others",)]
        assert desk.told == [["INSERT INTO images"] * 2, ["DELETE FROM images WHERE node = ? AND digest = ?"]]


async def test_an_unchanged_row_is_not_told_again() -> None:
    desk, shelf = Desk(), Shelf(a="a1")
    async with publishing(desk, shelf.source()) as publisher:
        await publisher.settled(timeout_s=5)
    desk.told.clear()
    async with publishing(desk, shelf.source()) as publisher:
        await publisher.settled(timeout_s=5)
        publisher.note("shelf", "a")
        await publisher.settled(timeout_s=5)
    assert not desk.told


async def test_a_change_is_told_and_what_is_gone_goes() -> None:
    desk, shelf = Desk(), Shelf(a="a1 a2", b="b1")
    async with publishing(desk, shelf.source()) as publisher:
        shelf.digests["a"] = "a2 a3"
        del shelf.digests["b"]
        publisher.note("shelf", "a")
        publisher.note("shelf", "b")
        token = await publisher.settled(timeout_s=5)
        assert images(desk) == ["a2", "a3"]
        assert str(token) == await publisher.written() == f"0000000a:1:{len(desk.told)}"


async def test_changes_at_one_time_are_one_transaction() -> None:
    desk, shelf = Desk(), Shelf()
    async with publishing(desk, shelf.source()) as publisher:
        await publisher.settled(timeout_s=5)
        for number in range(20):
            shelf.digests[f"k{number}"] = f"d{number:02}"
            publisher.note("shelf", f"k{number}")
        await publisher.settled(timeout_s=5)
        assert [len(transaction) for transaction in desk.told] == [20]


async def test_a_great_many_rows_are_told_in_parts() -> None:
    desk, shelf = Desk(), Shelf(**{f"k{number}": f"d{number:05}" for number in range(ROWS_AT_ONCE + 1)})
    async with publishing(desk, shelf.source()) as publisher:
        await publisher.settled(timeout_s=5)
        assert [len(transaction) for transaction in desk.told] == [ROWS_AT_ONCE, 1]


async def test_a_row_that_changes_all_the_time_is_told_now_and_then() -> None:
    desk, shelf = Desk(), Shelf()
    async with publishing(desk, shelf.source(calm=True)) as publisher:
        await publisher.settled(timeout_s=5)
        for number in range(100):
            shelf.digests["a"] = f"d{number:03}"
            publisher.note("shelf", "a")
            await LoopClock().sleep(0.05)
        await LoopClock().sleep(1)
        assert images(desk) == ["d099"]
        assert 5 <= len(desk.told) <= 12


async def test_a_row_that_tells_nobody_is_looked_at() -> None:
    desk, shelf = Desk(), Shelf(a="a1")
    async with publishing(desk, shelf.source(calm=True, looked_at=True)) as publisher:
        await publisher.settled(timeout_s=5)
        shelf.digests["a"] = "a2"
        await LoopClock().sleep(2 * LOOK_EVERY_S)
        assert images(desk) == ["a2"]


@pytest.mark.parametrize("every_s", [None, 15.0])
async def test_rows_that_others_took_away_are_told_again_where_others_can(every_s: float | None) -> None:
    desk, shelf = Desk(), Shelf(a="a1 a2", b="b1")
    async with publishing(desk, shelf.source(), compare_every_s=every_s) as publisher:
        await publisher.settled(timeout_s=5)
        desk.run("DELETE FROM images WHERE digest <> 'b1'")
        desk.run("INSERT INTO images VALUES ('0000000a', 'stray')")
        shelf.digests["b"] = "b2"
        publisher.note("shelf", "b")
        await publisher.settled(timeout_s=5)
        assert images(desk) == ["b2", "stray"]
        await LoopClock().sleep(20)
        assert images(desk) == (["b2", "stray"] if every_s is None else ["a1", "a2", "b2"])
        told = len(desk.told)
        await LoopClock().sleep(100)
        assert len(desk.told) == told, "what is as it should be is not told"


async def test_a_catalog_that_is_away_is_told_later_and_holds_up_nobody() -> None:
    desk, shelf = Desk(), Shelf(a="a1")
    desk.away = True
    async with publishing(desk, shelf.source()) as publisher:
        await LoopClock().sleep(3)
        before = anyio.current_time()
        assert await publisher.written() == "0000000a:0:0"
        assert anyio.current_time() == before
        (trouble,) = publisher.troubles
        assert trouble.startswith("the catalog does not take what this node tells it: ")
        desk.away = False
        await publisher.settled(timeout_s=10)
        assert not publisher.troubles
        assert images(desk) == ["a1"]
        desk.away = True
        shelf.digests["a"] = "a2"
        publisher.note("shelf", "a")
        assert await publisher.settled(timeout_s=5) is None
        desk.away = False
        assert await publisher.settled(timeout_s=5) is not None
        assert images(desk) == ["a2"]


async def test_a_catalog_that_answers_little_at_once_is_compared_in_parts() -> None:
    desk, shelf = Desk(), Shelf(**{f"k{number}": f"d{number}" + "x" * 1000 for number in range(20)})
    async with publishing(desk, shelf.source()) as publisher:
        await publisher.settled(timeout_s=5)
    desk.told.clear()
    narrow = Narrow(SimpleNamespace(query=desk.query), 5000)
    desk.query = narrow.query  # type: ignore[assignment,method-assign]
    async with publishing(desk, shelf.source()) as publisher:
        assert await publisher.settled(timeout_s=5) is None and publisher._sound
    assert not desk.told and narrow.refused


async def test_a_row_that_the_catalog_refuses_holds_up_no_other() -> None:
    desk, shelf = Desk(), Shelf(a="a1", b="b1", c="c1", d="d1")
    desk.refuses = "bad"
    async with publishing(desk, shelf.source()) as publisher:
        await publisher.settled(timeout_s=5)
        shelf.digests.update(a="a2", b="bad b2", c="c2")
        del shelf.digests["d"]
        for key in "abcd":
            publisher.note("shelf", key)
        assert await publisher.settled(timeout_s=5) is not None
        assert images(desk) == ["a2", "b2", "c2"], "what is beside it is told, of the same record too"
        (trouble,) = publisher.troubles
        assert trouble.startswith("1 of this node's records are not in the catalog, shelf/b: ")
        shelf.digests["b"] = "b3"
        publisher.note("shelf", "b")
        await publisher.settled(timeout_s=5)
        assert images(desk) == ["a2", "b3", "c2"] and not publisher.troubles


async def test_a_refused_row_at_the_beginning_leaves_no_strays_and_is_removed_where_it_was() -> None:
    desk, shelf = Desk(), Shelf(a="a1", b="bad", c="c1")
    desk.run("INSERT INTO images VALUES ('0000000a', 'stray'), ('0000000a', 'c0')")
    desk.refuses = "bad"
    async with publishing(desk, shelf.source()) as publisher:
        assert await publisher.settled(timeout_s=5) is not None
        assert images(desk) == ["a1", "c1"] and len(publisher.troubles) == 1
        del shelf.digests["b"]
        publisher.note("shelf", "b")
        await publisher.settled(timeout_s=5)
        assert not publisher.troubles


async def test_a_source_that_cannot_say_keeps_what_the_catalog_has_and_holds_up_no_other() -> None:
    """Its key says nothing of its rows': strays go once it has said which those are."""
    desk, shelf = Desk(), Shelf(a="a1", b="b1", c="c1")
    desk.run("INSERT INTO images VALUES ('0000000a', 'b0'), ('0000000a', 'b1'), ('0000000a', 'stray')")
    sealed = True

    def rows(key: str) -> Iterable[Row]:
        if key == "b" and sealed:
            raise Fault("the value cannot be opened")
        return shelf._rows(key)

    source = Source(name="shelf", every=lambda: list(shelf.digests), rows=rows)
    async with publishing(desk, source) as publisher:
        assert await publisher.settled(timeout_s=5) is not None
        assert images(desk) == ["a1", "b0", "b1", "c1", "stray"]
        assert publisher.troubles == [
            "1 of this node's records are not in the catalog, shelf/b: the value cannot be opened"
        ]
        sealed = False
        publisher.note("shelf", "b")
        await publisher.settled(timeout_s=5)
        assert images(desk) == ["a1", "b1", "c1"] and not publisher.troubles
        desk.run("INSERT INTO images VALUES ('0000000a', 'later')")
        shelf.digests["b"] = "b2"
        publisher.note("shelf", "b")
        await publisher.settled(timeout_s=5)
        assert images(desk) == ["a1", "b2", "c1", "later"], "nothing is compared again"


async def test_a_source_that_cannot_say_keeps_no_strays_of_tables_without_its_rows() -> None:
    desk, shelf = Desk(), Shelf(a="a1")
    desk.run("INSERT INTO images VALUES ('0000000a', 'stray')")
    desk.run("INSERT INTO apps (node, name) VALUES ('0000000a', 'gone')")

    def rows(_: str) -> Iterable[Row]:
        raise Fault("the value cannot be opened")

    sealed = Source(name="sealed", every=lambda: ["shop"], rows=rows, tables=frozenset({"apps"}))
    async with publishing(desk, shelf.source(), sealed) as publisher:
        assert await publisher.settled(timeout_s=5) is not None
        assert images(desk) == ["a1"] and desk.rows("SELECT name FROM apps") == [("gone",)]


async def test_a_source_that_could_not_say_is_asked_again_without_a_change() -> None:
    desk, shelf = Desk(), Shelf(a="a1", b="b1")
    away = False

    def rows(key: str) -> Iterable[Row]:
        if away and key == "b":
            raise Unavailable("the store cannot be used now")
        return shelf._rows(key)

    async with publishing(desk, Source(name="shelf", every=lambda: list(shelf.digests), rows=rows)) as publisher:
        await publisher.settled(timeout_s=5)
        away, shelf.digests["b"] = True, "b2"
        publisher.note("shelf", "b")
        await publisher.settled(timeout_s=5)
        assert images(desk) == ["a1", "b1"] and len(publisher.troubles) == 1
        await LoopClock().sleep(2 * LOOK_EVERY_S)
        assert images(desk) == ["a1", "b1"] and len(publisher.troubles) == 1
        away = False
        await LoopClock().sleep(2 * LOOK_EVERY_S)
        assert images(desk) == ["a1", "b2"] and not publisher.troubles


async def test_a_catalog_that_refuses_everything_is_what_is_wrong() -> None:
    desk, shelf = Desk(), Shelf(**{f"k{number}": f"bad{number}" for number in range(100)})
    asked = 0

    async def refuse(statements: Sequence[Statement]) -> None:
        nonlocal asked
        asked += len(statements) == 1
        raise BadRequest("no such table: images")

    desk.transact = refuse  # type: ignore[method-assign]
    async with publishing(desk, shelf.source()) as publisher:
        assert await publisher.settled(timeout_s=0.5) is None
        assert "no such table" in publisher.troubles[0] and "does not take" in publisher.troubles[0]
        assert asked < 10


async def test_large_rows_are_told_in_parts() -> None:
    desk, shelf = Desk(), Shelf(**{f"k{number}": f"d{number}" + "x" * 1_000_000 for number in range(9)})
    async with publishing(desk, shelf.source()) as publisher:
        await publisher.settled(timeout_s=5)
        assert [len(transaction) for transaction in desk.told] == [4, 4, 1]


async def test_a_source_that_nobody_has_is_none_of_its_business() -> None:
    desk = Desk()
    async with publishing(desk) as publisher:
        publisher.note("machines_by_app", "a/b")
        assert await publisher.settled(timeout_s=5) is None and await publisher.written() == "0000000a:0:0"


def sources_of(store: MemoryStore) -> list[Source]:
    """Those of which every key is a record's."""
    nothing: Any = None
    published = PublishedState(
        node=ME, store=store, health_of=lambda _: (), room=lambda: nothing, images=tuple, image_names=tuple
    )
    certificates = FleetCertificates(ME, nothing, store, nothing, nothing, nothing)
    return [
        *worker_sources(published, SAID),
        *quota_sources(ME, store, nothing, nothing)[:1],
        login_source(ME, store),
        revocations_of(ME, store),
        certificates.source,
    ]


async def torn(store: MemoryStore, bucket: Bucket[Any]) -> None:
    await store.write(lambda tx: tx.put(Bucket(bucket.name, str), "torn", "no record"))


@pytest.mark.parametrize(
    "bucket",
    [APPS, IPS, WIREGUARD_PEERS, MACHINES, TAKEOVERS, VOLUMES, QUOTAS, REGISTRY_LOGINS, REVOKED, CERTIFICATES],
    ids=lambda bucket: bucket.name,
)
async def test_every_source_names_a_record_that_cannot_be_read(bucket: Bucket[Any]) -> None:
    store = MemoryStore()
    await torn(store, bucket)
    (source,) = [each for each in sources_of(store) if each.name == bucket.name]
    assert list(source.every()) == ["torn"]
    with pytest.raises(Fault, match="'torn'"):
        list(source.rows("torn"))


async def test_a_record_that_cannot_be_read_holds_up_no_other() -> None:
    desk, store = Desk(), MemoryStore()
    shop = AppRecord(id="1", number=1, name=AppName("shop"), org="o", network="n", network_id=1, created_at=1.0)
    await store.write(lambda tx: tx.put(APPS, "shop", shop))
    await torn(store, APPS)
    (source,) = [each for each in sources_of(store) if each.name == APPS.name]
    async with publishing(desk, source) as publisher:
        assert await publisher.settled(timeout_s=5) is not None
        assert desk.rows("SELECT name FROM apps") == [("shop",)]
        (trouble,) = publisher.troubles
        assert "apps/torn: record 'torn' in bucket apps of the store cannot be read" in trouble
