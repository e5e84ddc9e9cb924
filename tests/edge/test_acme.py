"""Certificates that the node orders, judged by Pebble: Let's Encrypt's own test authority, which asks a real edge."""

import asyncio
import hashlib
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import dns.flags
import dns.message
import dns.name
import dns.rdatatype
import dns.rrset
import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from hawker.clock import SystemClock
from hawker.dns.zone import zone_answer
from hawker.errors import Unprocessable
from hawker.feed import (
    CERTIFICATE_KEY,
    HTTP_01,
    TLS_ALPN_01,
    AllMachines,
    AppAddress,
    SealedCertificate,
    ShownChallenge,
)
from hawker.ids import AppName
from hawker.names import KnownZone
from hawker.record.app import APPS, CERTIFICATE_ORDERS, AppRecord, CertificateOrder
from hawker.secret.certificate_orders import CertificateBuyer, CertificateOrders
from hawker.secret.certificates import Certificates, proof_name
from hawker.settings import Settings
from hawker.store.memory_store import MemoryStore
from hawker.vault import Vault
from hawker.worker.names import ZoneBook
from tests.certificates import issued, root_pem
from tests.edge.edge_kit import HOST, OK, PlayedHost, app_server, ask, get, route, says
from tests.ports import free_port
from tests.waiting import eventually

SOURCE = "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1"
NAME, SHOP = "shop.example.com", AppName("shop")
DOMAIN = "apps.example.net"
KEY = b"n" * 32
_MAC = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"


@pytest.fixture(scope="module")
def pebble_program() -> Iterator[Path]:
    """Built by Go, whose cache makes the second time quick."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("needs Go, to build the test authority Pebble")
    folder = Path(tempfile.mkdtemp(prefix="pebble"))
    environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-mod=mod"}
    built = subprocess.run([go, "install", SOURCE], env=environment, capture_output=True, text=True, check=False)
    if built.returncode:
        shutil.rmtree(folder)
        pytest.skip(f"Go cannot build Pebble here: {built.stderr[-200:]}")
    yield folder / "pebble"
    shutil.rmtree(folder)


_NO_ZONE = KnownZone(domain="none.invalid")
_DELEGATED = "_acme-challenge.example.org."


async def _answer_names(
    zone: Callable[[], KnownZone], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """A name server for which every name is this host, and which asks our zone for texts; over TCP, as Pebble asks."""
    with suppress(EOFError, OSError):
        while True:
            (length,) = struct.unpack(">H", await reader.readexactly(2))
            query = dns.message.from_wire(await reader.readexactly(length))
            answer = dns.message.make_response(query)
            answer.flags |= dns.flags.RA
            question = query.question[0]
            if question.rdtype == dns.rdatatype.A:
                answer.answer.append(dns.rrset.from_text(question.name, 60, "IN", "A", HOST))
            if question.rdtype == dns.rdatatype.TXT:
                name = question.name
                if name.to_text() == _DELEGATED:
                    target = f"{proof_name(DOMAIN, SHOP, 'example.org')}."
                    answer.answer.append(dns.rrset.from_text(name, 60, "IN", "CNAME", target))
                    name = dns.name.from_text(target)
                found = zone_answer(dns.message.make_query(name, "TXT").to_wire(), zone(), tcp=True)
                assert found is not None
                answer.answer += dns.message.from_wire(found).answer
            wire = answer.to_wire()
            writer.write(struct.pack(">H", len(wire)) + wire)
    writer.close()


@dataclass(frozen=True)
class Pebble:
    directory: str
    ca_file: Path
    root: str
    """Where the root of what it issues is read; it makes a new one each time."""


@contextmanager
def _running(
    program: Path, folder: Path, http_port: int, tls_port: int, names_port: int, more: dict[str, object]
) -> Iterator[tuple[Pebble, int]]:
    chain, key = issued("localhost")
    for name, text in (("chain.pem", chain), ("key.pem", key), ("ca.pem", root_pem())):
        (folder / name).write_text(text)
    port, managed = free_port(), free_port()
    config = {
        "listenAddress": f"{HOST}:{port}",
        "managementListenAddress": f"{HOST}:{managed}",
        "certificate": str(folder / "chain.pem"),
        "privateKey": str(folder / "key.pem"),
        "httpPort": http_port,
        "tlsPort": tls_port,
        **more,
    }
    (folder / "config.json").write_text(json.dumps({"pebble": config}))
    environment = {**os.environ, "PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0"}
    command = [str(program), "-config", str(folder / "config.json"), "-dnsserver", f"{HOST}:{names_port}"]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as it:
        try:
            yield (
                Pebble(f"https://localhost:{port}/dir", folder / "ca.pem", f"https://localhost:{managed}/roots/0"),
                port,
            )
        finally:
            it.terminate()


@asynccontextmanager
async def pebble_at(
    program: Path,
    http_port: int,
    tls_port: int = 0,
    more: dict[str, object] | None = None,
    zone: Callable[[], KnownZone] = lambda: _NO_ZONE,
) -> AsyncIterator[Pebble]:
    """An authority that asks this host's `http_port` where others ask port 80, and `tls_port` where others ask 443."""
    folder = Path(tempfile.mkdtemp(prefix="pebble"))
    names = await asyncio.start_server(partial(_answer_names, zone), HOST, 0)
    try:
        names_port = names.sockets[0].getsockname()[1]
        with _running(program, folder, http_port, tls_port or free_port(), names_port, more or {}) as (pebble, port):
            await eventually(lambda: _listens(port))
            yield pebble
    finally:
        names.close()
        shutil.rmtree(folder)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@dataclass
