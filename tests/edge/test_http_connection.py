"""HTTP/1.1 through the edge, as bytes: what machines get, what clients get, and what hostile input gets."""

import asyncio
import re
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import anyio.lowlevel
import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.config.machine import HttpOptions
from hawker.edge import http_connection
from hawker.edge.exchange import HttpExchange
from hawker.edge.head import ResponseHead
from hawker.edge.http_connection import HttpConnection, HttpConnections
from hawker.edge.machine_connection import MachineConnection
from hawker.edge.requester import HttpServices
from hawker.edge.routes import Door
from hawker.edge.splice import ROOM_AT, UNSENT_MAX
from hawker.http.untaken import _told
from hawker.ids import InstanceId
from hawker.machine import State
from tests.edge.edge_kit import (
    HOST,
    OK,
    PlayedHost,
    Serve,
    app_server,
    ask,
    deaf_client,
    get,
    given_up,
    read_request,
    route,
    says,
)
from tests.ports import free_port
from tests.waiting import eventually


async def published(host: PlayedHost, inside: int, **options: object) -> int:
    port = free_port()
    await host.publish(route(port, inside, handlers=("http",), **options))  # type: ignore[arg-type]
    return port


async def test_a_request_reaches_the_machine_with_our_fields_and_none_of_the_clients(host: PlayedHost) -> None:
    seen: list[bytes] = []
    async with app_server(says(OK, seen)) as inside:
        port = await published(host, inside)
        forged = ("Fly-Client-IP: 6.6.6.6", "X-Forwarded-For: 1.2.3.4", "fly-replay-src: x", "X-Forwarded-Proto: https")
        answer = await ask(port, get("/a?b=c", *forged, "Via: 1.0 old", "X_Y: 1", "Connection: X-Gone", "X-Gone: 1"))
    head = seen[0].decode().lower()
    assert head.startswith("get /a?b=c http/1.1\r\nhost: shop.localhost\r\n")
    assert "fly-client-ip: 127.0.0.1\r\n" in head and "6.6.6.6" not in head
    assert "x-forwarded-for: 1.2.3.4, 127.0.0.1, 127.0.0.1\r\n" in head
    assert "x-forwarded-proto: http\r\n" in head and "via: 1.0 old, 1.1 hawker\r\n" in head
    assert f"fly-forwarded-port: {port}\r\n" in head and "fly-region: ams\r\n" in head
    assert "x_y" not in head and "x-gone" not in head and "replay" not in head
    given = re.search(r"fly-request-id: (\w{26}-ams)", head)
    assert given and given[1].encode() in answer.lower()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"\r\n\r\nok")
    assert b"via: 1.1 hawker" in answer and b"server: hawker" in answer


async def test_requests_of_one_connection_are_answered_in_order(host: PlayedHost) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await read_request(reader)).split()[1]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(path), path))

    async with app_server(serve) as inside:
        port = await published(host, inside)
        keep = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"
        answer = await ask(port, b"".join(keep % number for number in range(5)) + get("/last"))
    assert re.findall(rb"/(?:\d|last)$|/\d(?=HTTP)", answer) == [b"/0", b"/1", b"/2", b"/3", b"/4", b"/last"]


async def test_bodies_keep_their_framing_and_lose_chunk_extensions(host: PlayedHost) -> None:
    seen: list[bytes] = []
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n"
    async with app_server(says(chunked, seen)) as inside:
        port = await published(host, inside)
        request = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        answer = await ask(port, request + b"5;a=b\r\nhello\r\n0\r\n\r\n")
        old = await ask(port, b"GET / HTTP/1.0\r\n\r\n")
    assert seen[0].endswith(b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n") and b"content-length" not in seen[0]
    assert answer.endswith(b"\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n")
    assert old.endswith(b"\r\n\r\nabc") and b"chunked" not in old


async def test_an_upload_is_asked_for_once_it_is_admitted(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = await published(host, inside)
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"abc")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_an_upgrade_becomes_a_stream_both_ways(host: PlayedHost) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_request(reader)
        assert b"upgrade: websocket" in head.lower() and b"sec-websocket-key: k" in head.lower()
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi ")
        while data := await reader.read(100):
            writer.write(data.upper())

    async with app_server(serve) as inside:
        port = await published(host, inside)
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(get("/ws", "Upgrade: websocket", "Sec-WebSocket-Key: k").replace(b": close", b": Upgrade"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101") and b"upgrade: websocket" in head
        assert await reader.readexactly(3) == b"hi "
        writer.write(b"frames")
        assert await reader.readexactly(6) == b"FRAMES"
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400, "HB01"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "HB01"),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400, "HB01"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n", 400, "HB01"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "HB01"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400, "HB01"),
        (b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "HB01"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "HB01"),
        (b"GET http://evil/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "HB01"),
        (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "HB01"),
        (b"GET /#x HTTP/1.1\r\nHost: a\r\n\r\n", 400, "HB01"),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 405, "HB07"),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414, "HB03"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: 1\r\n" * 200 + b"\r\n", 431, "HB02"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: " + b"a" * 70_000, 431, "HB02"),
    ],
)
async def test_hostile_requests_get_their_answer_and_reach_no_machine(
    host: PlayedHost, request_bytes: bytes, status: int, code: str
) -> None:
    seen: list[bytes] = []
    async with app_server(says(OK, seen)) as inside:
        port = await published(host, inside)
        answer = await ask(port, request_bytes)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert code.encode() in answer
    assert not any(request.endswith(b"\r\n\r\n") and code != "HB01" for request in seen)


