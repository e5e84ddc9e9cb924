"""HTTP/2 through the edge, spoken by a second implementation (the pure-Python `h2`): streams, bodies both ways at once,
trailers, WebSockets, and what hostile clients get.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import pytest

from hawker.edge import nghttp2
from hawker.edge.exchange import HttpExchange
from hawker.edge.http2_connection import Http2Connection, _Stream
from tests.edge.edge_kit import HOST, OK, PlayedHost, Serve, app_server, read_request, route, says
from tests.ports import free_port
from tests.waiting import eventually

Fields = list[tuple[bytes, bytes]]


def asking(path: bytes = b"/", *fields: tuple[bytes, bytes], method: bytes = b"GET", host: bytes = b"shop") -> Fields:
    return [(b":method", method), (b":scheme", b"http"), (b":path", path), (b":authority", host), *fields]


class Http2Client:
    """Sends what it is told to, be it wrong, and keeps what it hears."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        config = h2.config.H2Configuration(
            client_side=True, header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self.speaks = h2.connection.H2Connection(config)
        self.heads: dict[int, Fields] = {}
        self.bodies: dict[int, bytearray] = {}
        self.trailers: dict[int, Fields] = {}
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}
        self.goaway: int | None = None
        self.lost = False
        self.takes = True  # gives the edge room for as much as has come

    def begin(self) -> None:
        self.speaks.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self._writer.write(self.speaks.data_to_send())

    def raw(self, data: bytes) -> None:
        self._writer.write(data)

    def ask(self, fields: Fields, body: bytes | None = None, *, ended: bool = True) -> int:
        stream = self.speaks.get_next_available_stream_id()
        self.speaks.send_headers(stream, fields, end_stream=ended and body is None)
        if body is not None:
            self.speaks.send_data(stream, body, end_stream=ended)
        self.flush()
        return stream

    def send(self, stream: int, body: bytes, *, ended: bool = False) -> None:
        self.speaks.send_data(stream, body, end_stream=ended)
        self.flush()

    async def hear(self) -> None:
        """Until the connection ends."""
        try:
            while data := await self._reader.read(65_536):
                for event in self.speaks.receive_data(data):
                    self._take(event)
                self.flush()
        except (OSError, h2.exceptions.ProtocolError):
            pass
        self.lost = True

    def _take(self, event: Any) -> None:
        match event:
            case h2.events.ResponseReceived():
                self.heads[event.stream_id] = event.headers
            case h2.events.DataReceived():
                self.bodies.setdefault(event.stream_id, bytearray()).extend(event.data)
                if self.takes:
                    self.speaks.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.TrailersReceived():
                self.trailers[event.stream_id] = event.headers
            case h2.events.StreamEnded():
                self.ended.add(event.stream_id)
            case h2.events.StreamReset():
                self.resets[event.stream_id] = event.error_code
            case h2.events.ConnectionTerminated():
                self.goaway = event.error_code

    async def answer(self, stream: int) -> tuple[bytes, bytes]:
        """Status and body, once it is whole."""
        await eventually(lambda: stream in self.ended or stream in self.resets or self.lost)
        assert stream in self.ended, (self.resets, self.goaway)
        return dict(self.heads[stream])[b":status"], bytes(self.bodies.get(stream, b""))


@asynccontextmanager
async def http2_client(host: PlayedHost, port: int) -> AsyncIterator[Http2Client]:
    reader, writer = await asyncio.open_connection(HOST, port)
    client = Http2Client(reader, writer)
    client.begin()
    host.tasks.start_soon(client.hear)
    try:
        yield client
    finally:
        writer.close()


@asynccontextmanager
async def served(host: PlayedHost, serve: Serve, **options: Any) -> AsyncIterator[Http2Client]:
    async with app_server(serve) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",), **options))
        async with http2_client(host, port) as client:
            yield client


async def test_a_stream_is_a_request_with_our_fields(host: PlayedHost) -> None:
    seen: list[bytes] = []
    async with served(host, says(OK, seen)) as client:
        forged = [(b"fly-client-ip", b"6.6.6.6"), (b"x_y", b"1"), (b"cookie", b"a=1"), (b"cookie", b"b=2")]
        stream = client.ask(asking(b"/a?b", *forged))
        assert await client.answer(stream) == (b"200", b"ok")
        fields = dict(client.heads[stream])
    head = seen[0].decode()
    assert head.startswith("GET /a?b HTTP/1.1\r\nhost: shop\r\n") and "6.6.6.6" not in head and "x_y" not in head
    assert "cookie: a=1; b=2\r\n" in head and "via: 2.0 hawker\r\n" in head and "connection: close" in head
    assert fields[b"content-length"] == b"2" and b"fly-request-id" in fields and b"connection" not in fields


