"""Connections that a balancer in front passes on: its PROXY head says who the client is, versions 1 and 2.

Only who connects from a network that the operator names is asked for a head, and must send one; of everybody else the
first bytes are the client's own, so nobody gives himself an address. Source: HAProxy's proxy-protocol.txt, 2.1 and 2.2.

At a private address who connects from another network is reset before anything is read: the host's packet filter drops
him first, and this holds without it.
"""

import asyncio
import struct
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, cast

from hawker import log
from hawker.clock import Clock
from hawker.edge.routes import Door
from hawker.edge.splice import address_of, reset
from hawker.edge.visits import Counters
from hawker.edge.writing import TcpEnds
from hawker.fair.connections import ConnectionTable
from hawker.fair.table import EDGE_PROXIED
from hawker.names import is_outside, is_private_address
from hawker.value_object import ValueObject

HEAD_S = 5.0
"""Seconds that a balancer may take for its head."""
MAX_V2_BYTES = 4096
"""The most bytes of a head of version 2 with all its additions: balancers send some hundred."""
_MAX_V1_BYTES = 107
_V1, _V2 = b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n"
_V2_FIXED = struct.Struct(">12sBBH")
_LOCAL, _PROXY = 0x20, 0x21
_TCP4, _TCP6 = 0x11, 0x21
_ADDRESSES = {_TCP4: struct.Struct(">4s4sHH"), _TCP6: struct.Struct(">16s16sHH")}
_FAMILIES, _TRANSPORTS = 3, 2
_SAID_EVERY_S = 10.0
_log = log.bind("hawker.edge")


class BadProxyHeadError(ValueError):
    """The first bytes are no PROXY head, or a malformed one."""


class ProxyHead(ValueObject, frozen=True):
    """The head of a balancer. `ends` are the client and the address that it came to; None when the balancer speaks for
    itself, as it does to see whether we are there, or knows no addresses. The client's own bytes begin after `length`
    bytes."""

    ends: TcpEnds | None
    length: int


def read_proxy_head(data: bytes | bytearray) -> ProxyHead | None:
    """The PROXY head in the bytes; None while some of it is missing. Raises `BadProxyHeadError`."""
    if data[: len(_V2)] == _V2[: len(data)]:
        return _read_v2(data) if len(data) >= _V2_FIXED.size else None
    if data[: len(_V1)] == _V1[: len(data)]:
        return _read_v1(bytes(data[:_MAX_V1_BYTES]))
    raise BadProxyHeadError("what came first is no PROXY head")


def _read_v1(data: bytes) -> ProxyHead | None:
    line, end, _ = data.partition(b"\r\n")
    if not end:
        if len(data) == _MAX_V1_BYTES:
            raise BadProxyHeadError(f"a line of more than {_MAX_V1_BYTES} bytes")
        return None
    length, words = len(line) + len(end), line.split(b" ")
    if words[1] == b"UNKNOWN":  # what follows it is to be passed over
        return ProxyHead(None, length)
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise BadProxyHeadError("the line is malformed")
    kind = IPv4Address if words[1] == b"TCP4" else IPv6Address
    try:
        client, address = (kind(word.decode("ascii")) for word in words[2:4])
    except ValueError as error:
        raise BadProxyHeadError("the line has no two addresses of its family") from error
    return ProxyHead(_ends(client, _port(words[4]), address, _port(words[5])), length)


def _port(word: bytes) -> int:
    if not (word.isdigit() and len(word) <= 5 and int(word) < 65536 and str(int(word)).encode() == word):
        raise BadProxyHeadError("the line has no two ports")
    return int(word)


def _read_v2(data: bytes | bytearray) -> ProxyHead | None:
    _, command, family, rest = _V2_FIXED.unpack_from(data)
    length = _V2_FIXED.size + rest
    if command not in (_LOCAL, _PROXY):
        raise BadProxyHeadError("another version than 1 and 2, or another command than LOCAL and PROXY")
    if family >> 4 > _FAMILIES or family & 15 > _TRANSPORTS:
        raise BadProxyHeadError("a family that is not known")
    if length > MAX_V2_BYTES:
        raise BadProxyHeadError(f"a head of {length} bytes, {MAX_V2_BYTES} at most")
    fields = _ADDRESSES.get(family)
    if command == _PROXY and fields is not None and rest < fields.size:
        raise BadProxyHeadError("it is too short for its addresses")
    if len(data) < length:
        return None
    if command == _LOCAL or fields is None:
        return ProxyHead(None, length)
    client, address, client_port, port = fields.unpack_from(data, _V2_FIXED.size)
    return ProxyHead(_ends(ip_address(client), client_port, ip_address(address), port), length)


def _ends(
    client: IPv4Address | IPv6Address, client_port: int, address: IPv4Address | IPv6Address, port: int
) -> TcpEnds:
    """As the kernel would name them. An IPv6 address that stands for one of IPv4 is that one."""
    texts = (str(getattr(each, "ipv4_mapped", None) or each).partition("%")[0] for each in (client, address))
    return TcpEnds(next(texts), client_port, next(texts), port)


# From the accept to whoever serves the client.


