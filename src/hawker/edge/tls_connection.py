"""Connections of clients that begin with TLS: the ClientHello, which app it asks for, its certificate, the handshake.

What a stranger can hold of this process before the handshake is done is bounded: 16 KiB, ten seconds, a place among
those of its address, and so many handshakes a second of its network. Nothing of an app is shown to who asks for
another's name.
"""

import asyncio
import re
import ssl
from collections.abc import Callable
from enum import Enum
from ipaddress import ip_address
from math import inf
from typing import cast

from hawker.clock import Clock
from hawker.edge.app_figures import AppFigures
from hawker.edge.certificates import ACME_ALPN, CertificateBook, may_show
from hawker.edge.client_hello import (
    POSTGRES_ALPN,
    POSTGRES_ASKS,
    BadHelloError,
    ClientHello,
    postgres_answer,
    read_hello,
)
from hawker.edge.nghttp2 import is_there
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.routes import Door, Routes, ServiceTarget
from hawker.edge.splice import address_of, reset
from hawker.edge.visits import Counters
from hawker.edge.writing import refusal
from hawker.errors import Fault
from hawker.fair.connections import ConnectionTable
from hawker.feed import EdgeLogLine
from hawker.http.tls_transport import TlsTransport
from hawker.ids import AppName, new_ulid
from hawker.token_bucket import Allowance, TokenBuckets
from hawker.value_object import ValueObject

HELLO_S, HANDSHAKE_S = 5.0, 10.0
OF_NETWORK, OF_NAME = Allowance(50.0, 200.0), Allowance(500.0, 1000.0)
"""Handshakes of clients of one network, a /24 or a /48: 50 a second, and 200 at once; and for one name: 500 a second,
and 1000 at once."""
HTTP_ALPN = ("h2", "http/1.1")
_MAX_HANDSHAKE_BYTES = 64 * 1024
_PLAIN_HTTP = re.compile(rb"[A-Z]{3,8} ")
_NETWORK_BITS = {4: 8, 6: 80}  # left out of an address


class _Kind(ValueObject, frozen=True):
    words: str
    alert: int | None  # of RFC 8446, 6


class TlsRefusal(Enum):
    """The reasons why a client got no TLS. PT of Fly's error codes; the numbers are ours."""

    PT01 = _Kind("too many handshakes from one network", None)
    PT02 = _Kind("too many handshakes for one name", None)
    PT03 = _Kind("the handshake took too long", None)
    PT04 = _Kind("what came is no TLS", 50)
    PT05 = _Kind("there is no certificate for the name", 112)
    PT06 = _Kind("the handshake failed", None)
    PT07 = _Kind("the certificate cannot be used", 80)
    PT08 = _Kind("too many handshakes at once", None)
    PT09 = _Kind("a client of PostgreSQL asks for no TLS", None)


class RefusedTlsError(Exception):
    def __init__(self, refusal: TlsRefusal, known: str = "", app: AppName | None = None) -> None:
        super().__init__(refusal.value.words)
        self.refusal = refusal
        self.known = known
        self.app = app


class TlsServices(ValueObject, frozen=True, kw_only=True):
    """The objects that all handshakes of a process share. `table` bounds the clients in their handshake. `accept` makes
    the protocol that serves an app's client once TLS is done, and they have agreed on a protocol (ALPN) or on none."""

    routes: Routes
    book: CertificateBook
    table: ConnectionTable
    spared: Callable[[str], bool]
    clock: Clock
    counters: Counters
    figures: AppFigures
    say: Callable[[EdgeLogLine], None]
    region: Callable[[], str]
    accept: Callable[[Door, ServiceTarget, str], asyncio.Protocol]


