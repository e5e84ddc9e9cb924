"""The session of HTTP/2: what strangers' tools say of it over a real edge."""

import asyncio
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import anyio
import pytest

from hawker.edge import nghttp2
from hawker.edge.head import Field
from hawker.edge.nghttp2 import CANCEL, Http2Session
from hawker.http.untaken import UNTAKEN_S
from tests.edge.edge_kit import HOST, OK, PlayedHost, app_server, route, says
from tests.ports import free_port

MODULE = """module judge
go 1.21
require (
	github.com/spf13/cobra v1.10.2
	github.com/summerwind/h2spec v2.2.1+incompatible
)
"""
PROGRAM = (
    'package main\n\nimport (\n\t_ "github.com/spf13/cobra"\n\t_ "github.com/summerwind/h2spec"\n)\n\nfunc main() {}\n'
)
EXPECTED = {
    "3.5. HTTP/2 Connection Preface 2": "what is no preface is HTTP/1.1 here, and is answered as that",
    "5.1.1. Stream Identifiers 2": "libnghttp2 passes over a stream that was left out: it is closed",
}


@pytest.fixture(scope="module")
def h2spec() -> Iterator[Path]:
    """Built by Go, whose cache makes the second time quick."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("needs Go, to build h2spec")
    folder = Path(tempfile.mkdtemp(prefix="h2spec"))
    (folder / "go.mod").write_text(MODULE)
    (folder / "main.go").write_text(PROGRAM)
    environment = {**os.environ, "GOFLAGS": "-mod=mod"}
    for argv in (["mod", "tidy"], ["build", "-o", "h2spec", "github.com/summerwind/h2spec/cmd/h2spec"]):
        built = subprocess.run([go, *argv], cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if built.returncode:
            shutil.rmtree(folder)
            pytest.skip(f"Go cannot build h2spec here: {built.stderr[-200:]}")
    yield folder / "h2spec"
    shutil.rmtree(folder)


@pytest.mark.long(reason="Go builds h2spec; tests/edge/test_http2_connection.py has the short form")
async def test_h2spec_finds_nothing_that_is_not_known(host: PlayedHost, h2spec: Path) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",), kind="requests"))
        argv = [str(h2spec), "-h", HOST, "-p", str(port), "-o", "60"]
        said = (await anyio.run_process(argv, check=False)).stdout.decode()
    found, section = set(), ""
    for line in said.partition("Failures:")[2].splitlines():
        if match := re.match(r"\s*(\d[\d.]* \S.*)", line):
            section = match[1]
        elif match := re.match(r"\s*× (\d+):", line):
            found.add(f"{section} {match[1]}")
    assert "145 tests" in said and found <= EXPECTED.keys(), said


class Heard:
    """Keeps `Http2User`."""

    def __init__(self) -> None:
        self.said: list[object] = []

    def on_head(self, stream: int, fields: list[Field], *, ended: bool) -> None:
        self.said.append((fields, ended))

    def on_trailers(self, stream: int, fields: list[Field]) -> None:
        self.said.append(fields)

    def on_data(self, stream: int, data: bytes) -> None:
        self.said.append(data)

    def on_end(self, stream: int) -> None:
        self.said.append("end")

    def on_closed(self, stream: int, error: int) -> None:
        self.said.append(error)

    def on_room(self, stream: int) -> None: ...


def test_two_sessions_understand_each_other() -> None:
    now = partial(float, 0)
    asks, answers = Heard(), Heard()
    client, server = Http2Session(asks, now, client=True), Http2Session(answers, now)
    asked = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"a"), (b":path", b"/"), (b"cookie", b"x")]
    stream = client.request(asked, ended=True)

    def pass_on() -> None:
        for _ in range(3):
            assert not server.feed(client.take(1 << 20)) and not client.feed(server.take(1 << 20))

    pass_on()
    assert answers.said == [(asked, True)]
    server.interim(stream, [(b":status", b"103")])
    server.answer(stream, [(b":status", b"200")], ended=False)
    assert server.send(stream, b"hello") == 5 and not server.has_sent(stream)
    server.finish(stream, ((b"x-sum", b"7"),))
    pass_on()
    assert server.has_sent(stream)
    heads = [([(b":status", status)], False) for status in (b"103", b"200")]
    assert asks.said == [*heads, b"hello", [(b"x-sum", b"7")], 0]
    server.shut()
    pass_on()
    assert client.over


class Pair:
    """A client's session and the server's; the client's kernel hears at once, and it reads what it is told to."""

    def __init__(self, streams: int) -> None:
        self.client, self.server = Http2Session(Mock(), lambda: 0.0, client=True), Http2Session(Mock(), lambda: 0.0)
        asked = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"a"), (b":path", b"/")]
        self.streams = [self.client.request(asked, ended=True) for _ in range(streams)]
        self.pass_on()
        for stream in self.streams:
            self.server.answer(stream, [(b":status", b"200")], ended=False)
            self.server.send(stream, b"x" * 300_000)
        self.pass_on()

    def pass_on(self) -> None:
        for _ in range(3):
            self.server.feed(self.client.take(1 << 22))
            self.client.feed(self.server.take(1 << 22))

    def read(self, *streams: int) -> None:
        """Half of its window of each, and a little more."""
        for stream in streams:
            self.client.consume(stream, 140_000)
        self.pass_on()


