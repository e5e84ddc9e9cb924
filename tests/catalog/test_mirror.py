from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import apsw
import pytest

from hawker.catalog.change import Token
from hawker.catalog.contract import OnTouched, ResultTable, RowChange, Statement
from hawker.catalog.mirror import MOST_KNOWN, Mirror
from hawker.catalog.storage import MemberRow
from hawker.clock import ManualClock, SystemClock
from hawker.errors import BadRequest, Unavailable
from hawker.ids import NodeId
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

IMAGES = "SELECT node, digest FROM images ORDER BY digest"


class Agent:
    """Keeps `Catalog`, as far as live queries go. What it says of `images` is told by the test, other tables are empty;
    its first answer to each query is lost."""

    def __init__(self, *said: ResultTable | RowChange) -> None:
        self.said: Sequence[ResultTable | RowChange] = said
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


async def test_rows_that_do_not_fit_their_table_end_nothing() -> None:
    narrow = ResultTable(columns=("node",), rows=(("a",),))
    agent = Agent(narrow, RowChange(kind="delete", row_id=1, row=(), number=1))
    mirror = Mirror(agent, ManualClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mirror.serve)
        await eventually(lambda: agent.asked > 20)
        agent.said = (ResultTable(columns=("node", "digest"), rows=(("a", "d1"),)),)
        await eventually(lambda: mirror.rows(IMAGES) == [("a", "d1")])
        tasks.cancel_scope.cancel()


async def test_a_table_that_cannot_be_followed_is_said_to_be_until_it_can() -> None:
    agent = Agent(ResultTable(columns=("node",), rows=(("a",),)))
    mirror = Mirror(agent, ManualClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mirror.serve)
        await eventually(lambda: bool(mirror.troubles))
        assert mirror.troubles[0].startswith("cannot follow the table images at the agent: ")
        agent.said = (ResultTable(columns=("node", "digest"), rows=(("a", "d1"),)),)
        await eventually(lambda: not mirror.troubles)
        tasks.cancel_scope.cancel()


async def test_rows_beyond_the_room_for_them_end_nothing() -> None:
    agent = Agent(*(change("insert", str(number), "d" * 100_000) for number in range(20)))
    mirror = Mirror(agent, ManualClock(), most_mib=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mirror.serve)
        await eventually(lambda: any("1 MiB" in each for each in mirror.troubles))
        mirror.set_members([MemberRow(host=NodeId("0000000a"), state="alive", since=1.0)])
        agent.said = (ResultTable(columns=("node", "digest"), rows=(("a", "d1"),)),)
        await eventually(lambda: mirror.rows(IMAGES) == [("a", "d1")])
        tasks.cancel_scope.cancel()


def test_members_are_this_nodes_own() -> None:
    mirror = Mirror(Agent(), ManualClock())
    for state in ("alive", "down"):
        mirror.set_members([MemberRow(host=NodeId("0000000a"), state=state, since=1.0)])
    assert mirror.rows("SELECT host, state, rtt FROM __corro_members") == [("0000000a", "down", None)]
    assert mirror.rows("SELECT scope, epoch, applied FROM __c_origin WHERE origin = ?", "x") == []


OWNER = NodeId("0000000a")
WRITTEN = Token(origin=OWNER, epoch=7, version=3)
_PUT = "INSERT INTO machines (node, id) VALUES (?, ?)"


class Judge(Agent):
    """Says that it is as far as it is told to be, and what it has of the owner."""

    def __init__(self) -> None:
        super().__init__()
        self.there: tuple[tuple[str | int, ...], ...] = ()
        self.has, self.away = True, False
        self.asked_how_far = 0

    async def reached(self, token: Token, *, timeout_s: float) -> bool:
        self.asked_how_far += 1
        return self.has

    async def query(self, statement: Statement, *, timeout_s: float = 60.0) -> ResultTable:
        if self.away:
            raise Unavailable("away")
        return ResultTable(columns=("kind", "name", "more"), rows=self.there)


async def test_a_write_through_the_mirror_is_seen_at_once() -> None:
    mirror = Mirror(Agent(), ManualClock())
    await mirror.transact([Statement(query=_PUT, params=("a", "m1")), Statement(query=_PUT, params=("a", "m2"))])
    named = Statement(query="DELETE FROM machines WHERE id = :id", named_params={"id": "m1"})
    await mirror.transact([named])
    assert mirror.rows("SELECT node, id FROM machines") == [("a", "m2")]


