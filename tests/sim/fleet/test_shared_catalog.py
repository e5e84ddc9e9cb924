from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from hawker.catalog.contract import Statement
from hawker.ids import NodeId
from hawker.sim.fleet.shared_catalog import MISSED_S, TOLD_S, SharedCatalog, SharedCatalogView
from hawker.sim.harness.loop import LoopClock

pytestmark = pytest.mark.anyio
ONE = NodeId("00000001")
STATE = "SELECT state FROM __corro_members WHERE host = ?"
APPS = "SELECT name FROM apps WHERE node = ? ORDER BY name"


def named(name: str) -> Statement:
    return Statement(query="INSERT OR REPLACE INTO apps (node, name) VALUES (?, ?)", params=(ONE, name))


@asynccontextmanager
async def shared_catalog() -> AsyncIterator[SharedCatalog]:
    made = SharedCatalog(LoopClock(1))
    async with anyio.create_task_group() as tasks:
        await tasks.start(made.serve)
        yield made
        tasks.cancel_scope.cancel()


async def test_published_rows_are_read_a_moment_later_in_order_with_version() -> None:
    async with shared_catalog() as told:
        share = SharedCatalogView(told, ONE, 1)
        await share.transact([named("a")])
        token = await share.transact([named("b"), Statement(query="DELETE FROM apps WHERE name = ?", params=("a",))])
        assert token is not None and told.rows(APPS, ONE) == []
        await told.clock.sleep(2 * TOLD_S[1])
        assert told.rows(APPS, ONE) == [("b",)]
        assert (token.epoch, token.version) in told.rows("SELECT epoch, applied FROM __c_origin WHERE origin = ?", ONE)


async def test_a_node_that_begins_again_reads_all_that_it_told() -> None:
    async with shared_catalog() as told:
        await SharedCatalogView(told, ONE, 1).transact([named("a")])
        assert (await SharedCatalogView(told, ONE, 2).query(Statement(query=APPS, params=(ONE,)))).rows == (("a",),)


async def test_shared_catalog_knows_who_lives_and_later_who_does_not() -> None:
    async with shared_catalog() as told:
        share = SharedCatalogView(told, ONE, 1)
        share.begin()
        await told.clock.sleep(1)
        assert told.rows(STATE, ONE) == [("alive",)]
        share.end(MISSED_S)
        await told.clock.sleep(1)
        assert told.rows(STATE, ONE) == [("alive",)]
        await told.clock.sleep(MISSED_S)
        assert told.rows(STATE, ONE) == [("dead",)]
