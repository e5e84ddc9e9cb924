"""TLS 1.3 between nodes of a cluster: each end shows a certificate, and takes only those that the cluster's authorities
have signed.

Who is let in by TLS may still be refused above it. What somebody holds before the handshake is done is bounded in bytes
and time, and has a place in the listener's table.
"""

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from hawker.fair.connections import ConnectionTable, key_of
from hawker.http.tls_transport import TlsTransport
from hawker.ids import NODE_DOMAIN, NodeId
from hawker.log import bind
from hawker.token_bucket import Allowance, TokenBuckets

AUTHORITIES: Final = "# authorities\n"
"""The line in a node's papers between the key and certificate that it shows and the certificates of the authorities
that it trusts."""
HANDSHAKE_S = 10.0
NEWCOMERS = Allowance(100.0, 500.0)
"""Handshakes of one IPv4 address, or /64 of IPv6: 100 a second, and 500 at once. Each takes a part of a millisecond of
the event loop. Nodes keep their connections."""
_MAX_HANDSHAKE_BYTES = 64 << 10
_log = bind("hawker.tls")


class MutualTls:
    """TLS contexts from a node's papers. `papers` gives the key and the certificate that this node shows, and after
    `AUTHORITIES` the authorities that it trusts, in PEM. It is called for each connection, since the cluster's keys may
    change, and may raise `OSError`."""

    def __init__(self, papers: Callable[[], str]) -> None:
        self._papers = papers
        self._made_of = ""
        self._client = self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def client(self) -> ssl.SSLContext:
        """The context for connections to other nodes. The caller asks for the other node's name in the certificate
        (`auth.node_certificate.name_of`)."""
        self._renew()
        return self._client

    def server(self) -> ssl.SSLContext:
        self._renew()
        return self._server

    def _renew(self) -> None:
        papers = self._papers()
        if papers != self._made_of:
            self._client = _context(ssl.PROTOCOL_TLS_CLIENT, papers)
            self._server = _context(ssl.PROTOCOL_TLS_SERVER, papers)
            self._made_of = papers


def _context(protocol: int, papers: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    own, _, authorities = papers.partition(AUTHORITIES)
    memory = os.memfd_create("node.pem")  # OpenSSL reads files only, and the key is to be in none
    try:
        os.write(memory, own.encode())
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
    context.load_verify_locations(cadata=authorities)
    return context


class Handshake(asyncio.Protocol):
    """Either end of a connection, until its TLS handshake is done: then `inner` gets the bytes, and `made` is
    called."""

    def __init__(
        self,
        context: ssl.SSLContext,
        inner: asyncio.BaseProtocol,
        *,
        name: str | None = None,
        made: Callable[[], None] = lambda: None,
    ) -> None:
        """`name` is the server's name for a client, and None for a server."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=name is None, server_hostname=name)
        self._inner = inner
        self._made = made
        self._raw: asyncio.Transport | None = None
        self._bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._shake()

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        self._incoming.write(data)
        self._shake()

    def connection_lost(self, error: Exception | None) -> None:
        self._raw = None
        self._inner.connection_lost(error or ConnectionResetError("the connection ended in its handshake"))

    def abort(self) -> None:
        if self._raw is not None:
            self._raw.abort()

    def hand_over(self, raw: asyncio.Transport) -> None:
        """Give the connection to `inner`: the handshake is done."""
        transport = TlsTransport(raw, self._tls, self._incoming, self._outgoing, self._inner)
        raw.set_protocol(transport)
        transport.begin()
        self._made()

    def _shake(self) -> None:
        raw = self._raw
        if raw is None or raw.is_closing():
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            raw.write(self._outgoing.read())
            if self._bytes > _MAX_HANDSHAKE_BYTES:
                raw.abort()
        except ssl.SSLError as error:
            raw.write(self._outgoing.read())
            raw.close()
            _log.warning(
                "a handshake between nodes failed",
                extra={"peer": _address_of(raw), "reason": error.reason or str(error)},
            )
        else:
            raw.write(self._outgoing.read())
            self.hand_over(raw)


class _Newcomer(Handshake):
    """Has a place in the table, which `inner` takes over once TLS is done. Keeps `fair.connections.Closable`."""

    def __init__(
        self, table: ConnectionTable, newcomers: TokenBuckets, context: ssl.SSLContext, inner: asyncio.BaseProtocol
    ) -> None:
        super().__init__(context, inner)
        self._table = table
        self._newcomers = newcomers
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        address, loop = _address_of(transport), asyncio.get_running_loop()
        if not (self._newcomers.take(key_of(address).encode(), loop.time()) and self._table.admit(self, address)):
            cast(asyncio.Transport, transport).abort()
            return
        self._late = loop.call_later(HANDSHAKE_S, self.abort)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing has been begun above it."""
        self._leave()

    def give_up(self) -> None:
        self.abort()

    def hand_over(self, raw: asyncio.Transport) -> None:
        self._leave()
        super().hand_over(raw)

    def _leave(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._table.release(self)


def secured(
    inner: Callable[..., asyncio.BaseProtocol], tls: MutualTls, table: ConnectionTable
) -> Callable[..., asyncio.BaseProtocol]:
    """The protocol of a listener that lets in nodes of the cluster alone: `inner` is made for each connection, and
    begins once its TLS handshake is done."""

    newcomers = TokenBuckets(NEWCOMERS)

    def make(**options: Any) -> asyncio.BaseProtocol:
        return _Newcomer(table, newcomers, tls.server(), inner(**options))

    return make


def name_of(node: NodeId) -> str:
    """The name in a node's certificate."""
    return f"{node}{NODE_DOMAIN}"


def _address_of(transport: asyncio.BaseTransport) -> str:
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""
