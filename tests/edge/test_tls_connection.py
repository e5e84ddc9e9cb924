"""TLS at published ports: which certificate, which app, and what strangers get."""

import asyncio
import socket
import ssl

import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.config.machine import Port, TlsOptions
from hawker.edge.tls_connection import network_of
from hawker.fair.turns import Share
from hawker.feed import API_APP, API_SOCKET, CERTIFICATE_KEY, MachineRoute, SealedCertificate
from hawker.ids import AppName
from hawker.secret.certificate_chain import KeyPair
from hawker.secret.certificates import owner_of
from hawker.vault import Vault
from tests.certificates import issued, root_pem
from tests.edge.edge_kit import HOST, OK, PlayedHost, app_server, ask, get, played_host, route, says
from tests.ports import free_port
from tests.waiting import eventually

KEY = b"k" * 32
HTTPS = ("tls", "http")


def sealed(hostname: str, app: str = "shop", key: object = None) -> SealedCertificate:
    chain, text = issued(hostname, key=key)
    pair = msgspec.msgpack.encode(KeyPair(chain=chain.encode(), key=text.encode()))
    vault = Vault(KEY, SystemClock())
    return SealedCertificate(hostname=hostname, app=AppName(app), sealed=vault.seal(owner_of(hostname), pair))


def with_tls(machine: MachineRoute, options: TlsOptions) -> MachineRoute:
    service = machine.services[0]
    port = msgspec.structs.replace((service.ports or (Port(),))[0], tls_options=options)
    return msgspec.structs.replace(machine, services=(msgspec.structs.replace(service, ports=(port,)),))


async def certify(host: PlayedHost, *certificates: SealedCertificate) -> None:
    (host.folder / CERTIFICATE_KEY).write_bytes(KEY)
    host.worker.say(msgspec.structs.replace(host.worker.whole(), certificates=certificates))
    await eventually(lambda: all(host.edge.certificates.find(each.hostname) is not None for each in certificates))


def trusting(**given: object) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=root_pem())
    for name, value in given.items():
        setattr(context, name, value)
    return context


def careless() -> ssl.SSLContext:
    return trusting(check_hostname=False, verify_mode=ssl.CERT_NONE)


async def ask_tls(port: int, name: str, request: bytes, context: ssl.SSLContext | None = None) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port, ssl=context or trusting(), server_hostname=name)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_https_is_ended_here_and_the_machine_is_told(host: PlayedHost) -> None:
    seen: list[bytes] = []
    async with app_server(says(OK, seen)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=HTTPS))
        await certify(host, sealed("shop.example.com"))
        context = trusting()
        for offered, chosen in ((["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1")):
            context.set_alpn_protocols(offered)
            reader, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname="shop.example.com")
            assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == chosen
        writer.write(get(host="shop.example.com"))
        assert b"200 OK" in await reader.read()
        writer.close()
    assert b"x-forwarded-proto: https\r\n" in seen[0] and b"x-forwarded-ssl: on\r\n" in seen[0]
    assert host.counted("tls_handshakes") == 2


async def test_raw_bytes_pass_both_ways_and_half_an_end_is_kept(host: PlayedHost) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read()
        writer.write(b"you said %d" % len(data))

    async with app_server(serve) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("tls",)))
        await certify(host, sealed("db.example.com"))
        answer = await asyncio.to_thread(half_closed, port, "db.example.com", b"x" * 3_000_000)
    assert answer == b"you said 3000000"


