"""The heads that the edge writes: a request to a machine, an answer to a client, an answer of its own, and the PROXY
protocol's before raw bytes. Pure.

What a client sends cannot set a field that the edge vouches for.
"""

import struct
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from hawker.config.machine import Port
from hawker.config.service_rules import header_safe, may_set
from hawker.edge.head import Field, RequestHead, ResponseHead
from hawker.edge.refusal import Code, ProxyError
from hawker.value_object import ValueObject

VIA = b"hawker"
CHALLENGES = b"/.well-known/acme-challenge/"
"""The path of proofs for certificate authorities. Source: RFC 8555, 8.3."""
OURS = frozenset(
    b"""fly-client-ip fly-forwarded-port fly-region fly-request-id fly-replay-src fly-replay-failed
    fly-replay-cache-status fly-preferred-instance-unavailable x-forwarded-proto x-forwarded-ssl""".split()
)
"""Fields of a request that only the edge sets: a client's are removed."""
REPLACED = frozenset({b"x-forwarded-for", b"x-forwarded-port", b"via"})
_VOUCHED = frozenset({b"server", b"fly-request-id"})
"""Fields of an answer that are ours unless the app is to keep its own."""
_INSIDE = (b"fly-replay", b"hawker-keep-awake")
PROXY_PROTO = "proxy_proto"
"""The handler that asks for a PROXY head."""
GRPC, _GRPC_UNAVAILABLE = b"application/grpc", b"14"
_PROXY_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_PROXY_V2, _TCP4, _TCP6, _UNSPECIFIED, _UNIQUE_ID = 0x21, 0x11, 0x21, 0x00, 0x05


class Origin(ValueObject, frozen=True):
    """The client of a connection, and the address, port and region that the connection came to."""

    client: str
    """The client's IP address, as text."""
    address: str
    """The IP address that the connection came to."""
    port: int
    """The port that the connection came to, 1 to 65535."""
    tls: bool
    """Whether the client spoke TLS."""
    region: str
    """The code of the region in which the connection came in."""

    @property
    def lines(self) -> bytes:
        """The field lines that are the same for each request of a connection."""
        scheme, ssl = (b"https", b"on") if self.tls else (b"http", b"off")
        return (
            b"fly-client-ip: %b\r\nfly-forwarded-port: %d\r\nfly-region: %b\r\nx-forwarded-proto: %b\r\n"
            b"x-forwarded-ssl: %b\r\n" % (self.client.encode(), self.port, self.region.encode(), scheme, ssl)
        )


def request_to_machine(head: RequestHead, origin: Origin, lines: bytes, request_id: bytes, *, pooled: bool) -> bytes:
    """The head of a request, as a machine gets it. `lines` are the origin's. `pooled`: the connection is used again."""
    out = [b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (head.method, head.target, head.authority), lines]
    forwarded, port, via = [], b"", []
    for name, value in head.fields:
        if name in REPLACED:
            if name == b"x-forwarded-for":
                forwarded.append(value)
            elif name == b"via":
                via.append(value)
            else:
                port = value
        elif name not in OURS:
            out.append(b"%b: %b\r\n" % (name, value))
    seen_by = b", ".join([*forwarded, origin.client.encode(), origin.address.encode()])
    out.append(
        b"x-forwarded-for: %b\r\nx-forwarded-port: %b\r\nvia: %b\r\nfly-request-id: %b\r\n"
        % (seen_by, port or b"%d" % origin.port, b", ".join([*via, b"%b %b" % (head.via, VIA)]), request_id)
    )
    if head.chunked:
        out.append(b"transfer-encoding: chunked\r\n")
    elif head.length is not None:
        out.append(b"content-length: %d\r\n" % head.length)
    if head.trailers:
        out.append(b"te: trailers\r\n")
    if head.upgrade:
        out.append(b"connection: upgrade\r\nupgrade: %b\r\n\r\n" % head.upgrade)
    else:
        out.append(b"\r\n" if pooled else b"connection: close\r\n\r\n")
    return b"".join(out)


def answer_fields(head: ResponseHead, request_id: bytes, port: Port) -> list[Field]:
    """The fields of a machine's answer, as the client gets them, without those that frame the answer."""
    response = port.http_options.response if port.http_options else None
    pristine = bool(response and response.pristine)
    given = (response.headers if response else None) or {}
    dropped = frozenset[bytes]() if pristine else _VOUCHED
    if given:
        dropped |= {name.lower().encode() for name in given}
    out = [field for field in head.fields if field[0] not in dropped and not field[0].startswith(_INSIDE)]
    if not pristine and not head.interim:
        out += ((b"server", VIA), (b"via", b"1.1 " + VIA), (b"fly-request-id", request_id))
    if given:
        out += _set_by_config(given)
    return out


def http1_head(status: int, reason: bytes, fields: Iterable[Field], end: bytes) -> bytes:
    """The head of an answer of HTTP/1.1. `end` are the lines that frame the answer, with the empty one."""
    lines = [b"%b: %b\r\n" % field for field in fields]
    return b"HTTP/1.1 %d %b\r\n%b%b" % (status, reason, b"".join(lines), end)


