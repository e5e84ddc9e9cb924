"""Lines on their way to a collector: in its notation, each once while it takes them, and what was cut off counted."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from aiohttp import web

from hawker.clock import SystemClock
from hawker.logs.app_log import PositionedLine
from hawker.logs.line import KeptLine
from hawker.logs.machine_logs import MachineLogs
from hawker.logs.shipping import Batch, Shipping, lines_of_json, loki, otlp, target_of
from hawker.record.node import NodeRecord
from tests.logs.test_machine_logs import Desk, desk, until
from tests.waiting import eventually

__all__ = ["desk"]
pytestmark = pytest.mark.anyio
NODE = NodeRecord(id="n1", region="mad", created_at=0.0)  # type: ignore[arg-type]
LINES = [
    PositionedLine(position=7, line=KeptLine(at=5, machine="m1", stream=1, text="out", container="web")),
    PositionedLine(position=8, line=KeptLine(at=6, machine="m1", stream=0, text="x", level="error", provider="runner")),
]
BATCH = Batch(app="shop", node=NODE, lines=LINES)


def test_lines_of_json_have_all_that_a_line_has() -> None:
    first, second = (msgspec.json.decode(each) for each in lines_of_json(BATCH).body.splitlines())
    assert first == {
        "at": 5, "app": "shop", "machine": "m1", "region": "mad", "node": "n1", "stream": 1, "container": "web",
        "level": "info", "provider": "app", "text": "out",
    }  # fmt: skip
    assert (second["provider"], second["level"]) == ("runner", "error")


def test_lokis_streams_have_labels_of_few_values() -> None:
    first, second = msgspec.json.decode(loki(BATCH).body)["streams"]
    assert first["stream"] == {
        "app": "shop", "region": "mad", "node": "n1", "provider": "app", "level": "info", "stream": "1",
    }  # fmt: skip
    assert first["values"] == [["5", "out", {"machine": "m1", "container": "web"}]]
    assert second["values"][0][:2] == ["6", "x"]


def test_otlp_has_a_resource_and_its_records() -> None:
    (told,) = msgspec.json.decode(otlp(BATCH).body)["resourceLogs"]
    names = {each["key"]: each["value"]["stringValue"] for each in told["resource"]["attributes"]}
    assert names == {"service.name": "shop", "host.id": "n1", "cloud.region": "mad"}
    first, second = told["scopeLogs"][0]["logRecords"]
    assert (first["timeUnixNano"], first["body"], first["severityNumber"]) == ("5", {"stringValue": "out"}, 9)
    assert second["severityNumber"] == 17


@pytest.mark.parametrize(
    ("endpoint", "notation", "url"),
    [
        ("http://h:1/in", lines_of_json, "http://h:1/in"),
        ("otlp+http://h:4318", otlp, "http://h:4318/v1/logs"),
        ("loki+https://h", loki, "https://h/loki/api/v1/push"),
        ("loki+http://h/mine", loki, "http://h/mine"),
    ],
)
def test_an_endpoint_says_its_notation_and_has_its_usual_path(endpoint: str, notation: Any, url: str) -> None:
    assert target_of(endpoint) == (notation, url)


class Collector:
    """Takes lines of JSON while `status` is 200, `most` at once, and none that say `poison`."""

    def __init__(self) -> None:
        self.status, self.texts, self.url, self.most = 200, list[str](), "", 10_000

    async def take(self, request: web.Request) -> web.Response:
        texts = [msgspec.json.decode(line)["text"] for line in (await request.read()).splitlines()]
        if self.status == 200:
            if len(texts) > self.most:
                return web.Response(status=413)
            if "poison" in texts:
                return web.Response(status=400)
            self.texts += texts
        return web.Response(status=self.status)

    async def take_a_part(self, request: web.Request) -> web.Response:
        """As OTLP's collectors do."""
        (told,) = msgspec.json.decode(await request.read())["resourceLogs"]
        self.texts += [each["body"]["stringValue"] for each in told["scopeLogs"][0]["logRecords"]][1:]
        return web.json_response({"partialSuccess": {"rejectedLogRecords": "1", "errorMessage": "too old"}})


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    found, app = Collector(), web.Application()
    app.router.add_post("/in", found.take)
    app.router.add_post("/v1/logs", found.take_a_part)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        found.url = f"http://127.0.0.1:{runner.addresses[0][1]}/in"
        yield found
    finally:
        await runner.cleanup()


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that a busy host has sent, and has no answer to in ten seconds, would be sent twice."""
    monkeypatch.setattr("hawker.logs.shipping._SEND_S", 60.0)


@asynccontextmanager
async def shipping(desk: Desk, logs: MachineLogs, url: str, state: Path) -> AsyncIterator[None]:
    async with aiohttp.ClientSession() as http, anyio.create_task_group() as tasks:
        tasks.start_soon(Shipping(url, state, logs, NODE, desk.store, SystemClock(), lambda: http).serve)
        yield
        tasks.cancel_scope.cancel()


async def came(to: Collector, *texts: str) -> None:
    async def there() -> bool:
        return to.texts == list(texts)

    await eventually(there, 120)  # after a pause that was as long as the collector was away


async def test_lines_are_sent_on_over_a_collector_and_a_daemon_that_were_away(desk: Desk, tmp_path: Path) -> None:
    state = tmp_path / "sent"
    async with collector() as to:
        desk.ring.write("one\n")
        async with desk.daemon() as logs, shipping(desk, logs, to.url, state):
            await came(to, "one")
            to.status = 503
            desk.ring.write("two\n")
            await until(logs, "one", "two")
            to.status = 200
            await came(to, "one", "two")
            await eventually(lambda: _sent(logs, 2, 0), 60)
        desk.ring.write("three\n")
        async with desk.daemon() as logs, shipping(desk, logs, to.url, state):
            await came(to, "one", "two", "three")


async def test_lines_cut_off_before_they_could_be_sent_are_counted(desk: Desk, tmp_path: Path) -> None:
    state = tmp_path / "sent"
    async with collector() as to:
        desk.ring.write("one\n")
        async with desk.daemon() as logs, shipping(desk, logs, to.url, state):
            await came(to, "one")
            await eventually(lambda: _sent(logs, 1, 0), 60)
        async with desk.daemon() as logs:
            desk.ring.write("two\n", "three\n")
            await until(logs, "one", "two", "three")
        places = msgspec.json.decode(state.read_bytes())
        state.write_bytes(msgspec.json.encode({key: place - 4 for key, place in places.items()}))
        async with desk.daemon() as logs, shipping(desk, logs, to.url, state):
            await came(to, "one", "one", "two", "three")
            await eventually(lambda: _sent(logs, 3, 3), 60)


async def test_a_state_that_is_damaged_sends_what_is_kept_from_its_beginning(desk: Desk, tmp_path: Path) -> None:
    state = tmp_path / "sent"
    state.write_bytes(os.urandom(20))
    async with collector() as to:
        desk.ring.write("one\n")
        async with desk.daemon() as logs, shipping(desk, logs, to.url, state):
            await came(to, "one")


async def _sent(logs: MachineLogs, sent: int, dropped: int) -> bool:
    return (logs.counts["sent"], logs.counts["dropped"]) == (sent, dropped)


async def test_lines_that_the_collector_never_takes_hold_nothing_up_and_are_counted(desk: Desk, tmp_path: Path) -> None:
    async with collector() as to:
        to.most = 1
        desk.ring.write("one\n", "poison\n", "two\n")
        async with desk.daemon() as logs, shipping(desk, logs, to.url, tmp_path / "sent"):
            await came(to, "one", "two")
            await eventually(lambda: _sent(logs, 2, 1), 60)
            to.most = 10_000
            desk.ring.write("three\n")
            await came(to, "one", "two", "three")


async def test_lines_a_collector_of_otlp_says_that_it_rejected_are_counted(desk: Desk, tmp_path: Path) -> None:
    async with collector() as to:
        desk.ring.write("one\n", "two\n")
        endpoint = "otlp+" + to.url.removesuffix("/in")
        async with desk.daemon() as logs, shipping(desk, logs, endpoint, tmp_path / "sent"):
            await eventually(lambda: _sent(logs, 1, 1), 60)
            assert to.texts == ["two"]


async def test_an_answer_of_a_collector_that_never_ends_is_not_read_to_its_end(desk: Desk, tmp_path: Path) -> None:
    asked = list[bytes]()

    async def never_ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(never_ends, "127.0.0.1", 0)
    async with server:
        endpoint = f"otlp+http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        desk.ring.write("one\n")
        async with desk.daemon() as logs, shipping(desk, logs, endpoint, tmp_path / "sent"):
            await eventually(lambda: _sent(logs, 1, 0), 60)
    assert asked