async def test_a_write_refused_by_the_agent_is_not_seen() -> None:
    class Refusing(Agent):
        async def transact(self, statements: Sequence[Statement]) -> Token | None:
            raise Unavailable("busy")

    mirror = Mirror(Refusing(), ManualClock())
    with pytest.raises(Unavailable):
        await mirror.transact([Statement(query=_PUT, params=("a", "m1"))])
    assert mirror.rows("SELECT node, id FROM machines") == []


async def test_a_place_is_reached_once_looks_find_all_that_the_agent_has_of_its_owner() -> None:
    judge = Judge()
    mirror = Mirror(judge, SystemClock())
    judge.there = (("machine", "m1", 1),)
    assert not await mirror.reached(WRITTEN, timeout_s=0.2), "the agent has it, and no live query has told"
    await mirror.transact([Statement(query=_PUT, params=(OWNER, "m1"))])
    judge.away = True
    assert not await mirror.reached(WRITTEN, timeout_s=0.2)
    judge.away = False
    assert await mirror.reached(WRITTEN, timeout_s=10)


async def test_a_place_that_was_reached_is_not_asked_for_again() -> None:
    judge = Judge()
    mirror = Mirror(judge, SystemClock())
    for token in (WRITTEN, WRITTEN, Token(origin=OWNER, epoch=7, version=2)):
        assert await mirror.reached(token, timeout_s=10)
    assert judge.asked_how_far == 1
    judge.has = False
    for token in (Token(origin=OWNER, epoch=7, version=4), Token(origin=OWNER, epoch=8, version=1)):
        assert not await mirror.reached(token, timeout_s=10)
    assert judge.asked_how_far == 3


async def test_the_versions_a_mirror_knows_to_be_reached_are_bounded() -> None:
    judge = Judge()
    mirror = Mirror(judge, SystemClock())
    tokens = [Token(origin=NodeId(f"{number:08x}"), epoch=1, version=1) for number in range(MOST_KNOWN + 1)]
    for token in (*tokens, tokens[-1]):
        assert await mirror.reached(token, timeout_s=10)
    assert judge.asked_how_far == MOST_KNOWN + 1
    assert await mirror.reached(tokens[0], timeout_s=10) and judge.asked_how_far == MOST_KNOWN + 2


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM machines",
        "SELECT count(*) FROM machines",
        "SELECT a.name, n.region FROM apps AS a, nodes AS n WHERE n.node = a.node",
    ],
)
def test_a_live_query_that_an_agent_would_tell_of_no_new_row_is_refused(query: str) -> None:
    with pytest.raises(BadRequest, match="misses new rows: name a column too that is no key of it"):
        Mirror(Agent(), ManualClock()).subscribe(Statement(query=query))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM machines WHERE state = 'started'",
        "SELECT m.id, m.state, n.region FROM machines AS m JOIN nodes AS n ON n.node = m.node",
        "SELECT node, digest FROM images",
        "SELECT id FROM a_table_of_the_agent",
        "SELEC",
        "\udfff",
    ],
)
def test_other_live_queries_are_the_agents_to_judge(query: str) -> None:
    Mirror(Agent(), ManualClock()).subscribe(Statement(query=query))


def test_a_query_a_live_one_would_do_is_not_done() -> None:
    mirror = Mirror(Agent(), ManualClock())
    before = apsw.hard_heap_limit(-1)
    for query in ("PRAGMA hard_heap_limit = 1000000000", "DROP TABLE machines", "SELECT 1; DROP TABLE machines"):
        mirror.subscribe(Statement(query=query))
    assert apsw.hard_heap_limit(-1) == before
    with pytest.raises(BadRequest):
        mirror.subscribe(Statement(query="SELECT id FROM machines"))


def test_a_forgotten_node_is_remembered_as_that() -> None:
    mirror = Mirror(Agent(), ManualClock())
    for fence in (5, 9):
        mirror.fence(OWNER, fence)
    assert mirror.rows("SELECT origin, forgotten FROM __c_origin") == [(OWNER, 9)]