class Node:
    """The daemon's part in it."""

    store: MemoryStore
    certificates: Certificates
    orders: CertificateOrders
    buyer: CertificateBuyer

    def order(self) -> CertificateOrder:
        found = self.store.get(CERTIFICATE_ORDERS, NAME)
        assert found is not None
        return found


class HastyClock(SystemClock):
    """Sleeps for a twentieth of the time: with one authority there is nothing to wait for."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 20)


async def node_beside(host: PlayedHost, pebble: Pebble, binding: str = "", domain: str | None = None) -> Node:
    """It feeds the host's edge."""
    store, clock = MemoryStore(), HastyClock()
    for number, name in enumerate((SHOP, AppName("other"))):
        record = AppRecord(id=name, number=number, name=name, org="o", network="n", network_id=1, created_at=0.0)
        await store.write(lambda tx, record=record: tx.put(APPS, record.name, record))  # type: ignore[misc]
    (host.folder / "binding").write_text(binding)
    settings = Settings(
        data_dir=host.folder,
        acme_directory=pebble.directory,
        acme_ca_file=pebble.ca_file,
        acme_email="a@example.com",
        acme_binding_file=host.folder / "binding" if binding else None,
        domain=domain,
        dns_zone_listen=(f"{HOST}:53",) if domain is not None else (),
    )
    certificates = Certificates(store, Vault(KEY, clock), clock, domain)
    (host.folder / CERTIFICATE_KEY).write_bytes(certificates.key)

    def tell() -> None:
        sealed = tuple(
            SealedCertificate(hostname=each.hostname, app=each.app, sealed=each.sealed) for each in certificates.all()
        )
        host.worker.say(
            AllMachines(
                machines=tuple(host.worker.machines.values()),
                addresses=(HOST,),
                certificates=sealed,
                challenges=tuple(certificates.challenges),
            )
        )

    certificates.listen(tell)
    orders, buyer = CertificateOrders(store, settings, clock), CertificateBuyer(store, certificates, settings, clock)
    store.listen(buyer.note)
    return Node(store, certificates, orders, buyer)


async def test_pebble_issues_what_is_ordered_and_clients_are_shown_it(host: PlayedHost, pebble_program: Path) -> None:
    async with app_server(says(OK)) as inside:
        plain, secure = free_port(), free_port()
        await host.publish(route(plain, inside, handlers=("http",)), route(secure, inside, handlers=("tls", "http")))
        async with pebble_at(pebble_program, plain) as pebble:
            node = await node_beside(host, pebble)
            await node.orders.put(SHOP, NAME)
            host.tasks.start_soon(node.buyer.serve)
            await eventually(lambda: host.edge.certificates.find(NAME) or node.order().reason)
            assert not node.order().reason
            record = node.certificates.get(SHOP, NAME)
            assert record.ordered and record.authority.startswith("Pebble") and record.kind == "ecdsa"
            assert await issuer_shown_at(secure) == record.authority
            await eventually(lambda: not node.certificates.challenges)
            assert node.order().failures == 0 and node.order().proof == HTTP_01


