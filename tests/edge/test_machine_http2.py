"""Machines that speak HTTP/2, and gRPC through the edge: its own client and its own server at the two ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import Mock

import anyio
import grpc
import grpc.aio
import pytest

from hawker.config.machine import HttpOptions
from hawker.edge import nghttp2
from hawker.edge.machine_connection import RequestSource
from hawker.edge.machine_http2 import MachineHttp2Connection
from hawker.edge.nghttp2 import Http2Session
from hawker.edge.refusal import ProxyError
from hawker.feed import GatePlace
from tests.edge.edge_kit import HOST, OK, PlayedHost, app_server, ask, get, publish_far, route, says
from tests.edge.test_http2_connection import asking, served
from tests.ports import free_port
from tests.waiting import eventually

H2C = HttpOptions(h2_backend=True)
WITHIN_S = 60


class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]  # it has no types
    """Bytes in, bytes out, in each of gRPC's four ways."""

    def service(self, details: Any) -> Any:
        return {
            "/t/Unary": grpc.unary_unary_rpc_method_handler(self._unary),
            "/t/Fail": grpc.unary_unary_rpc_method_handler(self._fail),
            "/t/Down": grpc.unary_stream_rpc_method_handler(self._down),
            "/t/Up": grpc.stream_unary_rpc_method_handler(self._up),
            "/t/Both": grpc.stream_stream_rpc_method_handler(self._both),
            "/t/Never": grpc.unary_unary_rpc_method_handler(self._never),
        }.get(details.method)

    async def _unary(self, request: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("x-sum", "7"),))
        return request

    async def _fail(self, request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now")
        return b""

    async def _down(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for number in range(50):
            yield request + b"%d" % number

    async def _up(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        return b"".join([each async for each in requests])

    async def _both(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for each in requests:
            yield each

    async def _never(self, request: bytes, context: Any) -> bytes:
        await asyncio.Event().wait()
        return b""


@asynccontextmanager
async def grpc_server() -> AsyncIterator[int]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


@asynccontextmanager
async def grpc_channel(port: int) -> AsyncIterator[Any]:
    channel = grpc.aio.insecure_channel(f"{HOST}:{port}", options=[("grpc.enable_http_proxy", 0)])
    try:
        yield channel
    finally:
        await channel.close()


async def speak_grpc(channel: Any) -> None:
    assert await channel.unary_unary("/t/Unary")(b"x" * 300_000, timeout=WITHIN_S) == b"x" * 300_000
    call = channel.unary_unary("/t/Unary")(b"", timeout=WITHIN_S)
    assert await call == b"" and ("x-sum", "7") in list(await call.trailing_metadata())
    down = [each async for each in channel.unary_stream("/t/Down")(b"n", timeout=WITHIN_S)]
    assert down == [b"n%d" % number for number in range(50)]
    up = await channel.stream_unary("/t/Up")(iter([b"a", b"b", b"c"]), timeout=WITHIN_S)
    assert up == b"abc"
    both = channel.stream_stream("/t/Both")(timeout=WITHIN_S)
    for number in range(5):
        await both.write(b"%d" % number)
        assert await both.read() == b"%d" % number, "each is answered before the next is sent"
    await both.done_writing()
    assert await both.read() is grpc.aio.EOF
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await channel.unary_unary("/t/Fail")(b"", timeout=WITHIN_S)
    assert failed.value.code() is grpc.StatusCode.FAILED_PRECONDITION and failed.value.details() == "not now"
    with pytest.raises(grpc.aio.AioRpcError) as missing:
        await channel.unary_unary("/t/Missing")(b"", timeout=WITHIN_S)
    assert missing.value.code() is grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await channel.unary_unary("/t/Never")(b"", timeout=0.3)
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("kind", ["connections", "requests"])
async def test_grpc_speaks_through_the_edge_in_all_its_ways(host: PlayedHost, kind: str) -> None:
    async with grpc_server() as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",), options=H2C, kind=kind))
        async with grpc_channel(port) as channel:
            await speak_grpc(channel)
        await eventually(lambda: not any(gate.total for gate in host.edge.gates.of.values()))


async def test_grpc_reaches_a_machine_of_another_host(host: PlayedHost, far: PlayedHost, gate: GatePlace) -> None:
    async with grpc_server() as inside:
        port = free_port()
        await publish_far(host, far, gate, route(port, inside, handlers=("http",), options=H2C))
        async with grpc_channel(port) as channel:
            await speak_grpc(channel)


async def test_a_machine_that_is_not_there_is_unavailable_to_grpc(host: PlayedHost) -> None:
    port = free_port()
    await host.publish(route(port, 1, handlers=("http",), options=H2C, autostart=False))
    for machine in list(host.worker.machines.values()):
        host.edge.gates.of[machine.id].route = machine
        host.edge.gone(machine.id)
    async with grpc_channel(port) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await channel.unary_unary("/t/Unary")(b"", timeout=WITHIN_S)
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_client_of_http1_is_served_by_a_machine_of_http2(host: PlayedHost) -> None:
    """By hand: a machine that answers with the library's own session."""
    seen: list[list[tuple[bytes, bytes]]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        class User:
            def on_head(self, stream: int, fields: list[tuple[bytes, bytes]], *, ended: bool) -> None:
                seen.append(fields)
                session.answer(stream, [(b":status", b"200"), (b"x", b"1")], ended=False)
                session.send(stream, b"hello")
                session.finish(stream, ((b"x-sum", b"7"),))

            def on_trailers(self, stream: int, fields: list[tuple[bytes, bytes]]) -> None: ...

            def on_data(self, stream: int, data: bytes) -> None: ...

            def on_end(self, stream: int) -> None: ...

            def on_closed(self, stream: int, error: int) -> None: ...

            def on_room(self, stream: int) -> None: ...

        session = Http2Session(User(), asyncio.get_running_loop().time)
        while data := await reader.read(65_536):
            assert not session.feed(data)
            writer.write(session.take(1 << 20))

    async with app_server(serve) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",), options=H2C))
        answer = await ask(port, get("/a?b", "Cookie: c", "X-A: 1 \t"))
    assert b"\r\nx: 1\r\n" in answer and answer.endswith(b"5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n")
    fields = dict(seen[0])
    assert fields[b"x-a"] == b"1", "HTTP/2 allows no blanks behind it"
    assert fields[b":path"] == b"/a?b" and fields[b":authority"] == b"shop.localhost" and fields[b"cookie"] == b"c"
    assert b"connection" not in fields and b"host" not in fields and b"fly-client-ip" in fields


async def test_a_machine_that_speaks_http1_where_its_config_says_http2_is_told_so(host: PlayedHost) -> None:
    async with served(host, says(OK), options=H2C) as client:
        status, body = await client.answer(client.ask(asking()))
        assert status == b"502" and body.startswith(b"PU01 ")
    await eventually(lambda: host.worker.lines)
    assert "does not speak HTTP/2" in host.worker.lines[0].text
    assert nghttp2.is_there()


async def test_an_answer_that_came_byte_by_byte_while_its_client_was_full_goes_to_it_in_few_pieces() -> None:
    machine = MachineHttp2Connection(asyncio.get_running_loop().time)
    machine.ask(Mock(spec=RequestSource), b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n", chunked=False)
    heard: list[bytes] = []
    machine.begin_body(Mock(), heard.append)
    machine.may_read(reading=False)
    for _ in range(nghttp2.WINDOW_BYTES):
        machine.on_data(machine._stream, b"x")
    assert not heard
    machine.may_read(reading=True)
    assert b"".join(heard) == b"x" * nghttp2.WINDOW_BYTES and len(heard) < 50


async def test_a_machine_that_has_closed_before_it_is_asked_is_no_answer() -> None:
    """Its connection is made and lost before whoever dialled goes on."""
    machine = MachineHttp2Connection(asyncio.get_running_loop().time)
    machine.connection_made(Mock(spec=asyncio.Transport, get_extra_info=Mock(return_value=None)))
    machine.connection_lost(None)
    machine.ask(Mock(spec=RequestSource), b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n", chunked=False)
    with anyio.fail_after(30), pytest.raises(ProxyError) as failed:
        await machine.answer_head(b"GET")
    assert "closed" in failed.value.known and machine.silent, "another machine may have the request"


async def test_a_connection_whose_machine_has_yet_to_take_a_request_is_not_used_again() -> None:
    kept = MachineHttp2Connection(lambda: 0.0)
    kept.transport = Mock()
    kept.ask(Mock(), b"POST / HTTP/1.1\r\nhost: a\r\n\r\n", chunked=True)
    kept.send(b"x")
    kept.finish(())
    kept._trailers = ()  # the answer was whole before
    assert not kept.reusable
    kept._flush()
    assert kept.reusable