class TlsConnections:
    """All connections of a process that are in their handshake: makes them, and watches their time."""

    def __init__(self, services: TlsServices) -> None:
        self.services = services
        self._live: set[_Newcomer] = set()
        self._networks, self._names = TokenBuckets(OF_NETWORK), TokenBuckets(OF_NAME)

    @property
    def count(self) -> int:
        """The number of connections in their handshake."""
        return len(self._live)

    def accept(self, door: Door, *, postgres: bool = False) -> asyncio.Protocol:
        """The protocol of a new connection. With `postgres` clients ask for TLS first."""
        return _Newcomer(self, door, postgres=postgres)

    def check_time(self) -> None:
        """To be called a few times a second: refuse clients whose handshake takes too long."""
        now = self.services.clock.monotonic()
        for newcomer in list(self._live):
            newcomer.check_time(now)

    def admit(self, newcomer: "_Newcomer", address: str) -> None:
        """Admit a client to its handshake. Raises `RefusedTlsError` when its network has too many, or there is no
        room."""
        spared, now = self.services.spared(address), self.services.clock.monotonic()
        if not spared and not self._networks.take(network_of(address), now):
            raise RefusedTlsError(TlsRefusal.PT01)
        if not self.services.table.admit(newcomer, address):
            raise RefusedTlsError(TlsRefusal.PT08)
        self._live.add(newcomer)

    def release(self, newcomer: "_Newcomer") -> None:
        self._live.discard(newcomer)
        self.services.table.release(newcomer)

    def proof(self, door: Door, name: str) -> ssl.SSLContext | None:
        """The TLS context for a certificate authority that asks for this name; None where nothing is ordered. At an
        address that one app has alone nothing is shown for another's order, as over HTTP."""
        shown = self.services.book.tls_challenge(name)
        if shown is None or self.services.routes.owner_of(door.address) not in (None, shown.app):
            return None
        return self.services.book.proof(shown)

    def choose(self, door: Door, hello: ClientHello) -> tuple[ServiceTarget, ssl.SSLContext]:
        """The target that a client asks for, and the TLS context that it is shown. Raises `RefusedTlsError`."""
        book, routes = self.services.book, self.services.routes
        if hello.name and not self._names.take(hello.name.encode(), self.services.clock.monotonic()):
            raise RefusedTlsError(TlsRefusal.PT02)
        app = routes.app_named(door, hello.name, book.app_of(hello.name), tls=True)
        target = None if app is None else routes.newest(door, app)
        if target is None:
            raise RefusedTlsError(TlsRefusal.PT05)
        options, certificate = target.port.tls_options, book.find(hello.name)
        if certificate is not None and not may_show(certificate, app, hello.name):
            raise RefusedTlsError(TlsRefusal.PT05)
        if certificate is None and not (options and options.default_self_signed):
            raise RefusedTlsError(TlsRefusal.PT05, f"a client asks for {hello.name or 'no name'}", app)
        alpn = tuple((options and options.alpn) or ((POSTGRES_ALPN,) if target.speaks_postgres else ()))
        if target.serves_http:
            alpn = tuple(each for each in HTTP_ALPN if each in (alpn or HTTP_ALPN) and (each != "h2" or is_there()))
        try:
            return target, book.context(certificate, tuple((options and options.versions) or ()), alpn)
        except (Fault, OSError) as error:
            raise RefusedTlsError(TlsRefusal.PT07, f"{hello.name}: {error}", app) from error


