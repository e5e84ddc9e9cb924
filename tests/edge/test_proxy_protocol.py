"""Balancers in front: heads as they are written down, hostile ones, and who is believed."""

import asyncio
import shutil
import struct
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.config.machine import Port, ProxyProtoOptions
from hawker.edge import proxy_protocol
from hawker.edge.proxy_protocol import MAX_V2_BYTES, BadProxyHeadError, ProxyHead, read_proxy_head
from hawker.edge.writing import TcpEnds, proxy_head
from tests.edge.edge_kit import HOST, OK, PlayedHost, app_server, ask, get, route, says
from tests.edge.test_splice_raw import echo_to_the_end
from tests.edge.test_tls_connection import HTTPS, certify, sealed, trusting
from tests.ports import free_port
from tests.waiting import eventually

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V1 = b"PROXY TCP4 203.0.113.9 198.51.100.1 40000 443\r\n"
ENDS = TcpEnds("203.0.113.9", 40000, "198.51.100.1", 443)


def v2(command: int, family: int, content: bytes, length: int | None = None) -> bytes:
    return SIGNATURE + struct.pack(">BBH", command, family, len(content) if length is None else length) + content


V2_CONTENT = bytes((203, 0, 113, 9, 198, 51, 100, 1)) + struct.pack(">HH", 40000, 443)
V2 = v2(0x21, 0x11, V2_CONTENT)


@pytest.mark.parametrize("head", [V1, V2, v2(0x21, 0x11, V2_CONTENT + b"\x02\0\x01a")], ids=["v1", "v2", "v2 and more"])
def test_a_head_names_both_ends_and_its_own_length(head: bytes) -> None:
    assert read_proxy_head(head + b"GET / HTTP/1.1\r\n") == ProxyHead(ENDS, len(head))


@pytest.mark.parametrize("head", [V1, V2])
def test_a_head_that_is_not_whole_is_waited_for(head: bytes) -> None:
    assert [read_proxy_head(head[:size]) for size in range(len(head))] == [None] * len(head)


@pytest.mark.parametrize(
    "head",
    [
        b"PROXY UNKNOWN\r\n",
        b"PROXY UNKNOWN ffff::1 whatever\r\n",
        v2(0x20, 0, b""),
        v2(0x20, 0x11, V2_CONTENT),
        v2(0x21, 0, b"abc"),
        v2(0x21, 0x31, b"\0" * 216),
        v2(0x21, 0x12, V2_CONTENT),
    ],
)
def test_a_head_without_a_client_leaves_the_balancers_own_address(head: bytes) -> None:
    assert read_proxy_head(head + b"more") == ProxyHead(None, len(head))


def test_a_head_of_ipv6_that_stands_for_ipv4_names_that() -> None:
    found = read_proxy_head(b"PROXY TCP6 ::ffff:203.0.113.9 ::1 1 2\r\n")
    assert found is not None and found.ends == TcpEnds("203.0.113.9", 1, "::1", 2)


HOSTILE = [
    b"GET / HTTP/1.1\r\n",
    b"\x16\x03\x01\x00\x05",
    b"PROXY\r\n",
    b"proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
    b"PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 -1 2\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 \xb2 2\r\n",
    b"PROXY TCP4 01.2.3.4 1.2.3.4 1 2\r\n",
    b"PROXY TCP4 ::1 ::1 1 2\r\n",
    b"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
    b"PROXY TCP6 \xff::1 ::1 1 2\r\n",
    b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
    b"PROXY TCP4 1.2.3.4\n" + b"x" * 107,
    b"PROXY UNKNOWN " + b"x" * 107,
    b"\r\n\r\n\0\r\nQUIT\r",
    v2(0x22, 0x11, V2_CONTENT),
    v2(0x11, 0x11, V2_CONTENT),
    v2(0x21, 0x41, V2_CONTENT),
    v2(0x21, 0x13, V2_CONTENT),
    v2(0x21, 0x11, V2_CONTENT[:-1]),
    v2(0x21, 0x21, V2_CONTENT),
    v2(0x21, 0x11, V2_CONTENT, MAX_V2_BYTES),
]


@pytest.mark.parametrize("data", HOSTILE)
def test_a_malformed_head_is_refused_before_more_of_it_is_kept(data: bytes) -> None:
    with pytest.raises(BadProxyHeadError):
        read_proxy_head(data)


