"""The HTTP API from outside: who may call, how many, what a hostile or slow client gets, how it stops."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from hawker.catalog.http.app import CROWDED, CatalogApp, CatalogEndpoint
from hawker.catalog.http.exchange import BODY_BYTES, Exchange
from hawker.catalog.http.health import is_well
from hawker.catalog.http.server import bind, serving
from hawker.catalog.http.service import CatalogAccess, Vitals
from hawker.errors import CannotStart
from tests.catalog.conformance.wire import Caller, Http1, Http2
from tests.catalog.served import Served, served
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
_QUERY = "SELECT id, state FROM machines"


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as running:
        yield running


async def _put(caller: Caller, number: int, state: str) -> None:
    sql = "INSERT OR REPLACE INTO machines (node, id, state) VALUES ('0badcafe', ?, ?)"
    status, answer = await caller.ask("POST", "/v1/transactions", [[sql, [str(number), state]]])
    assert status == 200, answer


async def test_without_the_token_nobody_is_answered(tmp_path: Path) -> None:
    async with served(tmp_path, access=CatalogAccess(token="secret")) as one:
        caller = Caller(Http1(one.url))
        for headers in ({}, {"authorization": "Bearer other"}, {"authorization": "secret"}):
            for method, path in (("POST", "/v1/queries"), ("GET", "/v1/health"), ("POST", "/v1/transactions")):
                assert await caller.call(method, path, "SELECT 1", headers) == (401, b"")
        status, _ = await caller.call("POST", "/v1/queries", "SELECT 1", {"authorization": "Bearer secret"})
        assert status == 200


async def test_a_request_for_another_endpoint_is_misdirected(tmp_path: Path) -> None:
    name = "x-corrosion-requested-endpoint-name"
    async with served(tmp_path, access=CatalogAccess(endpoint="mad")) as one:
        caller = Caller(Http2(one.url))
        for value, status in (("mad", 200), ("fra", 421)):
            assert (await caller.call("POST", "/v1/queries", "SELECT 1", {name: value}))[0] == status
        assert (await caller.call("POST", "/v1/queries", "SELECT 1"))[0] == 200


async def test_any_endpoint_where_none_is_named(one: Served) -> None:
    headers = {"x-corrosion-requested-endpoint-name": "whatever"}
    assert (await Caller(Http1(one.url)).call("POST", "/v1/queries", "SELECT 1", headers))[0] == 200


async def test_more_than_so_many_are_turned_away() -> None:
    waiting, go = anyio.Event(), anyio.Event()

    async def wait(exchange: Exchange, _: str) -> None:
        waiting.set()
        await go.wait()
        await exchange.text(200, "done")

    app = CatalogApp([CatalogEndpoint("GET", "/v1/slow", wait, most=1)], CatalogAccess())
    async with serving(app, bind("127.0.0.1:0")) as url, anyio.create_task_group() as group:
        first: list[tuple[int, bytes]] = []

        async def call() -> None:
            first.append(await Caller(Http1(url)).call("GET", "/v1/slow"))

        group.start_soon(call)
        await waiting.wait()
        assert await Caller(Http1(url)).call("GET", "/v1/slow") == (503, CROWDED.encode())
        go.set()
        await eventually(lambda: first == [(200, b"done")])
        assert (await Caller(Http1(url)).call("GET", "/v1/slow"))[0] == 200


async def test_a_body_may_be_so_long(one: Served) -> None:
    caller = Caller(Http1(one.url))
    status, _ = await caller.call("POST", "/v1/transactions", b'["' + b"x" * BODY_BYTES + b'"]')
    assert status == 413
    assert (await caller.call("POST", "/v1/queries", "SELECT 1"))[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b'{"query":' * 1_000_000,
        json.dumps("SELECT " + "(" * 100_000).encode(),
        json.dumps("ATTACH '/etc/passwd' AS p").encode(),
        json.dumps("SELECT load_extension('x')").encode(),
        json.dumps("PRAGMA journal_mode = DELETE").encode(),
        json.dumps("SELECT 1; DROP TABLE machines").encode(),
        json.dumps("SELECT '\0'; DELETE FROM machines").encode(),
    ],
)
async def test_hostile_statements_are_refused(one: Served, body: bytes) -> None:
    caller = Caller(Http1(one.url))
    for path in ("/v1/queries", "/v1/subscriptions"):
        status, _ = await caller.call("POST", path, body)
        assert status in (400, 422), path
    status, _ = await caller.call("POST", "/v1/transactions", b"[" + body + b"]")
    assert status in (400, 422, 500)
    assert (await caller.call("POST", "/v1/queries", _QUERY))[0] == 200


async def test_a_subscription_of_endless_rows_is_refused(one: Served) -> None:
    query = "SELECT a.name FROM pragma_function_list a, pragma_function_list b, pragma_function_list c"
    assert (await Caller(Http1(one.url)).call("POST", "/v1/subscriptions", query))[0] == 400


async def test_a_reader_who_leaves_is_not_told_any_more(one: Served) -> None:
    for wire in (Http1(one.url), Http2(one.url)):
        async with Caller(wire).open("POST", "/v1/subscriptions", _QUERY) as live:
            await live.until("eoq")
            assert one.live.subscriptions[0].feed.idle_since is None
        await eventually(lambda: one.live.subscriptions[0].feed.idle_since is not None)


@pytest.mark.parametrize("protocol", ["h1", "h2c"])
async def test_a_client_that_does_not_keep_up_is_cut_off(tmp_path: Path, protocol: str) -> None:
    """It reads nothing while more is told than is kept for it, then finds its answer short."""
    turns = 60 if protocol == "h1" else 10  # what sockets hold for a client that does not read
    async with served(tmp_path, ring_events=3) as one:
        caller = Caller(Http1(one.url, buffer_bytes=1 << 20) if protocol == "h1" else Http2(one.url))
        async with caller.open("POST", "/v1/subscriptions", _QUERY) as live:
            await live.until("eoq")
            for turn in range(turns):
                await _put(Caller(Http1(one.url)), 1, f"{turn} {'x' * 400_000}")
                await one.live.flush()
            numbers = [line["change"][3] for line in await live.rest()]
    assert numbers == list(range(1, len(numbers) + 1)), "what it got has no holes"
    assert len(numbers) < turns


async def test_leaving_ends_all_answers(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        wires = (Http1(one.url), Http2(one.url))
        async with (
            Caller(wires[0]).open("POST", "/v1/subscriptions", _QUERY) as first,
            Caller(wires[1]).open("POST", "/v1/updates/machines") as second,
        ):
            await first.until("eoq")
            one.app.stop()
            assert await first.rest() == []
            assert await second.rest() == []
    assert len(list((tmp_path / "subscriptions").glob("*.db"))) == 1


async def test_health_by_the_callers_bounds(one: Served) -> None:
    caller = Caller(Http1(one.url))
    one.node.now = Vitals(gaps=2, members=3, p99_lag=0.5, queue_size=10)
    said = {"response": {"gaps": 2, "members": 3, "p99_lag": 0.5, "queue_size": 10}}
    assert await caller.ask("GET", "/v1/health") == (200, said)
    assert await caller.ask("GET", "/v1/health?gaps=1") == (503, said)
    assert await caller.ask("GET", "/v1/health?gaps=1&failure_status=418") == (418, said)
    assert (await caller.call("GET", "/v1/health?gaps=x"))[0] == 400
    assert (await caller.call("GET", "/v1/health?failure_status=9"))[0] == 400
    one.node.now = Vitals(gaps=0, members=1, p99_lag=None, queue_size=0)
    assert await caller.ask("GET", "/v1/health") == (503, {"error": "no p99 lag information available"})


@pytest.mark.parametrize(
    ("bounds", "well"),
    [
        ({}, True),
        ({"gaps": "2"}, True),
        ({"gaps": "1"}, False),
        ({"max_queue": "9"}, False),
        ({"max_queue": "10"}, True),
        ({"p99_lag": "0.4"}, False),
        ({"p99_lag": "0.5"}, True),
        ({"p99_lag": "0.4", "queue_size": "10"}, True),
        ({"p99_lag": "0.4", "queue_size": "9"}, False),
    ],
)
def test_a_healthy_node(bounds: dict[str, str], well: bool) -> None:
    assert is_well(Vitals(gaps=2, members=3, p99_lag=0.5, queue_size=10), bounds) is well


async def test_rows_are_counted(one: Served) -> None:
    caller = Caller(Http1(one.url))
    await _put(caller, 1, "on")
    await _put(caller, 2, "on")
    said = {"tables": ["machines", "nodes", "nowhere", "__c_log"]}
    answer = {"total_row_count": 2, "invalid_tables": ["nowhere", "__c_log"]}
    assert await caller.ask("POST", "/v1/table_stats", said) == (200, answer)
    assert (await caller.call("POST", "/v1/table_stats", {"tables": 1}))[0] == 422
    assert (await caller.call("POST", "/v1/table_stats", b"{"))[0] == 400


async def test_tables_can_be_declared(one: Served) -> None:
    caller = Caller(Http1(one.url))
    table = "CREATE TABLE notes (node TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (node, id))"
    status, answer = await caller.ask("POST", "/v1/migrations", [table])
    assert (status, answer["results"], answer["version"]) == (200, [], None)
    assert (await caller.call("POST", "/v1/queries", "SELECT * FROM notes"))[0] == 200
    status, answer = await caller.ask("POST", "/v1/migrations", ["CREATE TABLE bad (a)"])
    assert (status, len(answer["results"])) == (500, 1)
    assert (await caller.call("POST", "/v1/migrations", []))[0] == 400


async def test_no_migrations_where_they_are_not_served(tmp_path: Path) -> None:
    async with served(tmp_path, with_migrations=False) as one:
        assert (await Caller(Http1(one.url)).call("POST", "/v1/migrations", ["SELECT 1"]))[0] == 404


@pytest.mark.parametrize("listen", ["", "4281", "host", "127.0.0.1:", "127.0.0.1:99999", "240.0.0.1:0"])
def test_where_it_cannot_listen(listen: str) -> None:
    with pytest.raises(CannotStart, match="--catalog-listen"):
        bind(listen)


async def test_many_requests_over_one_connection(one: Served) -> None:
    async with await anyio.connect_tcp("127.0.0.1", int(one.url.rpartition(":")[2])) as stream:
        body = b'"SELECT 1"'
        head = b"POST /v1/queries HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        for _ in range(3):
            await stream.send(head % len(body) + body)
            answer = b""
            while not answer.endswith(b"0\r\n\r\n"):
                answer += await stream.receive()
            assert answer.startswith(b"HTTP/1.1 200")