def half_closed(port: int, name: str, data: bytes) -> bytes:
    """A client that says it has ended and reads on; Python's own sockets cannot."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting().wrap_bio(incoming, outgoing, server_hostname=name)
    with socket.create_connection((HOST, port)) as raw:

        def exchange() -> None:
            raw.sendall(outgoing.read())
            incoming.write(raw.recv(65_536))

        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                exchange()
        sent = 0
        while sent < len(data):
            sent += tls.write(data[sent : sent + 16_384])
            raw.sendall(outgoing.read())
        try:
            tls.unwrap()
        except ssl.SSLWantReadError:
            raw.sendall(outgoing.read())
        found = b""
        while True:
            try:
                found += tls.read()
            except ssl.SSLWantReadError:
                more = raw.recv(65_536)
                if not more:
                    return found
                incoming.write(more)
            except ssl.SSLZeroReturnError:
                return found


async def test_a_large_answer_arrives_whole(host: PlayedHost) -> None:
    body = bytes(range(256)) * 20_000
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with app_server(says(answer)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=HTTPS))
        await certify(host, sealed("shop.example.com"))
        whole = await ask_tls(port, "shop.example.com", get(host="shop.example.com"))
    assert whole.partition(b"\r\n\r\n")[2] == body


async def test_a_name_chooses_certificate_and_app(host: PlayedHost) -> None:
    async with app_server(says(OK.replace(b"ok", b"aa"))) as one, app_server(says(OK.replace(b"ok", b"bb"))) as two:
        port = free_port()
        await host.publish(route(port, one, app="one", handlers=HTTPS), route(port, two, app="two", handlers=HTTPS))
        await certify(host, sealed("a.example.com", "one"), sealed("*.b.example.com", "two"))
        assert (await ask_tls(port, "a.example.com", get(host="a.example.com"))).endswith(b"aa")
        assert (await ask_tls(port, "x.b.example.com", get(host="x.b.example.com"))).endswith(b"bb")
        misdirected = await ask_tls(port, "a.example.com", get(host="x.b.example.com"))
    assert misdirected.startswith(b"HTTP/1.1 421 ") and b"HB05" in misdirected


@pytest.mark.parametrize("wide", [False, True])
async def test_a_claimed_name_without_tls_reaches_its_app_or_nobody_proofs_included(
    host: PlayedHost, *, wide: bool
) -> None:
    """An app that is called `www` could else have a certificate for www.bank.com."""
    seen: list[bytes] = []
    async with app_server(says(OK, seen)) as thief, app_server(says(OK.replace(b"ok", b"aa"))) as bank:
        port, secure = free_port(), free_port()
        await host.publish(
            route(port, thief, app="www", handlers=("http",)), route(secure, bank, app="prod", handlers=HTTPS)
        )
        await certify(host, sealed("*.bank.com" if wide else "www.bank.com", "prod"))
        for path in ("/", "/.well-known/acme-challenge/token"):
            refused = await ask(port, get(path, host="www.bank.com"))
            assert refused.startswith(b"HTTP/1.1 404 ") and b"HB06" in refused
        assert not seen
        await host.publish(route(port, bank, app="prod", handlers=("http",)))
        assert (await ask(port, get("/.well-known/acme-challenge/token", host="WWW.bank.com."))).endswith(b"aa")
        assert (await ask(port, get(host="www.other.com"))).endswith(b"ok")
    assert len(seen) == 1


async def test_a_certificate_of_another_app_is_not_shown_for_a_name_of_the_platforms_domain(host: PlayedHost) -> None:
    """As of before the node had the domain."""
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(*(route(port, inside, app=app, handlers=HTTPS) for app in ("shop", "mallory")))
        host.worker.domain = "apps.example.com"
        for name in ("*.apps.example.com", "shop.apps.example.com"):
            await certify(host, sealed(name, "mallory"))
            with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
                await ask_tls(port, "shop.apps.example.com", get(), careless())
        await certify(host, sealed("*.apps.example.com", ""))
        name = "shop.apps.example.com"
        assert b"200 OK" in await ask_tls(port, name, get(host=name))


async def test_the_name_of_an_app_that_is_not_there_shows_nothing_of_it(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, app="one", handlers=HTTPS))
        await certify(host, sealed("a.example.com", "one"), sealed("secret.example.com", "other"))
        with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
            await ask_tls(port, "secret.example.com", get(), careless())
    assert host.counted("errors_PT05") == 1


async def test_a_host_without_certificate_gets_an_alert_or_one_that_nobody_signed(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port, other = free_port(), free_port()
        bare = route(port, inside, handlers=HTTPS)
        own = with_tls(route(other, inside, app="own", handlers=HTTPS), TlsOptions(default_self_signed=True))
        await host.publish(bare, own)
        with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
            await ask_tls(port, "shop.example.com", get(), careless())
        assert b"200 OK" in await ask_tls(other, "whatever.example.com", get(), careless())
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask_tls(other, "whatever.example.com", get())
        await eventually(lambda: any(line.code == "PT05" and line.app == "shop" for line in host.worker.lines))


async def test_only_the_versions_that_the_port_names_are_spoken(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        machine = route(port, inside, handlers=HTTPS)
        await host.publish(with_tls(machine, TlsOptions(versions=("TLSv1.3",))))
        await certify(host, sealed("shop.example.com"))
        with pytest.raises(ssl.SSLError):
            old = trusting(maximum_version=ssl.TLSVersion.TLSv1_2)
            await ask_tls(port, "shop.example.com", get(), old)
        assert b"200" in await ask_tls(port, "shop.example.com", get(host="shop.example.com"))
        assert host.counted("errors_PT06") == 1


async def test_a_certificate_that_is_replaced_or_removed_is_not_shown_any_more(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=HTTPS))
        await certify(host, sealed("shop.example.com"))
        assert b"200" in await ask_tls(port, "shop.example.com", get(host="shop.example.com"))
        host.worker.say(host.worker.whole())
        await eventually(lambda: host.edge.certificates.find("shop.example.com") is None)
        with pytest.raises(ssl.SSLError):
            await ask_tls(port, "shop.example.com", get(), careless())


async def test_one_that_was_sealed_with_another_key_is_said_in_the_log(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=HTTPS))
        await certify(host, sealed("shop.example.com"))
        (host.folder / CERTIFICATE_KEY).write_bytes(b"x" * 32)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await ask_tls(port, "shop.example.com", get(), careless())
        await eventually(lambda: any(line.code == "PT07" for line in host.worker.lines))


@pytest.mark.parametrize(
    "data", [b"\x00" * 64, b"\x16\x03\x01\x40\x01" + b"a" * 50, b"\x16\x03\x01\x00\x05\x02\0\0\0\0"]
)
async def test_garbage_gets_an_alert_and_nothing_more(host: PlayedHost, data: bytes) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=HTTPS))
        assert await ask(port, data) == b"\x15\x03\x01\x00\x02\x02\x32"
    assert host.counted("errors_PT04") == 1


async def test_plain_http_is_told_what_the_port_speaks(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=HTTPS))
        answer = await ask(port, get())
    assert answer.startswith(b"HTTP/1.1 400 ") and b"https" in answer


async def test_half_a_handshake_is_closed_in_time_and_leaves_nothing(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawker.edge.tls_connection.HELLO_S", 0.2)
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=HTTPS))
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")
        assert await reader.read() == b""
        writer.close()
        assert host.counted("errors_PT03") == 1
        await eventually(lambda: not host.edge.handshakes.count)


async def test_idle_handshakes_never_keep_a_newcomer_out(monkeypatch: pytest.MonkeyPatch) -> None:
    few = Share(name="few", total=8, each=8, key="address", over="reset")
    monkeypatch.setattr("hawker.edge.process.EDGE_HANDSHAKES", few)
    monkeypatch.setattr("hawker.edge.tls_connection.HELLO_S", 600.0)
    async with played_host() as host, app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=HTTPS))
        await certify(host, sealed("shop.example.com"))
        idle = [await asyncio.open_connection(HOST, port) for _ in range(40)]
        await eventually(lambda: host.counted("errors_PT08") == 32)
        assert b"200 OK" in await ask_tls(port, "shop.example.com", get(host="shop.example.com"))
        assert host.edge.handshakes.count == 7
        for _, writer in idle:
            writer.close()
        await eventually(lambda: not host.edge.handshakes.count)


async def test_a_client_that_negotiates_again_is_refused_and_others_are_served(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=HTTPS))
        await certify(host, sealed("shop.example.com"))
        done = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-connect", f"{HOST}:{port}", "-servername", "shop.example.com", "-tls1_2"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await done.communicate(b"R\n")
        assert b"no renegotiation" in said
        assert b"200 OK" in await ask_tls(port, "shop.example.com", get(host="shop.example.com"))
        assert host.counted("mistakes") == 0


def test_handshakes_are_counted_by_network() -> None:
    assert network_of("192.0.2.1") == network_of("192.0.2.200") != network_of("192.0.3.1")
    assert network_of("2001:db8:1::1") == network_of("2001:db8:1:2::9") != network_of("2001:db8:2::1")


SSL_REQUEST = (8).to_bytes(4, "big") + (80_877_103).to_bytes(4, "big")
GSS_REQUEST = (8).to_bytes(4, "big") + (80_877_104).to_bytes(4, "big")
STARTUP = (15).to_bytes(4, "big") + (196_608).to_bytes(4, "big") + b"user\0a\0"


async def database(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"heard " + await reader.readexactly(len(STARTUP)))


@pytest.mark.parametrize("asked", [SSL_REQUEST, GSS_REQUEST + SSL_REQUEST, b""])
async def test_clients_of_postgresql_ask_for_tls_or_begin_with_it(host: PlayedHost, asked: bytes) -> None:
    async with app_server(database) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("pg_tls",)))
        await certify(host, sealed("db.example.com"))
        reader, writer = await asyncio.open_connection(HOST, port)
        for word in (asked[at : at + 8] for at in range(0, len(asked), 8)):
            writer.write(word[:3])
            await writer.drain()
            writer.write(word[3:])
            assert await reader.readexactly(1) == (b"N" if word == GSS_REQUEST else b"S")
        context = trusting()
        context.set_alpn_protocols(["postgresql"])
        await writer.start_tls(context, server_hostname="db.example.com")
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "postgresql"
        writer.write(STARTUP)
        assert await reader.read() == b"heard " + STARTUP
        writer.close()


@pytest.mark.parametrize("said", [STARTUP, SSL_REQUEST + STARTUP, SSL_REQUEST * 5, b"\0" * 8, b"\xff" * 40])
async def test_a_client_of_postgresql_without_tls_reaches_no_machine(host: PlayedHost, said: bytes) -> None:
    seen: list[bytes] = []
    async with app_server(says(OK, seen)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("pg_tls",)))
        await certify(host, sealed("db.example.com"))
        answer = await ask(port, said)
    if not said.startswith(SSL_REQUEST):
        assert answer.startswith(b"E") and b"C28000\0" in answer
        assert len(answer) == 1 + int.from_bytes(answer[1:5], "big")
    assert not seen


API = "api.example.com"


async def test_the_name_of_the_nodes_api_leads_to_its_socket_and_no_app_is_shown_with_it(host: PlayedHost) -> None:
    seen: list[bytes] = []
    answer = says(OK.replace(b"ok", b"me"), seen)
    async with app_server(says(OK)) as inside, await asyncio.start_unix_server(answer, host.folder / API_SOCKET):
        port = free_port()
        api = msgspec.structs.replace(
            route(port, 1, app=API_APP, handlers=HTTPS, publish=""),
            hosts=(str(host.folder / API_SOCKET),),
            created_at=0.0,
        )
        host.worker.api_hostname = API
        host.worker.put(api)
        host.worker.say(host.worker.whole())
        await host.publish(route(port, inside, app="api", handlers=HTTPS))
        await certify(host, sealed(API, ""), sealed("api.example.net", "api"))
        assert (await ask_tls(port, API, get(host=API))).endswith(b"me")
        assert (await ask_tls(port, "api.example.net", get(host="api.example.net"))).endswith(b"ok")
        misdirected = await ask_tls(port, "api.example.net", get(host=API))
        assert misdirected.startswith(b"HTTP/1.1 421 "), misdirected
        with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
            await ask_tls(port, "nobody.example.com", get(), careless())
    (head,) = seen
    assert b"\r\nfly-client-ip: 127.0.0.1\r\n" in head, "only the edge says who calls"
