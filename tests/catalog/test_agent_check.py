"""What is said of an agent that keeps the catalog, and cannot."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from hawker.catalog.agent import AgentCatalog
from hawker.catalog.agent_check import CHECK_S, FAR_BEHIND, AgentCheck
from hawker.catalog.schema import shipped
from hawker.clock import SystemClock
from hawker.log import Secret
from tests.catalog.answering import answering
from tests.catalog.played.agent import PlayedAgent, acquaint
from tests.catalog.served import NODE, served
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

OLDER = shipped().replace(
    "    standby_for TEXT NOT NULL DEFAULT '[]', -- ids of machines that this one is a spare of\n", ""
)


@asynccontextmanager
async def checking(url: str, others: int = 0, within_s: float = CHECK_S) -> AsyncIterator[AgentCheck]:
    async with aiohttp.ClientSession() as session:
        agent = AgentCatalog(session, url, SystemClock(), NODE, Secret("right"))
        yield AgentCheck(agent, url, lambda: others, within_s)


@asynccontextmanager
async def checked(
    folder: Path, *schemas: str, token: str | None = None
) -> AsyncIterator[tuple[PlayedAgent, AgentCheck]]:
    played = PlayedAgent(folder, schemas, token=token)
    async with played.running() as url, checking(url) as check:
        yield played, check


async def test_nothing_is_wrong_with_an_agent_that_has_the_tables(tmp_path: Path) -> None:
    async with checked(tmp_path, shipped(), token="right") as (_, check):
        assert await check.lacks() is None and await check.findings() == []


async def test_tables_of_a_newer_version_are_fine(tmp_path: Path) -> None:
    newer = shipped().replace("    standby_for TEXT", "    future TEXT NOT NULL DEFAULT '',\n    standby_for TEXT")
    assert newer != shipped()
    more = "CREATE TABLE futures (node TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (node, id));"
    async with checked(tmp_path, newer, more, token="right") as (_, check):
        assert await check.lacks() is None and await check.findings() == []


async def test_another_hawker_may_keep_the_catalog_too(tmp_path: Path) -> None:
    async with served(tmp_path) as one, checking(one.url, others=3) as check:
        assert await check.lacks() is None and await check.findings() == []


@pytest.mark.parametrize(
    ("schemas", "what"),
    [
        ((), "nodes (no such table: nodes)"),
        ((OLDER,), "machines (no such column: standby_for)"),
    ],
)
async def test_tables_that_are_missing_are_named_with_what_to_do(
    tmp_path: Path, schemas: Sequence[str], what: str
) -> None:
    async with checked(tmp_path, *schemas) as (played, check):
        lacks = await check.lacks()
        assert lacks is not None and await check.findings() == [lacks]
        for words in (check.url, what, "`hawker catalog schema`", "db.schema_paths", "`corrosion reload`"):
            assert words in lacks
        if not schemas:
            played.reload([shipped()])
            assert await check.lacks() is None


async def test_an_agent_that_refuses_the_token_is_said_to(tmp_path: Path) -> None:
    async with checked(tmp_path, shipped(), token="other") as (_, check):
        (finding,) = await check.findings()
        assert "refuses our token: give the right one with --catalog-token-file" in finding


async def test_an_agent_that_is_away_is_said_to_be() -> None:
    async with checking("http://127.0.0.1:1") as check:
        (finding,) = await check.findings()
        assert "cannot be reached" in finding and "machines go on" in finding


async def test_an_agent_that_knows_no_other_is_told_of_while_other_nodes_live(tmp_path: Path) -> None:
    one, other = (PlayedAgent(tmp_path / name, [shipped()]) for name in "ab")
    async with one.running() as url, other.running(), checking(url, others=1) as check:
        (finding,) = await check.findings()
        assert "1 other nodes live" in finding and "gossip.bootstrap" in finding
        acquaint([one, other])

        async def well() -> bool:
            return not await check.findings()

        await eventually(well)


async def test_an_agent_that_is_far_behind_is_said_to_be(tmp_path: Path) -> None:
    async with checked(tmp_path, shipped(), token="right") as (played, check):
        for version in range(1, FAR_BEHIND):
            played.database.lack(gap=version, part=version)
        assert await check.findings() == []
        played.database.lack(gap=FAR_BEHIND, part=1)
        (finding,) = await check.findings()
        assert f"lacks {FAR_BEHIND} changes of other agents" in finding


async def test_an_agent_that_never_ends_its_answer_is_given_up_in_time() -> None:
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    for again in (b"", head, b'{"row":[1,[1]]}\n'):
        async with answering(head, again=again, close=False) as url, checking(url, within_s=0.5) as check:
            (finding,) = await check.findings()
            assert finding.endswith("machines go on, and other nodes are seen as they were last")


@pytest.mark.parametrize(
    ("rows", "found"),
    [(b'{"row":[1,["many"]]}\n', 0), (b'{"row":[1,[]]}\n', 0), (b'{"row":[1,[5000]]}\n', 1), (b"", 0)],
)
async def test_an_agent_that_says_nonsense_of_itself_is_passed_over(rows: bytes, found: int) -> None:
    said = b"HTTP/1.1 200 OK\r\n\r\n" + rows + b'{"eoq":{"time":0}}\n'
    async with answering(said) as url, checking(url, others=1) as check:
        assert len(await check.findings()) == found
