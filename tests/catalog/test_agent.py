"""`AgentCatalog` against our own server, which stands in for an agent; and against one that misbehaves."""

import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from hawker.catalog.agent import AgentCatalog, SubscriptionLost
from hawker.catalog.change import Token
from hawker.catalog.contract import ResultTable, RowChange, Statement
from hawker.catalog.http.app import CatalogApp, CatalogEndpoint
from hawker.catalog.http.exchange import Exchange
from hawker.catalog.http.server import bind, serving
from hawker.catalog.http.service import CatalogAccess
from hawker.catalog.schema import shipped
from hawker.clock import SystemClock
from hawker.errors import BadRequest, Fault, HawkerError, Unavailable
from hawker.ids import NodeId
from hawker.log import Secret
from tests.catalog.played.agent import PlayedAgent, acquaint
from tests.catalog.served import NODE, Served, served
from tests.ports import free_port

pytestmark = pytest.mark.anyio
WRITER = NodeId("0000beef")
_PUT = "INSERT OR REPLACE INTO machines (node, id, state) VALUES (?, ?, ?)"
_ALL = Statement(query="SELECT id, state FROM machines")


@asynccontextmanager
async def _agent(url: str, token: str | None = None) -> AsyncIterator[AgentCatalog]:
    async with aiohttp.ClientSession() as session:
        yield AgentCatalog(session, url, SystemClock(), WRITER, Secret(token) if token else None)


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as running:
        yield running


@asynccontextmanager
async def _address() -> AsyncIterator[socket.socket]:
    """One that stays ours while a server goes and another comes."""
    with bind("127.0.0.1:0") as listener:
        yield listener


def _put(number: str, state: str) -> Statement:
    return Statement(query=_PUT, params=(NODE, number, state))


async def test_row_written_through_the_agent_can_be_read(one: Served) -> None:
    async with _agent(one.url) as agent:
        assert await agent.transact([_put("1", "on")]) == Token(origin=WRITER, epoch=0, version=1)
        assert await agent.transact([Statement(query="UPDATE machines SET state = 'on'")]) is None
        named = Statement(query="SELECT :a, x'00ff', NULL, 1.5", named_params={"a": "x"})
        answer = await agent.query(named)
        assert answer.rows == (("x", b"\0\xff", None, 1.5),)
        assert await agent.query(_ALL) == ResultTable(columns=("id", "state"), rows=(("1", "on"),))
        assert not await agent.reached(Token(origin=WRITER, epoch=0, version=1), timeout_s=0.1), "it cannot say"


async def test_a_token_names_the_writer_and_tells_how_far_each_agent_is(tmp_path: Path) -> None:
    """Versions count for each agent by itself, and its actor has nothing of the node's name."""
    here, there = (PlayedAgent(tmp_path / name, [shipped()]) for name in ("here", "there"))
    async with here.running() as one, there.running() as other, _agent(one) as near, _agent(other) as far:
        await near.transact([_put("1", "on")])
        token = await near.transact([_put("2", "on")])
        assert token is not None and (token.origin, token.version) == (WRITER, 2)
        assert token.epoch == int(here.database.actor.hex()[:14], 16)
        assert await near.reached(token, timeout_s=60)
        assert not await far.reached(token, timeout_s=0.2), "nobody told it"
        acquaint([here, there])
        assert await far.reached(token, timeout_s=60)
        for beyond in (Token(origin=WRITER, epoch=token.epoch, version=3), Token(origin=WRITER, epoch=1, version=1)):
            assert not await far.reached(beyond, timeout_s=0.2)


async def test_a_version_that_is_missing_or_there_in_parts_is_not_reached(tmp_path: Path) -> None:
    played = PlayedAgent(tmp_path, [shipped()])
    async with played.running() as url, _agent(url) as agent:
        tokens = [await agent.transact([_put(str(number), "on")]) for number in range(3)]
        first, second, third = (token for token in tokens if token is not None)
        played.database.lack(gap=first.version, part=second.version)
        assert not await agent.reached(first, timeout_s=0.2)
        assert not await agent.reached(second, timeout_s=0.2)
        assert await agent.reached(third, timeout_s=60)


async def test_an_agent_that_is_away_has_reached_nothing() -> None:
    async with _agent("http://127.0.0.1:1") as agent:
        assert not await agent.reached(Token(origin=WRITER, epoch=0, version=1), timeout_s=0.2)


async def test_an_address_of_no_agent_is_said_to_be_none() -> None:
    async with _saying(b"") as url, _agent(f"{url}/elsewhere") as agent:
        with pytest.raises(Fault, match="no agent of a catalog"):
            await agent.query(_ALL)