async def test_pebble_is_shown_a_certificate_where_only_tls_is_published(
    host: PlayedHost, pebble_program: Path
) -> None:
    """TLS-ALPN-01, at a port whose app has no certificate yet; and the authority says when it wants it renewed."""
    async with app_server(says(OK)) as inside:
        secure = free_port()
        await host.publish(route(secure, inside, handlers=("tls",)))
        async with pebble_at(pebble_program, free_port(), secure) as pebble:
            node = await node_beside(host, pebble)
            await node.orders.put(SHOP, NAME)
            host.tasks.start_soon(node.buyer.serve)
            await eventually(lambda: host.edge.certificates.find(NAME) or node.order().reason)
            assert not node.order().reason
            assert (await issuer_shown_at(secure)).startswith("Pebble")
            await eventually(lambda: node.order().proof == TLS_ALPN_01)
            assert host.edge.certificates.tls_challenge(NAME) is None
            record = node.certificates.get(SHOP, NAME)
            await eventually(lambda: record.updated_at < node.order().renew_at < record.not_after)


async def test_pebble_takes_an_account_that_it_gave_out_and_no_other(host: PlayedHost, pebble_program: Path) -> None:
    more: dict[str, object] = {"externalAccountBindingRequired": True, "externalAccountMACKeys": {"kid-1": _MAC}}
    async with app_server(says(OK)) as inside:
        plain = free_port()
        await host.publish(route(plain, inside, handlers=("http",)))
        async with pebble_at(pebble_program, plain, more=more) as pebble:
            node = await node_beside(host, pebble, binding="kid-1 AAAA")
            await node.orders.put(SHOP, NAME)
            host.tasks.start_soon(node.buyer.serve)
            await eventually(lambda: node.order().failures)
            assert "external" in node.order().reason.lower()
            (host.folder / "binding").write_text(f"kid-1\n{_MAC}\n")
            await node.orders.put(SHOP, NAME)
            await eventually(lambda: node.certificates.find(SHOP, NAME))


async def test_a_refusal_of_pebble_is_kept_in_its_words_and_tried_again(host: PlayedHost, pebble_program: Path) -> None:
    """Nothing listens where it asks; then something does."""
    async with app_server(says(OK)) as inside:
        plain = free_port()
        async with pebble_at(pebble_program, plain) as pebble:
            node = await node_beside(host, pebble)
            await node.orders.put(SHOP, NAME)
            host.tasks.start_soon(node.buyer.serve)
            await eventually(lambda: node.order().failures)
            assert "refused" in node.order().reason and node.certificates.find(SHOP, NAME) is None
            assert HTTP_01 in node.order().reason and TLS_ALPN_01 in node.order().reason, "both were tried"
            assert node.certificates.challenges == []
            await host.publish(route(plain, inside, handlers=("http",)))
            await node.orders.put(SHOP, NAME)
            await eventually(lambda: node.certificates.find(SHOP, NAME))


async def issuer_shown_at(port: int, name: str = NAME, wanted: str = NAME) -> str:
    """In the words of the certificate that a client gets. It trusts nobody's roots: Pebble makes new ones each time."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname=name)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    certificate = x509.load_der_x509_certificate(der)
    assert wanted in str(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    return str(certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


async def test_only_a_shown_token_is_answered_and_before_any_redirect(host: PlayedHost) -> None:
    seen: list[bytes] = []
    async with app_server(says(OK, seen)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",)))
        shown = ShownChallenge(hostname=NAME, token="t0ken", answer="t0ken.thumb")
        machines = tuple(host.worker.machines.values())
        host.worker.say(AllMachines(machines=machines, addresses=(HOST,), challenges=(shown,)))
        await eventually(lambda: host.edge.certificates.challenge(NAME, "t0ken"))
        path = "/.well-known/acme-challenge/"
        answer = await ask(port, get(f"{path}t0ken", host=NAME.upper()))
        assert answer.startswith(b"HTTP/1.1 200 OK") and answer.endswith(b"\r\n\r\nt0ken.thumb") and not seen
        for token, name in (("t0ke", NAME), ("t0ken/", NAME), ("t0ken", "other.example.com"), ("%ff\x80", NAME)):
            assert (await ask(port, get(f"{path}{token}", host=name))).find(b"t0ken.thumb") == -1
        host.worker.say(AllMachines(machines=machines, addresses=(HOST,)))
        await eventually(lambda: not host.edge.certificates.challenge(NAME, "t0ken"))
        assert b"t0ken.thumb" not in await ask(port, get(f"{path}t0ken", host=NAME))
    assert seen, "other tokens are the machine's matter"


async def test_pebble_reads_our_zone_for_wildcards(host: PlayedHost, pebble_program: Path) -> None:
    """That of the platform's own domain, which nobody has to order, and one of a domain that was delegated."""
    async with app_server(says(OK)) as inside:
        secure, nodes = free_port(), list[Node]()
        await host.publish(route(secure, inside, handlers=("tls", "http")))

        def zone() -> KnownZone:
            return ZoneBook(DOMAIN, (), (HOST,), nodes[0].certificates).known(())

        async with pebble_at(pebble_program, free_port(), secure, zone=zone) as pebble:
            nodes.append(await node_beside(host, pebble, domain=DOMAIN))
            node = nodes[0]
            await node.orders.put(SHOP, "*.example.org")
            host.tasks.start_soon(node.buyer.serve)
            await eventually(lambda: host.edge.certificates.find(f"shop.{DOMAIN}"))
            await eventually(lambda: host.edge.certificates.find("www.example.org"))
            assert (await issuer_shown_at(secure, f"shop.{DOMAIN}", f"*.{DOMAIN}")).startswith("Pebble")
            assert (await issuer_shown_at(secure, "www.example.org", "*.example.org")).startswith("Pebble")
            for stranger in (f"nobody.{DOMAIN}", f"a.shop.{DOMAIN}"):
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await issuer_shown_at(secure, stranger)
            with pytest.raises(Unprocessable, match=f"shop.{DOMAIN} and nothing else"):
                await node.orders.put(SHOP, f"other.{DOMAIN}", node.certificates)
            with pytest.raises(Unprocessable, match="nothing else"):
                await node.certificates.put(SHOP, f"*.{DOMAIN}", *issued(f"*.{DOMAIN}"))