def network_of(address: str) -> bytes:
    """The network whose handshakes are counted together: a /24, or a /48 of IPv6."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address.encode()
    left_out = _NETWORK_BITS[found.version]
    return b"%d/%x" % (found.version, int(found) >> left_out)


class _Newcomer(asyncio.Protocol):
    """One client until its handshake is done. Keeps `Closable`."""

    def __init__(self, connections: TlsConnections, door: Door, *, postgres: bool) -> None:
        self._connections = connections
        self._services = connections.services
        self._door = door
        self._raw: asyncio.Transport | None = None
        self._hello = bytearray()
        self._asks = POSTGRES_ASKS if postgres else 0  # so often may it ask before TLS begins
        self._target: ServiceTarget | None = None
        self._tls: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._bytes = 0
        self._came_at = 0.0
        self._refused = False
        self._deadline = inf

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._came_at = self._services.clock.monotonic()
        self._deadline = self._came_at + HELLO_S
        try:
            self._connections.admit(self, address_of(transport, "peername"))
        except RefusedTlsError as error:
            self._refuse(error)

    def data_received(self, data: bytes) -> None:
        if self._raw is None or self._raw.is_closing():
            return
        self._bytes += len(data)
        try:
            if self._tls is not None:
                self._incoming.write(data)
                self._shake(self._tls)
            else:
                self._hello += data
                self._read_hello()
        except RefusedTlsError as error:
            self._refuse(error)

    def connection_lost(self, error: Exception | None) -> None:
        """A client that leaves in the middle most likely does not like what it was shown."""
        self._raw = None
        if self._target is not None and not self._refused:
            self._count(RefusedTlsError(TlsRefusal.PT06))
        self._connections.release(self)

    def give_up(self) -> None:
        if self._raw is not None:
            self._count(RefusedTlsError(TlsRefusal.PT08))
            reset(self._raw)

    def check_time(self, now: float) -> None:
        if now >= self._deadline:
            self._refuse(RefusedTlsError(TlsRefusal.PT03))

    def _read_hello(self) -> None:
        while self._asks and self._raw is not None and self._hello:
            said = postgres_answer(self._hello)
            if said is None:
                self._asks = 0
            elif said.answer:
                self._asks -= 1
                del self._hello[: said.taken]
                self._raw.write(said.answer)
                if said.refused:
                    self._services.counters.add(f"errors_{TlsRefusal.PT09.name}")
                    self._raw.close()
                    return
            else:
                return
        if not self._hello:
            return
        try:
            hello = read_hello(self._hello)
        except BadHelloError as error:
            raise RefusedTlsError(TlsRefusal.PT04, str(error)) from error
        if hello is None:
            return
        proof = self._connections.proof(self._door, hello.name) if hello.alpn == (ACME_ALPN.encode(),) else None
        self._target, context = (None, proof) if proof else self._connections.choose(self._door, hello)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._deadline += HANDSHAKE_S - HELLO_S
        self._incoming.write(self._hello)
        self._hello = bytearray()
        self._shake(self._tls)

    def _shake(self, tls: ssl.SSLObject) -> None:
        assert self._raw is not None
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._raw.write(self._outgoing.read())
            if self._bytes > _MAX_HANDSHAKE_BYTES:
                raise RefusedTlsError(TlsRefusal.PT06, app=self._target.machine.app if self._target else None) from None
        except ssl.SSLError as error:
            self._raw.write(self._outgoing.read())  # OpenSSL's alert
            raise RefusedTlsError(TlsRefusal.PT06) from error
        else:
            self._raw.write(self._outgoing.read())  # tickets too, at once: a client's request may wait for the ACK
            if self._target is None:  # a certificate authority: it has seen what it came for (RFC 8737, 3)
                self._raw.close()
            else:
                self._hand_over(self._raw, tls, self._target)

    def _hand_over(self, raw: asyncio.Transport, tls: ssl.SSLObject, target: ServiceTarget) -> None:
        self._connections.release(self)
        self._services.counters.add("tls_handshakes")
        took_s = self._services.clock.monotonic() - self._came_at
        self._services.figures.shaken(target.machine.app, tls.version() or "", took_s)
        inner = self._services.accept(self._door, target, tls.selected_alpn_protocol() or "")
        transport = TlsTransport(raw, tls, self._incoming, self._outgoing, inner)
        raw.set_protocol(transport)
        transport.begin()

    def _count(self, error: RefusedTlsError) -> None:
        """For the app, too, once it is known which one was asked for."""
        self._refused = True
        app = error.app or (self._target.machine.app if self._target is not None else None)
        self._services.counters.add(f"errors_{error.refusal.name}", app=app)
        if app is not None:
            self._services.figures.not_shaken(app)

    def _refuse(self, error: RefusedTlsError) -> None:
        """Once; what a stranger did wrong is counted, what the app lacks is said in its log."""
        raw, kind = self._raw, error.refusal
        if raw is None or raw.is_closing():
            return
        self._count(error)
        if error.app is not None:
            words = f"{kind.value.words}: {error.known}" if error.known else kind.value.words
            self._services.say(EdgeLogLine(app=error.app, code=kind.name, text=words))
        if kind is TlsRefusal.PT04 and _PLAIN_HTTP.match(self._hello):
            request_id = f"{new_ulid(self._services.clock)}-{self._services.region()}".encode()
            raw.write(refusal(ProxyError(Code.HB01, "this port speaks TLS: ask for https://"), request_id).http1())
        elif kind.value.alert is not None:
            raw.write(bytes((21, 3, 1, 0, 2, 2, kind.value.alert)))
        raw.close()
