"""TLS between nodes: who is let in, what a newcomer holds until then, and keys that change."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from hawker.auth.node_certificate import NodePapers
from hawker.fair.connections import ConnectionTable
from hawker.fair.turns import Share
from hawker.http.mutual_tls import MutualTls, name_of, secured
from hawker.ids import NodeId
from hawker.token_bucket import Allowance
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

HERE, THERE = NodeId("0000000a"), NodeId("0000000b")
KEY, LATER = b"k" * 32, b"l" * 32


def papers(node: NodeId, *keys: bytes) -> MutualTls:
    return MutualTls(NodePapers(node, lambda: keys))


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert isinstance(self.transport, asyncio.Transport)
        self.transport.write(data)


def room_for(count: int) -> ConnectionTable:
    share = Share(name="tried", total=count, each=count, key="", over="", reserve=0)
    return ConnectionTable(share, lambda: False)


@asynccontextmanager
async def serving(tls: MutualTls, table: ConnectionTable) -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(secured(Echo, tls, table), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def answered(port: int, tls: MutualTls, name: str = name_of(HERE)) -> bytes:
    """What comes back of a word. Raises `OSError`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls.client(), server_hostname=name)
    writer.write(b"word")
    found = await reader.read(4)
    writer.close()
    return found


async def test_nodes_of_the_cluster_speak_and_their_place_is_kept_until_tls_is_done() -> None:
    table = room_for(2)
    async with serving(papers(HERE, KEY), table) as port:
        assert await answered(port, papers(THERE, KEY)) == b"word"
        assert len(table) == 0


async def test_another_name_and_another_cluster_are_not_taken() -> None:
    async with serving(papers(HERE, KEY), room_for(9)) as port:
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            await answered(port, papers(THERE, KEY), name_of(THERE))
        with pytest.raises(ssl.SSLCertVerificationError, match="self-signed"):
            await answered(port, papers(THERE, LATER))


async def test_a_key_that_is_taken_out_ends_its_certificates_for_new_connections() -> None:
    keys = [(KEY,), (LATER, KEY), (LATER,)]
    now = keys[0]
    tls = MutualTls(NodePapers(HERE, lambda: now))
    async with serving(tls, room_for(9)) as port:
        assert await answered(port, papers(THERE, KEY)) == b"word"
        now = keys[1]
        assert await answered(port, papers(THERE, KEY, LATER)) == b"word"
        assert await answered(port, papers(THERE, LATER)) == b"word"
        now = keys[2]
        blind = papers(THERE, KEY)
        blind.client().check_hostname, blind.client().verify_mode = False, ssl.CERT_NONE
        with suppress(OSError):
            assert await answered(port, blind) == b""


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(99)])
async def test_a_newcomer_without_a_certificate_leaves_nothing(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hawker.http.mutual_tls.HANDSHAKE_S", 0.1)
    table = room_for(9)
    async with serving(papers(HERE, KEY), table) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        with suppress(ConnectionResetError):
            assert len(await reader.read()) < 100
        writer.close()
        assert await eventually(lambda: len(table) == 0, 30)


async def test_a_connection_that_finds_no_room_is_closed_and_one_at_rest_makes_some() -> None:
    table = room_for(1)
    async with serving(papers(HERE, KEY), table) as port:
        first, held = await asyncio.open_connection("127.0.0.1", port)
        await eventually(lambda: len(table) == 1, 30)
        _, second = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionResetError):
            assert await first.read() == b""  # it had said nothing
        assert len(table) == 1
        for each in (held, second):
            each.close()


async def test_a_connection_that_never_becomes_a_handshake_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hawker.http.mutual_tls._MAX_HANDSHAKE_BYTES", 1000)
    begun = b"\x16\x03\x01\x3f\xff"  # of a record of 16 KiB
    async with serving(papers(HERE, KEY), room_for(9)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begun + bytes(2000))
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()


async def test_handshakes_of_one_address_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hawker.http.mutual_tls.NEWCOMERS", Allowance(0.001, 2.0))
    async with serving(papers(HERE, KEY), room_for(9)) as port:
        for _ in range(2):
            assert await answered(port, papers(THERE, KEY)) == b"word"
        with pytest.raises(OSError):
            await answered(port, papers(THERE, KEY))