async def test_a_head_that_does_not_end_is_ended(host: PlayedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HEAD_S", 1.0)
    async with app_server(says(OK)) as inside:
        port = await published(host, inside)
        assert (await ask(port, b"GET / HTTP/1.1\r\nHost: a\r\nX: ")).startswith(b"HTTP/1.1 408 ")
        assert await ask(port, b"") == b"", "who says nothing hears nothing"


async def test_a_malformed_answer_of_a_machine_is_502_and_told_to_the_app(host: PlayedHost) -> None:
    async with app_server(
        says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n")
    ) as inside:
        port = await published(host, inside)
        answer = await ask(port, get())
    assert answer.startswith(b"HTTP/1.1 502 ") and b"PU02" in answer
    await eventually(lambda: host.worker.lines)
    assert host.worker.lines[0].code == "PU02" and host.worker.lines[0].app == "shop"


async def test_an_answer_that_breaks_off_ends_without_its_end(host: PlayedHost) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

    async with app_server(serve) as inside:
        port = await published(host, inside)
        with pytest.raises(ConnectionResetError):
            await ask(port, get())


async def test_a_post_is_sent_once_and_a_get_again_over_a_connection_that_rested(host: PlayedHost) -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one request and then, having read the next one, leaves."""
        seen.append(await read_request(reader))
        writer.write(OK)
        seen.append(await read_request(reader))

    async with app_server(serve) as inside:
        port = await published(host, inside, kind="requests")
        assert b"200 OK" in await ask(port, get())
        assert b"200 OK" in await ask(port, get("/again"))
        assert [request.split()[1] for request in seen] == [b"/", b"/again", b"/again"]
        answer = await ask(port, get("/post", "Content-Length: 0", method="POST"))
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert [request.split()[1] for request in seen][3:] == [b"/post"]


async def test_several_apps_at_one_port_are_told_apart_by_name(host: PlayedHost) -> None:
    async with (
        app_server(says(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nshop")) as one,
        app_server(says(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbank")) as two,
    ):
        port = await published(host, one)
        await host.publish(route(port, two, app="bank", handlers=("http",)))
        assert (await ask(port, get(host="shop.localhost"))).endswith(b"shop")
        assert (await ask(port, get(host=f"BANK.example.com:{port}"))).endswith(b"bank")
        assert (await ask(port, get(host="127.0.0.1"))).endswith(b"shop"), "who names no app means the first one"


async def test_fields_of_the_config_are_set_and_taken_out(host: PlayedHost) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Old: 1\r\nServer: app\r\nfly-replay-cache: x\r\n\r\n"
    async with app_server(says(answer)) as inside:
        options = {"response": {"headers": {"x-old": False, "X-New": ["a", "b"]}, "pristine": True}}
        port = await published(host, inside, options=msgspec.convert(options, HttpOptions))
        found = (await ask(port, get())).lower()
    assert b"x-old" not in found and b"x-new: a\r\nx-new: b\r\n" in found
    assert b"server: app" in found and b"via" not in found and b"replay" not in found


async def test_an_app_that_comes_later_does_not_change_how_a_port_is_spoken_to(host: PlayedHost) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"raw " + await reader.readline())

    async with app_server(greet) as raw, app_server(says(OK)) as other:
        port = free_port()
        await host.publish(route(port, raw))
        await host.publish(route(port, other, app="bank", handlers=("http",)))
        assert await ask(port, get(host="bank.localhost")) == b"raw GET / HTTP/1.1\r\n"


async def test_a_large_upload_that_waits_for_its_machine_is_passed_on_whole(host: PlayedHost) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = (await read_request(reader)).partition(b"\r\n\r\n")[2]
        answer = b"%d" % len(body)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))

    async with app_server(serve) as inside:
        port = free_port()
        host.worker.on_wake = lambda machine: msgspec.structs.replace(
            machine, state=State.STARTED, instance=InstanceId("woken")
        )
        await host.publish(route(port, inside, handlers=("http",), state=State.STOPPED))
        request = get("/", "Content-Length: 3000000", method="POST") + b"x" * 3_000_000
        assert (await ask(port, request)).endswith(b"3000000")


async def test_an_answer_that_stands_still_is_ended_after_its_time(host: PlayedHost) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await reader.read()

    async with app_server(serve) as inside:
        port = await published(host, inside, options=HttpOptions(idle_timeout=1))
        assert b"PU03" in await ask(port, get())


async def test_a_head_that_comes_byte_by_byte_is_a_head(host: PlayedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "LINGER_S", 60.0)
    async with app_server(says(OK)) as inside:
        port = await published(host, inside)
        for request, expected in ((get(), b"200 OK"), (b"GET / HTTP/1.1\r\nHost: a\nX: 1\r\n\r\n", b"HB01")):
            reader, writer = await asyncio.open_connection(HOST, port)
            for byte in request:
                writer.write(bytes([byte]))
                await asyncio.wait_for(writer.drain(), 60)
                await anyio.lowlevel.checkpoint()
            assert expected in await reader.read()
            writer.close()


async def test_the_config_says_how_long_a_head_may_take(host: PlayedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HEAD_S", 600.0)
    async with app_server(says(OK)) as inside:
        port = await published(host, inside, options=HttpOptions(headers_read_timeout=1))
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET / HTTP/1.1\r\nHost")
        assert b"HB04" in await asyncio.wait_for(reader.read(), 60)
        writer.close()


@pytest.mark.parametrize(("path", "answers"), [("/upload", False), ("/talk", True)])
async def test_a_body_that_drips_has_an_end_unless_an_answer_has_begun(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch, path: str, answers: bool
) -> None:
    seen, later, now = bytearray(), 0.0, SystemClock.monotonic
    monkeypatch.setattr(SystemClock, "monotonic", lambda clock: now() + later)

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answers:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        while byte := await reader.read(1):
            seen.extend(byte)
            if len(seen) == 3:
                writer.write(b"ok")

    async with app_server(listen) as inside:
        reader, writer = await asyncio.open_connection(HOST, await published(host, inside))
        writer.write(get(path, "Content-Length: 1000", method="POST"))
        if answers:
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        for number in (1, 2):
            writer.write(b"x")
            await eventually(partial(seen.endswith, b"x" * number))
            later += 35
        if answers:
            writer.write(b"x")
            assert await reader.readexactly(2) == b"ok"
        else:
            assert b"HB04" in await asyncio.wait_for(reader.read(), 60)
        writer.close()


PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000
ASKS = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def the_client(host: PlayedHost) -> HttpConnection:
    """The only one, as the edge has it."""
    (connection,) = await eventually(lambda: list(host.edge._http._live))
    assert isinstance(connection, HttpConnection)
    return connection


def unsent(connection: HttpConnection) -> int:
    return 0 if connection._transport is None else connection._transport.get_write_buffer_size()


async def test_a_client_that_reads_nothing_is_asked_for_no_more_requests(host: PlayedHost) -> None:
    """Each request dials: the client is full while there is no machine yet that could be read no more."""
    count = 150
    async with app_server(says(PAGE)) as inside, app_server(says(OK)) as other:
        port = await published(host, inside)
        await host.publish(route(port, other, app="bank", handlers=("http",)))
        with closing(deaf_client(port)) as client:
            client.send(ASKS * (count - 1) + get())
            connection = await the_client(host)
            await eventually(lambda: unsent(connection) > UNSENT_MAX)
            for _ in range(20):  # so much goes on meanwhile
                assert b"200 OK" in await ask(port, get(host="bank.localhost"))
            assert unsent(connection) < UNSENT_MAX + 2 * len(PAGE)
            heard, loop = bytearray(), asyncio.get_running_loop()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            while data := await asyncio.wait_for(loop.sock_recv(client, 1 << 20), 60):
                heard += data
            assert heard.count(b"HTTP/1.1 200") == count


async def test_a_machine_is_not_read_for_a_client_that_is_full_when_it_is_reached(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines: list[MachineConnection] = []

    class Full(HttpExchange):
        def _begin(self, leg: Any, joined: Any, *, pooled: bool) -> None:
            machines.append(joined.protocol)
            cast(HttpConnection, self._client).pause_writing()
            super()._begin(leg, joined, pooled=pooled)

    monkeypatch.setattr(HttpConnection, "carrier", Full)
    async with app_server(says(OK)) as inside:
        reader, writer = await asyncio.open_connection(HOST, await published(host, inside))
        writer.write(get())
        await eventually(lambda: machines)
        transport = machines[0].transport
        assert transport is not None and not transport.is_reading()
        (await the_client(host)).resume_writing()
        assert b"200 OK" in await asyncio.wait_for(reader.read(), 60)
        writer.close()


@pytest.mark.parametrize(("unsent", "told"), [(UNSENT_MAX, 1), (ROOM_AT, 0)])
async def test_an_upgraded_client_that_is_full_is_so_for_who_has_it_next(unsent: int, told: int) -> None:
    connection = HttpConnection(cast(HttpServices, Mock()), Door(HOST, 80), set())
    connection._transport, connection._head = transport, _ = Mock(), Mock(upgrade=b"websocket")
    transport.get_protocol.return_value = side = Mock()
    transport.get_write_buffer_size.return_value = unsent
    transport.write.side_effect = lambda data: connection.pause_writing()
    connection.hand_over(cast(ResponseHead, Mock(status=101, reason=b"", upgrade=b"")), [])
    side.pause_writing.assert_not_called()
    await anyio.lowlevel.checkpoint()
    assert (side.pause_writing.call_count, connection.choked) == (told, False), "it is another's now"


@contextmanager
def movable_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """How much later it is for everybody."""
    later, now = [0.0], SystemClock.monotonic
    monkeypatch.setattr(SystemClock, "monotonic", lambda clock: now() + later[0])
    yield later


def pours(size: int) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 100_000):
            writer.write(b"x" * 100_000)
            await writer.drain()

    return serve


@pytest.mark.parametrize("when", ["in the middle of an answer", "between two"])
async def test_a_client_that_takes_nothing_for_a_minute_is_given_up(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    serve = says(PAGE) if when == "between two" else pours(100_000_000)
    async with app_server(serve) as inside:
        port = await published(host, inside)
        with movable_time(monkeypatch) as later, closing(deaf_client(port)) as client:
            client.send(ASKS * 300)
            connection = await the_client(host)
            await eventually(lambda: connection.choked and connection._untaken.on_its_way)
            await given_up(connection, later)
        await eventually(lambda: not any(gate.total for gate in host.edge.gates.of.values()))


async def test_a_closed_client_that_takes_no_rest_of_its_answers_is_given_up(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []
    async with app_server(says(PAGE, seen)) as inside:
        port = await published(host, inside)
        with movable_time(monkeypatch) as later, closing(deaf_client(port)) as client:
            client.send(ASKS)
            connection = await the_client(host)
            while True:
                await eventually(lambda: seen and connection._exchange is None)
                if unsent(connection):
                    break
                seen.clear()
                client.send(ASKS)
            later[0] += 76
            await eventually(lambda: connection._untaken.on_its_way)
            assert connection._transport is not None and connection._transport.is_closing()
            await given_up(connection, later)


async def test_a_client_that_reads_slowly_hears_all(host: PlayedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    size, loop = 8_000_000, asyncio.get_running_loop()
    async with app_server(pours(size)) as inside:
        port = await published(host, inside)
        with movable_time(monkeypatch) as later, closing(deaf_client(port)) as client:
            client.send(get())
            connection, heard = await the_client(host), 0
            await eventually(lambda: connection.choked and connection._untaken.on_its_way)
            for _ in range(4):
                assert connection._transport is not None
                before = _told(connection._transport)[0]
                while _told(connection._transport)[0] == before:
                    heard += len(await asyncio.wait_for(loop.sock_recv(client, 1 << 14), 60))
                    await anyio.lowlevel.checkpoint()
                looked_at = connection._untaken._look_at
                later[0] += 40
                await eventually(lambda: connection._untaken._look_at != looked_at)  # noqa: B023
            while data := await asyncio.wait_for(loop.sock_recv(client, 1 << 20), 60):
                heard += len(data)
        assert heard > size


class _Looked:
    """A connection that counts how often somebody looks at its time."""

    def __init__(self) -> None:
        self.times = 0

    def check_time(self, now: float) -> None:
        self.times += 1


def test_of_many_connections_each_look_takes_some_and_none_that_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "CHECKED", 2)
    there = HttpConnections(cast(HttpServices, SimpleNamespace(clock=SystemClock())))
    all_of_them = [_Looked() for _ in range(5)]
    live = cast("set[_Looked]", there._live)
    live.update(all_of_them)
    there.check_time()
    assert sum(each.times for each in all_of_them) == 2
    gone = next(each for each in all_of_them if not each.times)
    live.remove(gone)
    there.check_time()
    there.check_time()
    assert [each.times for each in all_of_them if each is not gone] == [1] * 4 and not gone.times
    there.check_time()
    assert sum(each.times for each in all_of_them) == 6
