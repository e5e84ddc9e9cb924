"""What `AgentCatalog` makes of whoever answers: of an agent that is slow, wrong or hostile, and of what is no agent.
Each ends in an error of the family, within bounds of memory and time.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import anyio
import pytest

from hawker.catalog.agent import AgentCatalog, SubscriptionLost, WrongAgent, shown
from hawker.catalog.contract import ResultTable, RowChange, Statement
from hawker.clock import SystemClock
from hawker.errors import BadRequest, DeadlineExceeded, Fault, HawkerError, Unavailable, Unprocessable
from hawker.ids import NodeId
from hawker.log import Secret
from tests.catalog.answering import answering

pytestmark = pytest.mark.anyio
_ALL = Statement(query="SELECT 1")
_OK = b"HTTP/1.1 200 OK\r\ncorro-query-id: 1-a\r\n\r\n"
_HEAD = _OK + b'{"columns":["a"]}\n'
_DEEP = b"[" * 100_000


@asynccontextmanager
async def asking(url: str, answer_s: float = 60.0) -> AsyncIterator[AgentCatalog]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield AgentCatalog(session, url, SystemClock(), NodeId("0000beef"), Secret("word"), answer_s=answer_s)


async def followed(agent: AgentCatalog) -> Sequence[ResultTable | RowChange]:
    async with agent.subscribe(_ALL) as told:
        return [said async for said in told]


_NO_ROWS: list[tuple[bytes, type[HawkerError], str]] = [
    (_HEAD, Unavailable, "ended its answer early"),
    (_HEAD + b'{"row":[1,["x"]]}\n', Unavailable, "ended its answer early"),
    (_HEAD + b"nonsense\n", WrongAgent, "nonsense"),
    (_HEAD + _DEEP + b"\n", WrongAgent, "no agent"),
    (_HEAD + b'{"error":"broke \\u001b[31m"}\n', Fault, r"agent: broke  \[31m$"),
    (_HEAD + b'{"row":[1,[[1,256]]]}\n', Fault, "no blob"),
    (_HEAD + b'{"row":[1,[["a"]]]}\n', Fault, "no blob"),
    (_HEAD + b'{"row":[1,[{"a":1}]]}\n', Fault, "no database has"),
    (_HEAD + b'{"row":[1,[9223372036854775808]]}\n', Fault, "no database has"),
    (_HEAD + b'{"eoq":{"time":0,"change_id":"one"}}\n', WrongAgent, "change_id"),
    (_HEAD + b'{"eoq":{"time":0,"change_id":-1}}\n', WrongAgent, "change_id"),
    (_OK + b"<html><body>It works!</body></html>\n", WrongAgent, "It works!"),
    (b"HTTP/1.1 302 Found\r\nlocation: http://192.0.2.1/\r\n\r\n", WrongAgent, "answered 302"),
    (b"HTTP/1.1 404 Not Found\r\n\r\n<html>404</html>", WrongAgent, "answered 404"),
    (b'HTTP/1.1 404 Not Found\r\n\r\n{"error":"no such path"}', WrongAgent, "answered 404: 'no such path'"),
    (b"HTTP/1.1 405 Not Allowed\r\n\r\n<center>nginx</center>", WrongAgent, "answered 405.*nginx"),
    (b"HTTP/1.1 401 Unauthorized\r\n\r\n", WrongAgent, "refuses our token"),
    (b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>", Unavailable, "busy"),
    (b"HTTP/1.1 500 Oops\r\n\r\n" + _DEEP, WrongAgent, "answered 500"),
    (b'HTTP/1.1 500 Oops\r\n\r\n{"error":"database is locked"}', Fault, "agent: database is locked"),
    (b'HTTP/1.1 400 No\r\n\r\n{"error":"no such table"}', BadRequest, "no such table"),
    (b"SSH-2.0-OpenSSH_9.2\r\n", WrongAgent, "does not speak HTTP"),
    (b"HTTP/1.1 200 OK\r\ncorro-query-id: 1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", WrongAgent, "HTTP"),
    (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000 + b"\r\n", WrongAgent, "HTTP"),
    (b"", Unavailable, "was lost"),
]


@pytest.mark.parametrize(("answer", "error", "words"), _NO_ROWS)
async def test_an_answer_without_rows_is_an_error_in_words(answer: bytes, error: type[HawkerError], words: str) -> None:
    async with answering(answer) as url, asking(url) as agent:
        with pytest.raises(error, match=words):
            await agent.query(_ALL)
        with pytest.raises(error, match=words):
            await followed(agent)


_NO_TOKEN: list[tuple[bytes, type[HawkerError], str]] = [
    (_OK + b"It works!", Fault, "nothing that can be read"),
    (_OK + _DEEP, Fault, "nothing that can be read"),
    (_OK + b'{"results":[],"version":-1,"actor_id":"00"}', Fault, "nothing that can be read"),
    (_OK + b'{"results":[],"version":1,"actor_id":"someone"}', Fault, "no actor's id"),
    (b'HTTP/1.1 500 No\r\n\r\n{"results":[{"error":"NOT NULL constraint failed"}]}', BadRequest, "constraint failed"),
    (b"HTTP/1.1 503 No\r\n\r\n<html>", Unavailable, "busy"),
    (b"HTTP/1.1 405 No\r\n\r\n<html>", WrongAgent, "answered 405"),
    (b"HTTP/1.1 307 No\r\nlocation: http://192.0.2.1/\r\n\r\n", WrongAgent, "answered 307"),
    (b"", Fault, "was lost"),
]


@pytest.mark.parametrize(("answer", "error", "words"), _NO_TOKEN)
async def test_an_answer_to_a_write_that_names_no_version_is_an_error(
    answer: bytes, error: type[HawkerError], words: str
) -> None:
    async with answering(answer) as url, asking(url) as agent:
        with pytest.raises(error, match=words):
            await agent.transact([_ALL])


@pytest.mark.parametrize(
    "words",
    [
        "database is locked",
        "database table is locked: machines",
        "database schema is locked: main",
        "attempt to write a readonly database",
        "database or disk is full",
        "disk I/O error",
        "interrupted",
        "out of memory",
        "Error code 5: The database file is locked",
        "could not commit the transaction: " + "x" * 300 + ": database is locked (site 7)",
    ],
)
async def test_a_write_that_fails_for_what_passes_is_to_be_tried_again(words: str) -> None:
    """What is `BadRequest` is told no more: its rows would go from the catalog."""
    answer = b'HTTP/1.1 500 No\r\n\r\n{"results":[{"error":"%s"}]}' % words.encode()
    async with answering(answer) as url, asking(url) as agent:
        with pytest.raises(Unavailable, match="cannot write now"):
            await agent.transact([_ALL])


async def test_an_answer_without_end_is_cut_off_at_its_bound() -> None:
    rows = b'{"row":[1,["x"]]}\n' * 1000
    for again, error in ((rows, Unprocessable), (b"x" * 65536, Fault)):
        async with answering(_HEAD, again=again) as url, asking(url) as agent:
            with pytest.raises(error, match="more than"):
                await agent.query(_ALL)
    for head in (_OK, b"HTTP/1.1 500 Oops\r\n\r\n"):
        async with answering(head, again=b"x" * 65536) as url, asking(url) as agent:
            with pytest.raises(Fault, match="more than 1024 KiB"):
                await agent.transact([_ALL])


async def test_an_agent_that_never_answers_is_given_up() -> None:
    async def asked(begun: bytes) -> None:
        async with answering(begun, close=False) as url, asking(url, answer_s=1.0) as agent:
            with pytest.raises(DeadlineExceeded, match="in time"):
                await agent.query(_ALL, timeout_s=0.1)
            with pytest.raises(DeadlineExceeded, match="in time"):
                await followed(agent)

    async with anyio.create_task_group() as tasks:  # each waits for two seconds
        for begun in (b"", _HEAD, _HEAD + b'{"row":[1,["x"]]}\n', b"HTTP/1.1 500 Oops\r\n\r\nwell"):
            tasks.start_soon(asked, begun)


async def test_a_packed_answer_is_not_unpacked() -> None:
    """A few bytes of it could be all memory."""
    packed = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n\x1f\x8b\x08\0\0\0\0\0\0\0\n"
    async with answering(packed) as url, asking(url) as agent:
        with pytest.raises(WrongAgent):
            await agent.query(_ALL)


@pytest.mark.parametrize("name", [b"", b"../transactions", b"a" * 65])
async def test_a_subscription_with_a_strange_name_is_not_followed(name: bytes) -> None:
    said = b"HTTP/1.1 200 OK\r\ncorro-query-id: " + name + b'\r\n\r\n{"eoq":{"time":0,"change_id":0}}\n'
    async with answering(said) as url, asking(url) as agent:
        with pytest.raises(WrongAgent, match="calls a subscription"):
            await followed(agent)


async def test_a_change_that_no_table_can_hold_ends_the_subscription() -> None:
    begun = _HEAD + b'{"eoq":{"time":0,"change_id":4}}\n'
    for change, error in (
        (b'{"change":["insert",1,[9223372036854775808],5]}\n', Fault),
        (b'{"change":["insert",1,["x"],7]}\n', SubscriptionLost),
        (b'{"change":["insert",1,["x"],"5"]}\n', WrongAgent),
        (b'{"error":"too slow"}\n', SubscriptionLost),
    ):
        async with answering(begun + change) as url, asking(url) as agent:
            with pytest.raises(error):
                await followed(agent)


def test_the_shown_part_of_an_answer_is_short_and_obeyed_by_no_terminal() -> None:
    assert shown(b"<html>\r\n\x1b]0;title\x07 \xff</html>") == "<html>  ]0;title  �</html>"
    assert len(shown("x" * 10_000)) == 200
