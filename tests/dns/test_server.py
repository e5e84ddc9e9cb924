"""The sockets of one network, at loopback: questions over UDP and TCP, and clients that are no good."""

import asyncio
import socket
import struct
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import anyio
import pytest
from anyio.abc import SocketStream
from dns import asyncquery, message, rcode

from hawker.dns.resolver import AskingNetwork
from hawker.dns.server import NetworkSockets, ResolverSockets
from hawker.fair.table import DNS_CONNECTIONS
from hawker.fair.turns import Turns
from hawker.host import netns
from hawker.host.address import bridge_prefix
from hawker.ids import NodeId
from hawker.names import write_names
from tests.dns.known import KNOWN, MINE, ONE, addresses
from tests.dns.test_forward import Hands
from tests.dns.test_resolver import resolver
from tests.dns.upstream import Upstream, serving
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


@dataclass
class Place:
    """Where it listens."""

    udp: int = 0
    tcp: int = 0

    def make(self, kind: int) -> socket.socket:
        made = socket.socket(socket.AF_INET6, kind)
        made.setblocking(False)
        made.bind(("::1", 0))
        if kind == socket.SOCK_STREAM:
            made.listen()
            self.tcp = made.getsockname()[1]
        else:
            self.udp = made.getsockname()[1]
        return made


@asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[tuple[Place, Upstream]]:
    write_names(folder, KNOWN)
    place = Place()
    async with serving(Upstream()) as upstream, anyio.create_task_group() as tasks:
        sockets = NetworkSockets(
            resolver(folder, Hands(), upstream.port), AskingNetwork(MINE), tasks, Turns(DNS_CONNECTIONS)
        )
        await sockets.open(place.make)
        with anyio.fail_after(60):
            yield place, upstream
        sockets.close()
        tasks.cancel_scope.cancel()


@pytest.mark.usefixtures("patience")
async def test_questions_are_answered_over_udp_and_tcp(tmp_path: Path) -> None:
    async with listening(tmp_path) as (place, upstream):
        for name, expected in (("shop.internal", ONE.ip), ("example.com", "2001:db8::5")):
            query = message.make_query(name, "AAAA")
            assert expected in addresses(await asyncquery.udp(query, "::1", timeout=30, port=place.udp))
            assert expected in addresses(await asyncquery.tcp(query, "::1", timeout=30, port=place.tcp))
        assert len(upstream.heard) == 1, "the second is from what was kept"


async def test_a_connection_takes_several_questions_and_ends_at_what_is_none(tmp_path: Path) -> None:
    question = message.make_query("nobody.internal", "AAAA").to_wire()
    framed = struct.pack("!H", len(question)) + question
    async with listening(tmp_path) as (place, _):
        async with await anyio.connect_tcp("::1", place.tcp) as stream:
            for _ in range(2):
                await stream.send(framed)
                assert message.from_wire(await _framed(stream)).rcode() == rcode.NXDOMAIN
            await stream.send(b"\xff\xff")
            assert await _rest(stream) == b""
        async with await anyio.connect_tcp("::1", place.tcp) as stream:
            await stream.send(struct.pack("!H", 12) + b"\xff" * 12)
            assert await _rest(stream) == b""


async def test_one_machine_has_so_many_connections(tmp_path: Path) -> None:
    async with listening(tmp_path) as (place, _):
        held = [await anyio.connect_tcp("::1", place.tcp) for _ in range(DNS_CONNECTIONS.each)]
        query = message.make_query("shop.internal", "AAAA").to_wire()
        for stream in held:
            await stream.send(struct.pack("!H", len(query)) + query)
            await _framed(stream)
        async with await anyio.connect_tcp("::1", place.tcp) as more:
            assert await _rest(more) == b""
        for stream in held:
            await stream.aclose()


async def test_questions_that_come_all_together_are_all_answered(tmp_path: Path) -> None:
    async with listening(tmp_path) as (place, _):
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            for number in range(200):
                client.sendto(message.make_query("shop.internal", "AAAA", id=number).to_wire(), ("::1", place.udp))
            answers = [await asyncio.get_running_loop().sock_recv(client, 4096) for _ in range(200)]
    assert {message.from_wire(each).id for each in answers} == set(range(200))


class PlayedWriter:
    """Of a connection from this address."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.closed = False
        self.transport = Mock(spec=asyncio.Transport, get_write_buffer_size=Mock(return_value=0))

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return self._address, 1

    def close(self) -> None:
        self.closed = True


async def test_a_machine_has_so_many_connections_whatever_address_of_its_own_it_takes(tmp_path: Path) -> None:
    async with serving(Upstream()) as upstream, anyio.create_task_group() as tasks:
        asking = resolver(tmp_path, Hands(), upstream.port)
        sockets = NetworkSockets(asking, AskingNetwork(MINE), tasks, Turns(DNS_CONNECTIONS))
        writers = [PlayedWriter(f"fdaa:0:7::{number:x}") for number in range(1, DNS_CONNECTIONS.each + 6)]
        for writer in writers:
            tasks.start_soon(sockets._converse, asyncio.StreamReader(), writer)  # type: ignore[arg-type]  # a played one
        await eventually(lambda: sum(writer.closed for writer in writers) == 5)
        tasks.cancel_scope.cancel()


async def test_packets_that_are_no_questions_are_passed_over(tmp_path: Path) -> None:
    async with listening(tmp_path) as (place, _):
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as client:
            for data in (b"", b"\0", b"\xff" * 200, bytes(5000)):
                client.sendto(data, ("::1", place.udp))
        query = message.make_query("shop.internal", "AAAA")
        assert ONE.ip in addresses(await asyncquery.udp(query, "::1", timeout=30, port=place.udp))


@pytest.mark.root
async def test_bridges_are_those_of_its_own_network_namespace(tmp_path: Path, node_id: NodeId) -> None:
    """A host of a test is such a namespace alone, and sees the `/sys` of another."""
    write_names(tmp_path, KNOWN)
    namespace, bridge = tmp_path / "netns", f"{bridge_prefix(node_id)}test"
    netns.create(namespace, lambda _: None)
    try:
        add = ["ip", "link", "add", bridge, "type", "bridge"]
        netns.inside(namespace, lambda: subprocess.run(add, check=True))
        async with anyio.create_task_group() as tasks:
            sockets = ResolverSockets(resolver(tmp_path, Hands(), 53), node_id, tmp_path, tasks)
            assert netns.inside(namespace, lambda: sockets.needed)
            assert not sockets.needed
    finally:
        netns.delete(namespace)


async def _framed(stream: SocketStream) -> bytes:
    data = b""
    while len(data) < 2 or len(data) < 2 + struct.unpack("!H", data[:2])[0]:
        data += await stream.receive()
    return data[2:]


async def _rest(stream: SocketStream) -> bytes:
    found = b""
    try:
        async for data in stream:
            found += data
    except anyio.BrokenResourceError:
        pass
    return found
