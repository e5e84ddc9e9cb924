"""Names of the world: asked of the host's servers, kept for as long as they say, within bounds. Over a connection of
its own, with an id and a port that nobody outside can guess, for each question (RFC 5452); expired answers are given
while no server answers (RFC 8767).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dns import asyncquery, exception, flags, message, rcode, rdatatype

from hawker.clock import Clock
from hawker.dns.answer import Question
from hawker.errors import OverShare
from hawker.fair.occupancy import Occupancy
from hawker.fair.table import DNS_FORWARDS, DNS_FORWARDS_OF_NETWORK
from hawker.fair.turns import Turns
from hawker.value_object import ValueObject

KEPT, KEPT_BYTES = 10_000, 4096
_LEAST_TTL_S, _MOST_TTL_S, _NEGATIVE_TTL_S = 1, 3600, 60
_STALE_S, _STALE_TTL_S = 3600.0, 5
_TRIES, _TRY_S, _TCP_S = 2, 0.8, 3.0
_PORT = 53


class _Kept(ValueObject, frozen=True):
    """An answer's bytes, when it was given and until when it counts."""

    wire: bytes
    at: float
    until: float


class Forwarder:
    """Asks other name servers, and keeps their answers. `servers` are addresses, read anew for each question. For one
    event loop."""

    def __init__(self, servers: Callable[[], Sequence[str]], clock: Clock, port: int = _PORT) -> None:
        self._servers = servers
        self._now = clock.monotonic
        self._port = port
        self._kept: OrderedDict[object, _Kept] = OrderedDict()
        self._under_way, self._of_network = Turns(DNS_FORWARDS), Occupancy(DNS_FORWARDS_OF_NETWORK)

    async def ask(self, asked: Question, network_id: int, machine: str, *, tcp: bool) -> message.Message | None:
        """The answer, with the question's own id; None when no server gave an answer. Raises `OverShare` when the
        machine, or its private network, has too many questions under way."""
        key = (asked.name.canonicalize(), asked.kind, asked.query.flags & flags.CD, asked.query.ednsflags & flags.DO)
        kept = self._kept.get(key)
        if kept is not None and self._now() < kept.until:
            return self._again(asked, kept)
        with self._under_way.hold_now(machine), self._held(str(network_id)):
            found = await self._found(asked, tcp=tcp)
        if found is not None:
            self._keep(key, found)
            return _for(asked, found)
        if kept is not None and self._now() < kept.until + _STALE_S:
            return self._again(asked, kept)
        return None

    @contextmanager
    def _held(self, network: str) -> Iterator[None]:
        if not self._of_network.fits(network):
            raise OverShare(DNS_FORWARDS_OF_NETWORK.over)
        self._of_network.enter(network)
        try:
            yield
        finally:
            self._of_network.leave(network)

    async def _found(self, asked: Question, *, tcp: bool) -> message.Message | None:
        servers = self._servers()
        for number in range(_TRIES if servers else 0):
            server = servers[number % len(servers)]
            try:
                return await self._one(_question(asked), server, tcp=tcp)
            except (OSError, exception.DNSException, ValueError, EOFError):
                continue
        return None

    async def _one(self, query: message.Message, server: str, *, tcp: bool) -> message.Message:
        if tcp:
            return await asyncquery.tcp(query, server, timeout=_TCP_S, port=self._port)
        return await asyncquery.udp(query, server, timeout=_TRY_S, port=self._port, ignore_unexpected=True)

    def _keep(self, key: object, found: message.Message) -> None:
        if found.flags & flags.TC or found.rcode() not in (rcode.NOERROR, rcode.NXDOMAIN):
            return
        wire = found.to_wire()
        if len(wire) > KEPT_BYTES:
            return
        now = self._now()
        self._kept[key] = _Kept(wire, now, now + _ttl_s(found))
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def _again(self, asked: Question, kept: _Kept) -> message.Message:
        found, age_s = message.from_wire(kept.wire), int(self._now() - kept.at)
        for section in (found.answer, found.authority):
            for each in section:
                each.ttl = max(each.ttl - age_s, 0 if self._now() < kept.until else _STALE_TTL_S)
        return _for(asked, found)


def _question(asked: Question) -> message.QueryMessage:
    """The question anew: nothing that a client has put beside it goes to others."""
    query = message.make_query(asked.name, asked.kind, use_edns=0, payload=1232, want_dnssec=_wants_dnssec(asked))
    query.flags |= asked.query.flags & (flags.RD | flags.CD | flags.AD)
    return query


def _wants_dnssec(asked: Question) -> bool:
    return bool(asked.query.ednsflags & flags.DO)


def _for(asked: Question, found: message.Message) -> message.Message:
    reply = message.make_response(asked.query, recursion_available=True)
    reply.flags |= found.flags & (flags.TC | flags.AD)
    reply.set_rcode(found.rcode())
    reply.answer, reply.authority = found.answer, found.authority
    return reply


def _ttl_s(found: message.Message) -> int:
    """An answer without records counts for as long as its zone says (RFC 2308)."""
    if found.answer:
        return max(_LEAST_TTL_S, min(_MOST_TTL_S, *(each.ttl for each in found.answer), _MOST_TTL_S))
    zones = [each for each in found.authority if each.rdtype == rdatatype.SOA]
    return min([_NEGATIVE_TTL_S, *(min(each.ttl, each[0].minimum) for each in zones)]) or _LEAST_TTL_S