async def test_a_blob_goes_there_and_back(one: Served) -> None:
    async with _agent(one.url) as agent:
        answer = await agent.query(Statement(query="SELECT typeof(?), ?", params=(b"\1\2", b"\1\2")))
    assert answer.rows == (("blob", b"\1\2"),)


async def test_changes_follow_the_answer(one: Served) -> None:
    async with _agent(one.url) as agent:
        await agent.transact([_put("1", "on")])
        async with agent.subscribe(_ALL) as told:
            assert await anext(told) == ResultTable(columns=("id", "state"), rows=(("1", "on"),))
            await agent.transact([_put("1", "off")])
            assert await anext(told) == RowChange(kind="update", row_id=1, row=("1", "off"), number=1)


async def test_a_lost_connection_is_taken_up_where_it_was(tmp_path: Path) -> None:
    """The agent stops well and comes back at the same address: its subscription is there again."""
    async with AsyncExitStack() as first, _address() as listener:
        before = await first.enter_async_context(served(tmp_path, listener=listener.dup()))
        async with _agent(before.url) as agent, agent.subscribe(_ALL) as told:
            assert isinstance(await anext(told), ResultTable)
            await agent.transact([_put("1", "on")])
            assert isinstance(await anext(told), RowChange)
            await first.aclose()
            async with served(tmp_path, listener=listener.dup()):
                await agent.transact([_put("1", "off")])
                assert await anext(told) == RowChange(kind="update", row_id=1, row=("1", "off"), number=2)


async def test_a_subscription_that_the_agent_forgot_is_lost(tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
    async with AsyncExitStack() as first, _address() as listener:
        before = await first.enter_async_context(served(tmp_path / "a", listener=listener.dup()))
        async with _agent(before.url) as agent, agent.subscribe(_ALL) as told:
            await anext(told)
            await first.aclose()
            async with served(tmp_path / "b", listener=listener.dup()):
                with pytest.raises(SubscriptionLost, match="could not find"):
                    await anext(told)


@pytest.mark.parametrize(
    ("query", "error"), [("SELEC", BadRequest), ("DELETE FROM machines", BadRequest), ("SELECT abs(-1 << 63)", Fault)]
)
async def test_statement_that_is_refused(one: Served, query: str, error: type[HawkerError]) -> None:
    async with _agent(one.url) as agent:
        with pytest.raises(error):
            await agent.query(Statement(query=query))
        with pytest.raises(BadRequest):
            await agent.transact([Statement(query="SELEC")])


async def test_statement_that_cannot_be_live_is_refused(one: Served) -> None:
    async with _agent(one.url) as agent:
        with pytest.raises(BadRequest, match="no such table"):
            async with agent.subscribe(Statement(query="SELECT * FROM nowhere")) as told:
                await anext(told)


async def test_the_token_is_shown(tmp_path: Path) -> None:
    async with served(tmp_path, access=CatalogAccess(token="secret")) as one:
        async with _agent(one.url, "secret") as agent:
            assert (await agent.query(Statement(query="SELECT 1"))).rows == ((1,),)
        async with _agent(one.url) as agent:
            with pytest.raises(Fault, match="token"):
                await agent.query(Statement(query="SELECT 1"))


async def test_nobody_there() -> None:
    async with _agent(f"http://127.0.0.1:{free_port()}") as agent:
        with pytest.raises(Unavailable, match="cannot be reached"):
            await agent.query(_ALL)
        with pytest.raises(Unavailable, match="cannot be reached"):
            await agent.transact([_put("1", "on")])


async def test_a_subscription_with_a_hole_is_lost() -> None:
    said = b'{"columns":["a"]}\n{"eoq":{"time":0,"change_id":4}}\n{"change":["insert",1,["x"],6]}\n'
    async with _saying(said) as url, _agent(url) as agent, agent.subscribe(_ALL) as told:
        assert isinstance(await anext(told), ResultTable)
        with pytest.raises(SubscriptionLost, match="passed over"):
            await anext(told)


@asynccontextmanager
async def _saying(answer: bytes) -> AsyncIterator[str]:
    """An agent that says the same to everybody."""

    async def say(exchange: Exchange, _: str) -> None:
        async def lines() -> AsyncGenerator[bytes, None]:
            yield answer

        await exchange.body()
        await exchange.stream(lines(), [(b"corro-query-id", b"1")])

    endpoints = [
        CatalogEndpoint("POST", path, say) for path in ("/v1/queries", "/v1/subscriptions", "/v1/transactions")
    ]
    async with serving(CatalogApp(endpoints, CatalogAccess()), bind("127.0.0.1:0")) as url:
        yield url