@given(st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(lambda rest: SIGNATURE + rest)))
def test_a_head_of_any_bytes_is_waited_for_only_below_its_bound(data: bytes) -> None:
    with suppress(BadProxyHeadError):
        found = read_proxy_head(data + b"\0" * MAX_V2_BYTES)
        assert found is not None and found.length <= MAX_V2_BYTES


@given(st.ip_addresses(v=4), st.ip_addresses(v=4), st.integers(0, 65535), st.sampled_from(["v1", "v2"]))
def test_a_head_that_the_edge_writes_is_read_by_it(client: object, address: object, port: int, version: str) -> None:
    ends = TcpEnds(str(client), port, str(address), 443)
    told = Port(handlers=("proxy_proto",), proxy_proto_options=ProxyProtoOptions(version=version))
    head = proxy_head(told, ends, "id")
    assert read_proxy_head(head) == ProxyHead(ends, len(head))


def believe(host: PlayedHost, *networks: str) -> None:
    """As its worker says."""
    host.edge.proxied.believe(networks)


async def test_a_client_of_a_believed_balancer_is_who_its_head_says(host: PlayedHost) -> None:
    seen: list[bytes] = []
    async with app_server(says(OK, seen)) as inside:
        port = free_port()
        host.worker.balancers = ("10.0.0.0/8", f"{HOST}/32")
        await host.publish(route(port, inside, handlers=("http",)))
        host.worker.say(host.worker.whole())
        await eventually(lambda: host.edge.proxied.believes(HOST))
        for head in (V1, V2):
            assert b"200 OK" in await ask(port, head + get())
    for request in seen:
        assert b"fly-client-ip: 203.0.113.9\r\n" in request.lower()
        assert b"x-forwarded-for: 203.0.113.9, 198.51.100.1\r\n" in request.lower()
        assert b"fly-forwarded-port: %d\r\n" % port in request.lower(), "ours, whatever a balancer listens at"
    assert host.counted("proxy_heads") == 2 and not len(host.edge.proxied.table)


async def test_a_head_in_single_bytes_is_read_and_nothing_of_the_request_is_lost(host: PlayedHost) -> None:
    seen: list[bytes] = []
    async with app_server(says(OK, seen)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",)))
        believe(host, f"{HOST}/32")
        reader, writer = await asyncio.open_connection(HOST, port)
        for byte in V2 + get():
            writer.write(bytes((byte,)))
            await writer.drain()
        assert b"200 OK" in await reader.read()
        writer.close()
    assert b"fly-client-ip: 203.0.113.9\r\n" in seen[0].lower()


async def test_a_head_of_somebody_else_is_bytes_of_a_client(host: PlayedHost) -> None:
    async with app_server(says(OK)) as spoken_to, app_server(echo_to_the_end) as inside:
        spoken, raw = free_port(), free_port()
        await host.publish(route(spoken, spoken_to, handlers=("http",)), route(raw, inside, app="bank"))
        believe(host, "10.0.0.0/8")
        assert b"400" in await ask(spoken, V1 + get())
        reader, writer = await asyncio.open_connection(HOST, raw)
        writer.write(V1)
        writer.write_eof()
        assert await reader.read() == b"got " + V1
        writer.close()
    assert host.counted("proxy_heads") == 0


async def test_a_balancer_that_sends_no_head_is_reset_and_counted(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",)))
        believe(host, f"{HOST}/32")
        with pytest.raises(ConnectionResetError):
            await ask(port, get())
        assert host.counted("proxy_heads_refused") == 1


async def test_a_balancer_that_says_nothing_in_time_is_reset(host: PlayedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_protocol, "HEAD_S", 0.0)
    port = free_port()
    await host.publish(route(port, free_port(), handlers=("http",)))
    believe(host, f"{HOST}/32")
    with pytest.raises(ConnectionResetError):
        await ask(port, V1[:20])
    assert not len(host.edge.proxied.table)


async def test_a_balancer_that_only_looks_whether_we_are_there_is_not_refused(host: PlayedHost) -> None:
    port = free_port()
    await host.publish(route(port, free_port(), handlers=("http",)))
    believe(host, f"{HOST}/32")
    reader, writer = await asyncio.open_connection(HOST, port)
    await eventually(lambda: len(host.edge.proxied.table) == 1)
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    await eventually(lambda: not len(host.edge.proxied.table))
    assert host.counted("proxy_heads_refused") == 0


async def test_a_machine_is_told_by_its_own_head_what_the_balancer_said(host: PlayedHost) -> None:
    async with app_server(echo_to_the_end) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("proxy_proto",)))
        believe(host, f"{HOST}/32")
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(V2 + b"hello")
        writer.write_eof()
        assert await reader.read() == b"got " + V1 + b"hello"
        writer.close()


