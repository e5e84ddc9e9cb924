"""The zone of the platform's own domain, answered to anybody: where apps are reached, and what a certificate authority
asks for (DNS-01). Nothing else, and no recursion.

An answer that is larger than its question is worth something to who forges the asker's address. So beyond a rate for
each network of askers the answer says only that it is to be asked over TCP. To read a question costs time that the
resolver of the node's machines lacks, so beyond further rates, of a network and of all, none is read over UDP.

Apps have names of one label, so what the zone itself needs has more: `NAME_SERVER`, and proofs below `acme`.
"""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Any, cast

from dns import exception, flags, message, opcode, rcode, rdataclass, rdatatype, rrset
from dns.name import Name, from_text
from dns.rdata import Rdata
from dns.rdata import from_text as rdata_of
from dns.rdtypes.ANY.TXT import TXT

from hawker.clock import Clock
from hawker.dns.conversation import QUESTION_BYTES, converse
from hawker.fair.table import ZONE_CONNECTIONS
from hawker.fair.turns import Turns
from hawker.log import bind
from hawker.names import KnownZone
from hawker.token_bucket import Allowance, TokenBucket, TokenBuckets

TTL_S, PROOF_TTL_S, NEGATIVE_TTL_S = 60, 1, 5
ANSWERS = Allowance(20.0, 40)
"""Whole answers over UDP to one network, a /24 or a /48: 20 a second, and 40 at once."""
QUESTIONS = Allowance(100.0, 200)
"""Questions of one network, a /24 or a /48, that are read: 100 a second and 200 at once over UDP, and as many again
over TCP. A question beyond the rate gets no answer, and ends a connection."""
ALL_QUESTIONS = Allowance(1000.0, 500)
"""Questions of all askers that are read: 1000 a second and 500 at once over UDP, and as many again over TCP. Sources
over UDP can be forged. A whole answer takes 0.25 ms."""
NAME_SERVER = "a.ns"
"""The name server's name below the domain. No app has such a name: the server with this name decides what the zone
says."""
_PLAIN_BYTES, _UDP_BYTES, _TCP_BYTES = 512, 1232, 65_535
_NETWORK_BITS = {4: 8, 6: 80}  # left out of an address
_IDLE_S, _LOOK_EVERY_S, _LISTEN_BACKLOG = 5.0, 1.0, 64
_log = bind("hawker.dns")


def zone_answer(data: bytes, zone: KnownZone, *, tcp: bool = False, whole: bool = True) -> bytes | None:
    """The answer to a question; None for a message that gets none. Without `whole` the answer only says that the
    question is to be asked over TCP."""
    try:
        query = message.from_wire(data, ignore_trailing=False)
    except (exception.DNSException, ValueError):
        return None
    if query.flags & flags.QR:
        return None
    reply = message.make_response(query)
    most = _TCP_BYTES if tcp else min(max(query.payload, _PLAIN_BYTES), _UDP_BYTES) if query.edns == 0 else _PLAIN_BYTES
    if query.opcode() != opcode.QUERY:
        reply.set_rcode(rcode.NOTIMP)
    elif len(query.question) != 1 or query.edns > 0:
        reply.set_rcode(rcode.BADVERS if query.edns > 0 else rcode.FORMERR)
    elif not whole:
        reply.flags |= flags.TC
    else:
        _answer(reply, query.question[0], zone)
    try:
        return reply.to_wire(max_size=most)
    except exception.TooBig:
        reply.answer, reply.authority = [], []
        reply.flags |= flags.TC
        return reply.to_wire()


def _answer(reply: message.Message, question: rrset.RRset, zone: KnownZone) -> None:
    apex = from_text(zone.domain)
    if question.rdclass != rdataclass.IN or not question.name.is_subdomain(apex):
        reply.set_rcode(rcode.REFUSED)
        return
    reply.flags |= flags.AA
    found = _found(question.name.canonicalize(), apex, zone)
    if found is None:
        reply.set_rcode(rcode.NXDOMAIN)
    records = [each for each in found or () if each.rdtype == question.rdtype]
    if records:
        is_proof = question.rdtype == rdatatype.TXT
        reply.answer.append(rrset.from_rdata_list(question.name, PROOF_TTL_S if is_proof else TTL_S, records))
    else:
        reply.authority.append(rrset.from_rdata_list(apex, NEGATIVE_TTL_S, [_soa(zone)]))


def _found(name: Name, apex: Name, zone: KnownZone) -> list[Rdata] | None:
    """All records of a name; none: it is not there. A name that has others below it is there."""
    labels = [label.decode("ascii", "replace") for label in name.relativize(apex).labels]
    text = name.to_text(omit_final_dot=True)
    proofs = [TXT(rdataclass.IN, rdatatype.TXT, [each.text]) for each in zone.proofs if each.name == text]
    if text == f"{NAME_SERVER}.{zone.domain}":
        return _at(zone.name_servers)
    match labels:
        case []:
            own = [rdata_of(rdataclass.IN, rdatatype.NS, _name_server(zone)), _soa(zone), *_addresses("", zone)]
            return own
        case ["_acme-challenge", *_]:
            return [*proofs]
        case [_, *_, "acme"]:
            return [*proofs] if proofs or _is_above_proof(text, zone) else None
        case [app]:
            return _addresses("" if text == zone.api_hostname else app, zone)
    return None