def test_stream_that_the_client_shuts_is_late_though_another_one_moves() -> None:
    pair = Pair(2)
    shut, moves = pair.streams
    found = []
    for now in (0.0, 30.0, UNTAKEN_S):
        found.append(pair.server.untaken(now, UNTAKEN_S, excused=False))
        pair.server.send(moves, b"x" * 100_000)
        pair.read(moves)
    assert found == [[], [], [shut]]


def test_stream_that_waits_for_others_is_late_once_nothing_moves() -> None:
    pair = Pair(5)
    assert not pair.server.untaken(0.0, UNTAKEN_S, excused=False)
    assert pair.server.waiting > 5 * 300_000 - (1 << 21)
    pair.read(*pair.streams[:4])
    late = pair.server.untaken(59.0, UNTAKEN_S, excused=False)
    assert not late and not pair.server.untaken(118.0, UNTAKEN_S, excused=False)
    assert pair.server.untaken(59.0 + UNTAKEN_S, UNTAKEN_S, excused=False)


def test_stream_whose_bytes_are_on_their_way_is_excused() -> None:
    server = Pair(1).server
    assert not server.untaken(0.0, UNTAKEN_S, excused=False)
    assert not server.untaken(UNTAKEN_S, UNTAKEN_S, excused=True)
    assert not server.untaken(2 * UNTAKEN_S - 1, UNTAKEN_S, excused=False)
    assert server.untaken(2 * UNTAKEN_S, UNTAKEN_S, excused=False)


def test_stream_that_ends_leaves_nothing_that_waits() -> None:
    pair = Pair(2)
    assert pair.server.waiting > 0
    for stream in pair.streams:
        pair.server.reset(stream, CANCEL)
    pair.pass_on()
    assert pair.server.waiting == 0


def test_stream_that_was_reset_before_its_answer_takes_none() -> None:
    pair = Pair(1)
    (stream,) = pair.streams
    pair.client.reset(stream, CANCEL)
    pair.pass_on()
    pair.server.answer(stream, [(b":status", b"200")], ended=False)
    assert pair.server.send(stream, b"x" * 300_000) == 0
    assert pair.server.waiting == 0
    assert not pair.server.untaken(UNTAKEN_S, UNTAKEN_S, excused=False)


async def test_curl_speaks_http2_where_it_is(host: PlayedHost) -> None:
    curl = shutil.which("curl")
    if curl is None or b"HTTP2" not in (await anyio.run_process([curl, "--version"])).stdout:
        pytest.skip("needs a curl that speaks HTTP/2")
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",)))
        argv = [curl, "-s", "--http2-prior-knowledge", "-w", " %{http_version}", f"http://{HOST}:{port}/"]
        said = await asyncio.wait_for(anyio.run_process(argv), 60)
    assert said.stdout == b"ok 2"


def test_the_library_is_on_this_host() -> None:
    assert nghttp2.is_there(), "install libnghttp2: without it clients are offered HTTP/1.1 only"