async def test_the_bound_of_one_address_is_that_of_the_client_and_not_of_its_balancer(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",)))
        believe(host, f"{HOST}/32")
        few = msgspec.structs.replace(host.edge._clients._share, each=1)
        monkeypatch.setattr(host.edge._clients, "_share", few)
        held = [await asyncio.open_connection(HOST, port) for _ in range(2)]
        for number, (reader, writer) in enumerate(held):
            writer.write(
                b"PROXY TCP4 203.0.113.%d 198.51.100.1 1 2\r\n" % number + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
            )
            assert b"200 OK" in await reader.readuntil(b"ok")
        assert len(host.edge._clients) == 2, "they are of two addresses"
        again = b"PROXY TCP4 203.0.113.0 198.51.100.1 3 2\r\n" + get()
        assert b"200 OK" in await ask(port, again)
        with pytest.raises(ConnectionResetError):  # it has made room for another one of its address
            await held[0][0].read()
        for _, writer in held:
            writer.close()


async def test_an_upgraded_connection_goes_on_behind_its_head(host: PlayedHost) -> None:
    async def upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n")
        await echo_to_the_end(reader, writer)

    async with app_server(upgrade) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",)))
        believe(host, f"{HOST}/32")
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(V1 + b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n")
        assert b"101 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"x" * 1_000_000)
        writer.write_eof()
        assert await reader.read() == b"got " + b"x" * 1_000_000
        writer.close()


_BALANCER = """
global
    maxconn 50
defaults
    mode tcp
    timeout client 30s
    timeout server 30s
    timeout connect 30s
frontend plain
    bind {host}:{plain}
    default_backend plain
frontend secret
    bind {host}:{secret}
    default_backend secret
backend plain
    server edge {host}:{plain_edge} {send} check inter 100ms
backend secret
    server edge {host}:{secret_edge} {send}
"""


async def balancer(host: PlayedHost, config: Path, send: str, ports: dict[str, int]) -> asyncio.subprocess.Process:
    """A real one, whose checks have found us; begun anew where another test was given one of its ports."""

    def has_begun() -> bool:
        return front.returncode is not None or host.counted("proxy_heads") > 0

    while True:
        await anyio.Path(config).write_text(_BALANCER.format(host=HOST, send=send, **ports))
        front = await asyncio.create_subprocess_exec("haproxy", "-db", "-f", str(config))
        try:
            await eventually(has_begun)
        except TimeoutError:
            front.kill()
            raise
        if front.returncode is None:
            return front
        ports |= {name: free_port() for name in ("plain", "secret")}


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy, the balancer in front, is not installed")
@pytest.mark.parametrize(
    "send", ["send-proxy", "send-proxy-v2", "send-proxy-v2-ssl-cn proxy-v2-options crc32c,unique-id"]
)
async def test_clients_of_a_real_haproxy_are_known_by_their_own_addresses(
    host: PlayedHost, tmp_path: Path, send: str
) -> None:
    seen: list[bytes] = []
    ports = {name: free_port() for name in ("plain", "secret", "plain_edge", "secret_edge")}
    async with app_server(says(OK, seen)) as inside:
        await host.publish(
            route(ports["plain_edge"], inside, handlers=("http",)), route(ports["secret_edge"], inside, handlers=HTTPS)
        )
        await certify(host, sealed("shop.example.com"))
        believe(host, f"{HOST}/32")
        front = await balancer(host, tmp_path / "front", send, ports)
        try:
            reader, writer = await asyncio.open_connection(HOST, ports["plain"], local_addr=("127.0.0.7", 0))
            writer.write(get())
            assert b"200 OK" in await reader.read()
            reader, writer = await asyncio.open_connection(
                HOST,
                ports["secret"],
                local_addr=("127.0.0.8", 0),
                ssl=trusting(),
                server_hostname="shop.example.com",
            )
            writer.write(get(host="shop.example.com"))
            assert b"200 OK" in await reader.read()
            writer.close()
        finally:
            front.terminate()
            await front.wait()
    assert b"fly-client-ip: 127.0.0.7\r\n" in seen[0].lower()
    assert b"fly-client-ip: 127.0.0.8\r\n" in seen[1].lower()
    assert host.counted("proxy_heads_refused") == 0