async def test_an_asker_for_another_name_or_with_more_protocols_is_shown_no_proof(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("tls", "http")))
        its_own = (AppAddress(app=SHOP, ip=HOST),)
        for owner, app, is_shown in (((), SHOP, True), (its_own, SHOP, True), (its_own, AppName("mallory"), False)):
            shown = ShownChallenge(hostname=NAME, token="t0ken", answer="t0ken.thumb", app=app, kind=TLS_ALPN_01)
            machines = tuple(host.worker.machines.values())
            host.worker.say(AllMachines(machines=machines, addresses=(HOST,), challenges=(shown,), app_addresses=owner))
            await eventually(lambda: host.edge.certificates.tls_challenge(NAME))
            assert (await proof_shown_at(port, NAME, "acme-tls/1") is not None) is is_shown
            assert await proof_shown_at(port, "other.example.com", "acme-tls/1") is None
            assert await proof_shown_at(port, NAME, "acme-tls/1", "http/1.1") is None
            assert await proof_shown_at(port, NAME, "http/1.1") is None
            assert host.edge.certificates.challenge(NAME, "t0ken") is None, "it is not for HTTP"
            host.worker.say(AllMachines(machines=machines, addresses=(HOST,)))
            await eventually(lambda: not host.edge.certificates.tls_challenge(NAME))
            assert await proof_shown_at(port, NAME, "acme-tls/1") is None


async def proof_shown_at(port: int, name: str, *protocols: str) -> bytes | None:
    """The SHA-256 in a certificate's acmeIdentifier; none where the handshake fails."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(protocols)
    try:
        reader, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname=name)
    except (ssl.SSLError, OSError):
        return None
    found = writer.get_extra_info("ssl_object")
    assert found.selected_alpn_protocol() == "acme-tls/1" and await reader.read() == b""
    certificate = x509.load_der_x509_certificate(found.getpeercert(binary_form=True))
    writer.close()
    value = certificate.extensions.get_extension_for_oid(x509.ObjectIdentifier("1.3.6.1.5.5.7.1.31"))
    assert value.critical and isinstance(value.value, x509.UnrecognizedExtension)
    assert value.value.value == b"\x04\x20" + hashlib.sha256(b"t0ken.thumb").digest()
    return value.value.value


async def test_at_an_address_of_one_app_no_challenge_of_another_is_answered(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",)))
        machines, own = tuple(host.worker.machines.values()), (AppAddress(app=SHOP, ip=HOST),)
        for app, token in ((AppName("mallory"), "hers"), (SHOP, "its")):
            shown = ShownChallenge(hostname=NAME, token=token, answer=f"{token}.thumb", app=app)
            host.worker.say(AllMachines(machines=machines, addresses=(HOST,), challenges=(shown,), app_addresses=own))
            await eventually(partial(host.edge.certificates.challenge, NAME, token))
            answer = await ask(port, get(f"/.well-known/acme-challenge/{token}", host=NAME))
            assert (b".thumb" in answer) is (app == SHOP)