def _is_above_proof(text: str, zone: KnownZone) -> bool:
    return any(each.name.endswith(f".{text}") for each in zone.proofs)


def _addresses(app: str, zone: KnownZone) -> list[Rdata]:
    """Those that the app has, else the platform's: so nobody learns which apps there are."""
    return _at([each.ip for each in zone.addresses if each.app == app] or zone.shared)


def _at(addresses: tuple[str, ...] | list[str]) -> list[Rdata]:
    kinds = {4: rdatatype.A, 6: rdatatype.AAAA}
    return [rdata_of(rdataclass.IN, kinds[ip_address(each).version], each) for each in addresses]


def _name_server(zone: KnownZone) -> str:
    return f"{NAME_SERVER}.{zone.domain}."


def _soa(zone: KnownZone) -> Rdata:
    text = f"{_name_server(zone)} hostmaster.{zone.domain}. 1 3600 600 86400 {NEGATIVE_TTL_S}"
    return rdata_of(rdataclass.IN, rdatatype.SOA, text)


class _Questions:
    """How many are read, of a network and of all. Those over UDP and over TCP are apart: who sends forged packets in a
    network's name does not take its connections."""

    def __init__(self) -> None:
        self._of = TokenBuckets(QUESTIONS)
        self._all = TokenBucket(ALL_QUESTIONS)

    def admit(self, network: bytes, now: float) -> bool:
        return self._all.wait_s(1, now) <= 0 and self._of.take(network, now) and self._all.take(1, now)


class ZoneSockets:
    """The sockets at the places that the zone names, as it is at each moment. `zone` gives None where there is no
    zone."""

    def __init__(self, zone: Callable[[], KnownZone | None], clock: Clock) -> None:
        self._zone = zone
        self._clock = clock
        self._answers = TokenBuckets(ANSWERS)
        self._over_udp, self._over_tcp = _Questions(), _Questions()
        self._connections = Turns(ZONE_CONNECTIONS)
        self._open: dict[str, _Place] = {}
        self._lacking: set[str] = set()

    async def serve(self) -> None:
        """Open and close sockets as the zone changes, until cancelled."""
        while True:
            zone = self._zone()
            wanted = set(zone.listen) if zone is not None else set()
            for gone in set(self._open) - wanted:
                self._open.pop(gone).close()
            for place in sorted(wanted - set(self._open)):
                await self._try(place)
            await self._clock.sleep(_LOOK_EVERY_S)

    async def _try(self, place: str) -> None:
        try:
            self._open[place] = await _opened(place, self)
            self._lacking.discard(place)
        except (OSError, ValueError) as error:
            if place not in self._lacking:
                _log.warning("the zone is not served", extra={"at": place, "reason": str(error)})
            self._lacking.add(place)

    def answer(self, data: bytes, source: str) -> bytes | None:
        """The answer to a question over UDP; None where it gets none. A question beyond a rate is not read: a flood
        costs some microseconds a packet."""
        now = self._clock.monotonic()
        network = _network(source).encode()
        if len(data) > QUESTION_BYTES or not self._over_udp.admit(network, now):
            return None
        zone = self._zone()
        return None if zone is None else zone_answer(data, zone, whole=self._answers.take(network, now))

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        network = _network(str(peer[0]) if peer else "::")
        answer = partial(self._answer, network.encode())
        await converse(reader, writer, self._connections, network, _IDLE_S, answer)

    async def _answer(self, network: bytes, data: bytes) -> bytes | None:
        """Over TCP; none beyond a rate."""
        zone = self._zone()
        if zone is None or not self._over_tcp.admit(network, self._clock.monotonic()):
            return None
        return zone_answer(data, zone, tcp=True)


class _Place(asyncio.DatagramProtocol):
    """A socket of UDP and one of TCP."""

    def __init__(self, sockets: ZoneSockets) -> None:
        self._sockets = sockets
        self._transport: asyncio.DatagramTransport | None = None
        self.server: asyncio.Server | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: Any) -> None:
        found = self._sockets.answer(data, address[0])
        if found is not None and self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(found, address)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        if self.server is not None:
            self.server.close()


async def _opened(place: str, sockets: ZoneSockets) -> _Place:
    """Raises `OSError`."""
    host, _, port = place.rpartition(":")
    made, loop = _Place(sockets), asyncio.get_running_loop()
    address = (host.strip("[]"), int(port))
    await loop.create_datagram_endpoint(lambda: made, sock=_bound(address, socket.SOCK_DGRAM))
    try:
        made.server = await asyncio.start_server(sockets.converse, sock=_bound(address, socket.SOCK_STREAM))
    except OSError:
        made.close()
        raise
    return made


def _bound(address: tuple[str, int], kind: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    made = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        if kind == socket.SOCK_STREAM:
            made.listen(_LISTEN_BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def _network(source: str) -> str:
    """Whose questions are counted together."""
    try:
        found = ip_address(source.partition("%")[0])
    except ValueError:
        return source
    return f"{found.version}/{int(found) >> _NETWORK_BITS[found.version]:x}"