class ProxiedConnections:
    """The connections of balancers, before their clients are known. `accept` makes the protocol of a client whose
    address is known. `scarce` says whether the process is short of room."""

    def __init__(
        self, accept: Callable[[Door], asyncio.Protocol], scarce: Callable[[], bool], clock: Clock, counters: Counters
    ) -> None:
        self.accept_known = accept
        self.table = ConnectionTable(EDGE_PROXIED, scarce)  # those whose head has not come
        self.now = clock.monotonic
        self._counters = counters
        self._networks: tuple[IPv4Network | IPv6Network, ...] = ()
        self._live: set[_Introduced] = set()
        self._said_at = float("-inf")

    def believe(self, networks: Sequence[str]) -> None:
        """Take these networks as the balancers' for connections from now on."""
        self._networks = tuple(ip_network(text) for text in networks)

    def accept(self, door: Door) -> asyncio.Protocol:
        asks = self._networks or is_private_address(door.address)
        return _Introduced(self, door) if asks else self.accept_known(door)

    def believes(self, address: str) -> bool:
        """Whether the address is a balancer's."""
        found = ip_address(address.partition("%")[0]) if address else None
        return found is not None and any(found in network for network in self._networks)

    def check_time(self) -> None:
        """To be called a few times a second: refuse connections whose head has not come in time."""
        now = self.now()
        for connection in [each for each in self._live if now >= each.deadline]:
            connection.refuse("no head came in time")

    def admit(self, connection: "_Introduced", address: str) -> bool:
        if not self.table.admit(connection, address):
            return False
        self._live.add(connection)
        return True

    def release(self, connection: "_Introduced") -> None:
        self._live.discard(connection)
        self.table.release(connection)

    def known(self) -> None:
        """Count a head that was believed."""
        self._counters.add("proxy_heads")

    def kept_out(self) -> None:
        self._counters.add("outsiders_refused")

    def refused(self, address: str, reason: str) -> None:
        """Count a refused connection, and log it now and then: most likely it is of a balancer that is set up
        otherwise."""
        self._counters.add("proxy_heads_refused")
        if self.now() >= self._said_at + _SAID_EVERY_S:
            self._said_at = self.now()
            _log.warning("a balancer sent no PROXY head", extra={"address": address, "reason": reason})


class _Introduced(asyncio.Protocol):
    """One connection until it is known whose it is. Keeps `Closable`."""

    def __init__(self, connections: ProxiedConnections, door: Door) -> None:
        self._connections = connections
        self._door = door
        self._raw: asyncio.Transport | None = None
        self._address = ""
        self._data = bytearray()
        self.deadline = connections.now() + HEAD_S

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = raw = cast(asyncio.Transport, transport)
        self._address = address_of(raw, "peername")
        if is_outside(self._door.address, self._address):
            self._connections.kept_out()
            reset(raw)
        elif not self._connections.believes(self._address):
            self._hand_over(raw, raw)
        elif not self._connections.admit(self, self._address):
            reset(raw)

    def data_received(self, data: bytes) -> None:
        raw = self._raw
        if raw is None or raw.is_closing():
            return
        self._data += data
        try:
            head = read_proxy_head(self._data)
        except BadProxyHeadError as error:
            self.refuse(str(error))
            return
        if head is not None:
            self._connections.release(self)
            self._connections.known()
            early = bytes(self._data[head.length :])
            self._hand_over(raw, raw if head.ends is None else ProxiedTransport(raw, head.ends), early)

    def eof_received(self) -> bool:
        """A balancer that only looks whether we are there says nothing."""
        if self._data:
            self.refuse("it ended within its head")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._raw = None
        self._connections.release(self)

    def give_up(self) -> None:
        if self._raw is not None:
            reset(self._raw)

    def refuse(self, reason: str) -> None:
        if self._raw is not None and not self._raw.is_closing():
            self._connections.refused(self._address, reason)
            reset(self._raw)

    def _hand_over(self, raw: asyncio.Transport, shown: asyncio.Transport, early: bytes = b"") -> None:
        protocol = self._connections.accept_known(self._door)
        raw.set_protocol(protocol)
        protocol.connection_made(shown)
        current = raw.get_protocol()  # it may be another one's by now
        if early and isinstance(current, asyncio.Protocol) and not raw.is_closing():
            current.data_received(early)


class ProxiedTransport(asyncio.Transport):
    """A connection whose two ends are those that its head names; all other information is the connection's own."""

    def __init__(self, raw: asyncio.Transport, ends: TcpEnds) -> None:
        super().__init__()
        self._raw = raw
        self._named = {"peername": (ends.client, ends.client_port), "sockname": (ends.address, ends.port)}

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._named.get(name) or self._raw.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._raw.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._raw.get_protocol()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def is_reading(self) -> bool:
        return self._raw.is_reading()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._raw.write(data)

    def writelines(self, list_of_data: Any) -> None:
        self._raw.writelines(list_of_data)

    def can_write_eof(self) -> bool:
        return self._raw.can_write_eof()

    def write_eof(self) -> None:
        self._raw.write_eof()

    def close(self) -> None:
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()