def _set_by_config(given: dict[str, Any]) -> Iterator[Field]:
    """False takes a field out, which is done by now. A config that is older than its rules may have what no answer
    may: that is left out."""
    for name, value in given.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and may_set(name) and header_safe(text):
                yield name.lower().encode(), text.strip().encode()


class OwnAnswer(ValueObject, frozen=True):
    """An answer of the edge itself."""

    status: int
    """The status code, 100 to 599."""
    fields: tuple[Field, ...]
    body: bytes = b""
    """The whole body; a field says its length."""

    def http1(self, *, head_only: bool = False) -> bytes:
        """The bytes of the answer in HTTP/1.1. The connection is closed after it."""
        end = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(self.body)
        head = http1_head(self.status, _REASONS.get(self.status, b"Error"), self.fields, end)
        return head if head_only else head + self.body


def refusal(error: ProxyError, request_id: bytes, *, grpc: bool = False) -> OwnAnswer:
    """The answer for an error. A client of gRPC gets it in the words of gRPC: it does not read others."""
    text = f"{error.code.name} {error.told} ({request_id.decode()})\n".encode("ascii", "replace")
    if grpc:
        said = ((b"grpc-status", _GRPC_UNAVAILABLE), (b"grpc-message", text.strip().replace(b"%", b"%25")))
        ours = ((b"content-type", GRPC), (b"server", VIA), (b"fly-request-id", request_id))
        return OwnAnswer(200, (*ours, *said))
    fields = [(b"content-type", b"text/plain"), (b"server", VIA), (b"fly-request-id", request_id)]
    if error.code.status == 503:
        fields.append((b"retry-after", b"1"))
    if error.code is Code.HB07:
        fields.append((b"allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"))
    return OwnAnswer(error.code.status, tuple(fields), text)


def challenge_answer(answer: str, request_id: bytes) -> OwnAnswer:
    """The answer to a certificate authority that asks for a proof."""
    kind = (b"content-type", b"application/octet-stream")
    return OwnAnswer(200, (kind, (b"server", VIA), (b"fly-request-id", request_id)), answer.encode())


def redirect_to_https(head: RequestHead, port: int, request_id: bytes) -> OwnAnswer:
    """The redirect to the same host and path, on the port that has TLS."""
    host = head.host.encode() if port == 443 else b"%b:%d" % (head.host.encode(), port)
    place = (b"location", b"https://%b%b" % (host, head.target))
    return OwnAnswer(301, (place, (b"server", VIA), (b"fly-request-id", request_id)))


class TcpEnds(ValueObject, frozen=True):
    """The two ends of a client's connection, as the edge's kernel names them. An address is empty when the client was
    gone before it was asked for."""

    client: str
    """The client's IP address, as text."""
    client_port: int
    """The client's port, 0 to 65535, 0 where the address is empty."""
    address: str
    """The IP address that the client came to, as text."""
    port: int
    """The port that the client came to, 0 to 65535, 0 where the address is empty."""


def proxy_head(port: Port, ends: TcpEnds, unique_id: str) -> bytes:
    """The PROXY head that a machine reads before the first byte of its client: empty unless the port asks for it.
    Version 1 when the port names none. `unique_id`, of at most 128 bytes, is in version 2 only. Source: HAProxy's
    proxy-protocol.txt, 2.1 and 2.2."""
    if PROXY_PROTO not in (port.handlers or ()):
        return b""
    client, address = _address(ends.client), _address(ends.address)
    if port.proxy_proto_options is not None and port.proxy_proto_options.version in ("v2", "2"):
        return _proxy_v2(client, address, ends, unique_id.encode())
    if client is None or address is None or client.version != address.version:
        return b"PROXY UNKNOWN\r\n"
    family = 4 if client.version == 4 else 6
    return f"PROXY TCP{family} {client} {address} {ends.client_port} {ends.port}\r\n".encode()


def _proxy_v2(
    client: IPv4Address | IPv6Address | None,
    address: IPv4Address | IPv6Address | None,
    ends: TcpEnds,
    unique_id: bytes,
) -> bytes:
    """A family that is not named is passed over by who reads it; what follows it still counts."""
    family, addresses = _UNSPECIFIED, b""
    if client is not None and address is not None and client.version == address.version:
        family = _TCP4 if client.version == 4 else _TCP6
        addresses = client.packed + address.packed + struct.pack(">HH", ends.client_port, ends.port)
    rest = addresses + struct.pack(">BH", _UNIQUE_ID, len(unique_id)) + unique_id
    return _PROXY_SIGNATURE + struct.pack(">BBH", _PROXY_V2, family, len(rest)) + rest


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Without the interface of a link-local one."""
    return ip_address(text.partition("%")[0]) if text else None


_REASONS = {
    200: b"OK",
    301: b"Moved Permanently",
    400: b"Bad Request",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    414: b"URI Too Long",
    421: b"Misdirected Request",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
}
