"""Raw TCP through the edge: both directions, half-close, nobody there."""

import asyncio
import shutil
import socket
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from hawker.config.machine import ProxyProtoOptions
from hawker.edge import splice
from hawker.feed import MachineRoute
from hawker.machine import State
from tests.edge.edge_kit import HOST, PlayedHost, app_server, route
from tests.ports import free_port
from tests.waiting import eventually


async def echo_to_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"got " + await reader.read())
    writer.write_eof()


async def test_a_half_close_is_passed_on_and_the_answer_comes_back(host: PlayedHost) -> None:
    async with app_server(echo_to_the_end) as inside:
        port = free_port()
        await host.publish(route(port, inside))
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"x" * 1_000_000)
        writer.write_eof()
        assert await reader.read() == b"got " + b"x" * 1_000_000
        writer.close()


async def test_a_server_that_speaks_first_is_heard(host: PlayedHost) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        await reader.read()

    async with app_server(greet) as inside:
        port = free_port()
        await host.publish(route(port, inside))
        reader, writer = await asyncio.open_connection(HOST, port)
        assert await reader.readline() == b"220 ready\r\n"
        writer.close()


async def test_a_connection_counts_until_both_ends_are_done(host: PlayedHost) -> None:
    async with app_server(echo_to_the_end) as inside:
        port = free_port()
        machine = route(port, inside, hard=1)
        await host.publish(machine)
        reader, writer = await asyncio.open_connection(HOST, port)
        second_reader, second = await asyncio.open_connection(HOST, port)
        second.write(b"later")
        second.write_eof()
        writer.write_eof()
        assert await reader.read() == b"got "
        assert await second_reader.read() == b"got later"
        for each in (writer, second):
            each.close()


async def test_a_machine_that_nobody_may_start_gives_a_reset(host: PlayedHost) -> None:
    port = free_port()
    await host.publish(route(port, free_port(), state=State.STOPPED, autostart=False))
    reader, writer = await asyncio.open_connection(HOST, port)
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()


async def test_a_mistake_of_ours_ends_the_connection_at_both_ends(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    async def wait_for_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionResetError):
            await reader.read()
        ended.set()

    def mistake(*given: object) -> bytes:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(splice, "proxy_head", mistake)
    async with app_server(wait_for_end) as inside:
        port = free_port()
        await host.publish(route(port, inside))
        reader, writer = await asyncio.open_connection(HOST, port)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        await asyncio.wait_for(ended.wait(), 60)
        writer.close()


def with_proxy_head(machine: MachineRoute, version: str) -> MachineRoute:
    service = machine.services[0]
    options = ProxyProtoOptions(version=version)
    ports = tuple(msgspec.structs.replace(each, proxy_proto_options=options) for each in service.ports or ())
    return msgspec.structs.replace(machine, services=(msgspec.structs.replace(service, ports=ports),))


async def test_a_machine_that_asks_for_it_is_told_who_comes_before_the_first_byte(host: PlayedHost) -> None:
    async with app_server(echo_to_the_end) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("proxy_proto",)))
        reader, writer = await asyncio.open_connection(HOST, port)
        own = writer.get_extra_info("sockname")[1]
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == f"got PROXY TCP4 {HOST} {HOST} {own} {port}\r\nhello".encode()
        writer.close()


_READER = """
global
    maxconn 50
defaults
    mode http
    timeout client 30s
    timeout server 30s
    timeout connect 30s
frontend judge
    bind {host}:{port} accept-proxy
    http-request return status 200 content-type text/plain lf-string "%[src] %[src_port] %[dst] %[dst_port]"
"""


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy, which judges the PROXY heads, is not installed")
@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_haproxy_reads_a_proxy_head_as_it_was_meant(host: PlayedHost, tmp_path: Path, version: str) -> None:
    inside, port = free_port(), free_port()
    (tmp_path / "judge").write_text(_READER.format(host=HOST, port=inside))
    judge = await asyncio.create_subprocess_exec("haproxy", "-db", "-f", str(tmp_path / "judge"))
    try:
        await eventually(lambda: listens(inside))
        await host.publish(with_proxy_head(route(port, inside, handlers=("proxy_proto",)), version))
        reader, writer = await asyncio.open_connection(HOST, port)
        own = writer.get_extra_info("sockname")[1]
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(f"{HOST} {own} {HOST} {port}".encode())
        writer.close()
    finally:
        judge.terminate()
        await judge.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
