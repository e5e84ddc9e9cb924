from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import pytest

from hawker.catalog.change import Token
from hawker.catalog.contract import OnTouched, ResultTable, RowChange, Statement
from hawker.catalog.mirror import Mirror
from hawker.catalog.storage import MemberRow
from hawker.clock import ManualClock
from hawker.errors import Unavailable
from hawker.ids import NodeId
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

IMAGES = "SELECT node, digest FROM images ORDER BY digest"


class Agent:
    """Keeps `Catalog`, as far as live queries go. What it says of `images` is told by the test, other tables are empty;
    its first answer to each query is lost."""

    def __init__(self, *said: ResultTable | RowChange) -> None:
        self.said = said
        self.asked = 0

    def subscribe(self, statement: Statement) -> AbstractAsyncContextManager[AsyncIterator[ResultTable | RowChange]]:
        return self._told(statement)

    @asynccontextmanager
    async def _told(self, statement: Statement) -> AsyncIterator[AsyncIterator[ResultTable | RowChange]]:
        self.asked += 1
        if "FROM images" not in statement.query:
            yield self._saying(())
        elif self.asked < 2:
            raise Unavailable("lost")
        else:
            yield self._saying(self.said)

    async def _saying(self, said: Sequence[ResultTable | RowChange]) -> AsyncIterator[ResultTable | RowChange]:
        for each in said:
            yield each
        await anyio.sleep_forever()

    async def transact(self, statements: Sequence[Statement]) -> Token | None:
        return None

    async def query(self, statement: Statement, *, timeout_s: float = 60.0) -> ResultTable:
        return ResultTable(columns=(), rows=())

    def listen(self, callback: OnTouched) -> Callable[[], None]:
        return lambda: None

    async def reached(self, token: Token, *, timeout_s: float) -> bool:
        return False


def change(kind: str, node: str, digest: str) -> RowChange:
    return RowChange(kind=kind, row_id=1, row=(node, digest), number=1)


async def test_mirror_follows_each_table_and_begins_again_when_a_query_is_lost() -> None:
    first = ResultTable(columns=("node", "digest"), rows=(("a", "d1"), ("a", "d2")))
    agent = Agent(first, change("insert", "b", "d3"), change("delete", "a", "d1"), change("update", "a", "d2"))
    mirror = Mirror(agent, ManualClock())
    assert mirror.rows(IMAGES) == []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mirror.serve)
        await eventually(lambda: mirror.rows(IMAGES) == [("a", "d2"), ("b", "d3")])
        tasks.cancel_scope.cancel()


async def test_a_whole_answer_takes_the_place_of_what_was_there() -> None:
    one = ResultTable(columns=("node", "digest"), rows=(("a", "d1"),))
    other = ResultTable(columns=("node", "digest"), rows=(("a", "d2"),))
    mirror = Mirror(Agent(one, other), ManualClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mirror.serve)
        await eventually(lambda: mirror.rows(IMAGES) == [("a", "d2")])
        tasks.cancel_scope.cancel()


def test_members_are_this_nodes_own() -> None:
    mirror = Mirror(Agent(), ManualClock())
    for state in ("alive", "down"):
        mirror.set_members([MemberRow(host=NodeId("0000000a"), state=state, since=1.0)])
    assert mirror.rows("SELECT host, state, rtt FROM __corro_members") == [("0000000a", "down", None)]
    assert mirror.rows("SELECT scope, epoch, applied FROM __c_origin WHERE origin = ?", "x") == []