async def test_blanks_behind_a_value_of_a_machine_end_no_stream(host: PlayedHost) -> None:
    """HTTP/1.1 allows them, and HTTP/2 does not (RFC 9113, 8.2.1)."""
    said = b"HTTP/1.1 200 OK\r\nX-A: 1 \t\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7 \r\n\r\n"
    async with served(host, says(said)) as client:
        stream = client.ask(asking())
        assert await client.answer(stream) == (b"200", b"ok")
        assert (b"x-a", b"1") in client.heads[stream] and client.trailers[stream] == [(b"x-sum", b"7")]


async def test_many_streams_are_under_way_at_once_and_a_slow_one_holds_up_no_other(host: PlayedHost) -> None:
    go_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await read_request(reader)).split()[1]
        if path == b"/slow":
            await go_on.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(path), path))

    async with served(host, serve) as client:
        slow = client.ask(asking(b"/slow"))
        streams = {client.ask(asking(b"/%d" % number)): b"/%d" % number for number in range(60)}
        for stream, path in streams.items():
            assert await client.answer(stream) == (b"200", path)
        go_on.set()
        assert await client.answer(slow) == (b"200", b"/slow")


async def test_bodies_go_both_ways_at_once_with_trailers(host: PlayedHost) -> None:
    """As gRPC's streams do."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n")
        while (size := int(await reader.readline(), 16)) > 0:
            data = await reader.readexactly(size + 2)
            writer.write(b"%x\r\n%b" % (size, data))
        trailers = await reader.readuntil(b"\r\n")
        writer.write(b"0\r\ngrpc-status: 0\r\nx-heard: %b\r\n\r\n" % trailers.strip())

    async with served(host, echo) as client:
        stream = client.ask(asking(b"/", (b"te", b"trailers"), method=b"POST"), b"one", ended=False)
        await eventually(lambda: bytes(client.bodies.get(stream, b"")) == b"one")
        client.send(stream, b"two")
        await eventually(lambda: client.bodies[stream] == b"onetwo")
        client.speaks.send_headers(stream, [(b"x-sum", b"7"), (b"fly-client-ip", b"6.6.6.6")], end_stream=True)
        client.flush()
        await client.answer(stream)
        assert client.trailers[stream] == [(b"grpc-status", b"0"), (b"x-heard", b"x-sum: 7")]


async def test_large_bodies_are_passed_on_whole_and_hold_no_more_than_their_windows(host: PlayedHost) -> None:
    async def mirror(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = (await read_request(reader)).partition(b"\r\n\r\n")[2]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    async with served(host, mirror) as client:
        size, sent = 3_000_000, 0
        stream = client.ask(asking(b"/", (b"content-length", b"%d" % size), method=b"POST"), ended=False)
        while sent < size:
            await eventually(
                lambda: client.speaks.local_flow_control_window(stream) > 0 or client.resets or client.lost
            )
            assert not client.resets and not client.lost
            room = min(client.speaks.local_flow_control_window(stream), 16_384, size - sent)
            client.send(stream, b"x" * room, ended=sent + room == size)
            sent += room
        status, body = await client.answer(stream)
        assert status == b"200" and body == b"x" * size


async def test_a_websocket_comes_in_a_stream(host: PlayedHost) -> None:
    heads: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await read_request(reader))
        writer.write(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n")
        writer.write(b"Sec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: chat\r\n\r\n")
        while line := await reader.readline():
            writer.write(line)

    async with served(host, echo) as client:
        await eventually(lambda: client.speaks.remote_settings.get(8) == 1)
        fields = [(b":protocol", b"websocket"), (b"sec-websocket-version", b"13")]
        stream = client.ask([*asking(b"/chat", method=b"CONNECT"), *fields], ended=False)
        await eventually(lambda: stream in client.heads)
        answered = dict(client.heads[stream])
        assert answered[b":status"] == b"200" and b"sec-websocket-accept" not in answered
        assert answered[b"sec-websocket-protocol"] == b"chat" and b"upgrade" not in answered
        client.send(stream, b"hello\n")
        await eventually(lambda: bytes(client.bodies.get(stream, b"")) == b"hello\n")
        client.send(stream, b"", ended=True)
        await client.answer(stream)
    assert heads[0].startswith(b"GET /chat HTTP/1.1\r\n") and b"upgrade: websocket\r\n" in heads[0]
    assert b"sec-websocket-key: " in heads[0]


async def test_errors_of_ours_are_answers_and_to_grpc_a_status_of_its_own(host: PlayedHost) -> None:
    async with served(host, says(OK), autostart=False) as client:
        for machine in host.worker.machines.values():
            host.edge.gone(machine.id)
        stream = client.ask(asking())
        status, body = await client.answer(stream)
        assert status == b"404" and body.startswith(b"HB06 ")
        call = client.ask(asking(b"/a.B/C", (b"content-type", b"application/grpc"), method=b"POST"), b"x")
        assert await client.answer(call) == (b"200", b"")
        fields = dict(client.heads[call])
        assert fields[b"grpc-status"] == b"14" and fields[b"grpc-message"].startswith(b"HB06 ")


async def test_an_answer_before_the_body_is_whole_stops_the_client(host: PlayedHost) -> None:
    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Large\r\nContent-Length: 0\r\n\r\n")

    async with served(host, refuses) as client:
        stream = client.ask(asking(method=b"POST"), b"x", ended=False)
        await eventually(lambda: client.resets.get(stream) == 0)
        assert dict(client.heads[stream])[b":status"] == b"413"


async def test_a_machine_that_breaks_off_resets_its_stream_alone(host: PlayedHost) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await read_request(reader)).split()[1]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n%b" % (b"h" if path == b"/half" else b"ok"))

    async with served(host, serve) as client:
        half, whole = client.ask(asking(b"/half")), client.ask(asking())
        assert await client.answer(whole) == (b"200", b"ok")
        await eventually(lambda: half in client.resets)
        assert client.resets[half] == nghttp2.INTERNAL_ERROR and not client.lost


async def test_a_client_that_goes_away_leaves_its_machine(host: PlayedHost) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        asked.set()
        try:
            await reader.read()
        finally:
            left.set()

    async with served(host, serve) as client:
        stream = client.ask(asking())
        await asyncio.wait_for(asked.wait(), 60)
        client.speaks.reset_stream(stream, 8)
        client.flush()
        await asyncio.wait_for(left.wait(), 60)
        await eventually(lambda: not any(gate.total for gate in host.edge.gates.of.values()))
        assert not client.lost


@pytest.mark.parametrize(
    "fields",
    [
        asking(b"no"),
        asking(b"*"),
        asking(b"/a#b"),
        asking(b"/a b"),
        asking(b"/", host=b"a/b"),
        asking(b"/", host=b"a@b"),
        asking(b"/", (b"host", b"other")),
        asking(b"/", (b"connection", b"close")),
        asking(b"/", (b"transfer-encoding", b"chunked")),
        asking(b"/", (b"upgrade", b"websocket")),
        asking(b"/", (b"te", b"gzip")),
        asking(b"/", (b"X-Upper", b"1")),
        asking(b"/", (b"x", b"a\r\nb: c")),
        asking(b"/", (b"x", b"a\0b")),
        asking(b"/", (b":path", b"/again")),
        asking(b"/", (b"x", b"1"), (b":late", b"1")),
        asking(b"/", (b"content-length", b"5")),
        asking(b"/", (b"content-length", b"+0")),
        asking(b"/", (b"content-length", b"0"), (b"content-length", b"0")),
        asking(b"/", *((b"x", b"1") for _ in range(200))),
        asking(b"/", (b"x", b"1" * 20_000)),
        asking(b"/" + b"a" * 17_000),
        asking(b"/", method=b"CONNECT"),
        asking(b"/", method=b"G ET"),
        [(b":method", b"CONNECT"), (b":authority", b"shop:80")],
        [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")],
        [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"shop")],
        [(b"x", b"1")],
    ],
)
async def test_a_request_two_servers_could_read_in_two_ways_reaches_no_machine(
    host: PlayedHost, fields: Fields
) -> None:
    seen: list[bytes] = []
    async with served(host, says(OK, seen)) as client:
        stream = client.ask(fields)
        await eventually(lambda: stream in client.ended or stream in client.resets or client.lost)
        if stream in client.ended:
            assert dict(client.heads[stream])[b":status"] in (b"400", b"405", b"414", b"431")
    assert not seen


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def ping(number: int) -> bytes:
    return frame(6, 0, 0, number.to_bytes(8, "big"))


def rapid_reset(number: int) -> bytes:
    stream = 2 * number + 1
    head = b"\x82\x84\x86\x41\x04shop"  # GET / http, indexed, with the name of the host
    return frame(1, 5, stream, head) + frame(3, 0, stream, (8).to_bytes(4, "big"))


FLOODS: dict[str, Callable[[int], bytes]] = {
    "rapid reset": rapid_reset,
    "ping": ping,
    "settings": lambda number: frame(4, 0, 0),
    "priority": lambda number: frame(2, 0, 1, b"\0\0\0\0\x10"),
    "continuation": lambda number: frame(1, 1, 1, b"\x82") if number == 0 else frame(9, 0, 1),
    "empty data": lambda number: frame(1, 4, 1, b"\x83\x84\x86\x41\x04shop") if number == 0 else frame(0, 0, 1),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_flood_ends_its_connection_and_costs_nobody_else(host: PlayedHost, flood: str) -> None:
    async def waits(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        if path == b"/ok":
            writer.write(OK)
        else:
            await reader.read()

    async with app_server(waits) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",)))
        async with http2_client(host, port) as client, http2_client(host, port) as other:
            for number in range(400):
                client.raw(FLOODS[flood](number))
            await eventually(lambda: client.lost)
            assert client.goaway in (None, nghttp2.ENHANCE_YOUR_CALM, nghttp2.PROTOCOL_ERROR)
            assert await other.answer(other.ask(asking(b"/ok"))) == (b"200", b"ok")
        await eventually(lambda: not any(gate.total for gate in host.edge.gates.of.values()))


async def test_a_head_without_an_end_is_bounded(host: PlayedHost) -> None:
    async with served(host, says(OK)) as client:
        piece = b"\x00\x01a\x7f\x81\x7f" + b"x" * 256  # a literal of 256 bytes, which is not indexed
        client.raw(frame(1, 1, 1, b"\x82\x84\x86\x41\x04shop"))
        for _ in range(16):
            client.raw(frame(9, 0, 1, piece * 60))
        await eventually(lambda: client.lost or 1 in client.resets)


async def test_no_more_streams_than_the_bound(host: PlayedHost) -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with served(host, never) as client:
        await eventually(lambda: client.speaks.remote_settings.max_concurrent_streams == nghttp2.MAX_STREAMS)
        client.speaks.remote_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 1000
        client.speaks.remote_settings.acknowledge()
        for _ in range(nghttp2.MAX_STREAMS):
            client.ask(asking())
        await eventually(lambda: sum(gate.total for gate in host.edge.gates.of.values()) == nghttp2.MAX_STREAMS)
        client.ask(asking())
        await eventually(lambda: client.lost)
        assert client.goaway == nghttp2.PROTOCOL_ERROR
        await eventually(lambda: not any(gate.total for gate in host.edge.gates.of.values()))


async def test_a_stream_is_stopped_though_a_wait_has_not_heard_it() -> None:
    loop = asyncio.get_running_loop()
    waits = [loop.create_future(), loop.create_future()]

    async def deaf_once() -> None:
        with suppress(asyncio.CancelledError):
            await waits[0]
        await waits[1]

    stream = _Stream(cast(Any, SimpleNamespace(later=loop.call_later)), 1)
    stream.task = task = loop.create_task(deaf_once())
    loop.call_soon(stream.stop)
    await asyncio.wait([task])
    assert task.cancelled() and all(wait.cancelled() for wait in waits)


async def test_a_body_that_came_byte_by_byte_before_there_was_a_machine_goes_to_it_in_few_pieces() -> None:
    connection, exchange = Mock(spec=Http2Connection), Mock(spec=HttpExchange, takes_body=False)
    stream = _Stream(connection, 1)
    stream.exchange = exchange
    for _ in range(nghttp2.WINDOW_BYTES):
        stream.take(b"x")
    exchange.take.assert_not_called()
    exchange.takes_body = True
    stream.begin_body()
    taken = [call.args[0] for call in exchange.take.call_args_list]
    assert b"".join(taken) == b"x" * nghttp2.WINDOW_BYTES and len(taken) < 50
    assert sum(call.args[1] for call in connection.consumed.call_args_list) == nghttp2.WINDOW_BYTES


async def test_bytes_that_came_one_by_one_for_a_websocket_that_was_not_read_go_to_it_in_few_pieces() -> None:
    connection, socket = Mock(spec=Http2Connection), Mock(spec=asyncio.Protocol)
    stream = _Stream(connection, 1)
    transport, _ = stream.hand_over(Mock(), []) or (None, b"")
    assert transport is not None
    transport.set_protocol(socket)
    for _ in range(nghttp2.WINDOW_BYTES):
        stream.take(b"x")
    transport.resume_reading()
    heard = [call.args[0] for call in socket.data_received.call_args_list]
    assert b"".join(heard) == b"x" * nghttp2.WINDOW_BYTES and len(heard) < 50
