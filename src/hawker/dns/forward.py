"""Names of the world: asked of the host's servers, kept for as long as they say, within bounds. Over a connection of
its own, with an id and a port that nobody outside can guess, for each question (RFC 5452); expired answers are given
while no server answers (RFC 8767).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from struct import Struct

import anyio
from dns import flags, message, rcode

from hawker.clock import Clock
from hawker.dns.answer import Question
from hawker.dns.wire import WireAnswer, question_bytes, read_answer
from hawker.errors import OverShare
from hawker.fair.occupancy import Occupancy
from hawker.fair.table import DNS_FORWARDS, DNS_FORWARDS_OF_NETWORK
from hawker.fair.turns import Turns
from hawker.value_object import ValueObject

KEPT, KEPT_BYTES = 10_000, 4096
"""Answers that are kept, and the most bytes of one. Beyond that the network that has put most loses its oldest."""
_LEAST_TTL_S, _MOST_TTL_S, _NEGATIVE_TTL_S = 1, 3600, 60
_STALE_S, _STALE_TTL_S = 3600.0, 5
_TRIES, _TRY_S, _TCP_S = 2, 0.8, 3.0
_TCP_BYTES, _LENGTH = 65_535, Struct("!H")
_PORT = 53


class _Kept(ValueObject, frozen=True):
    """An answer, when it was given and until when it counts. `network_id`: the network that asked for it first."""

    answer: WireAnswer
    at: float
    until: float
    network_id: int


class Forwarder:
    """Asks other name servers, and keeps their answers. `servers` are addresses, read anew for each question. For one
    event loop."""

    def __init__(self, servers: Callable[[], Sequence[str]], clock: Clock, port: int = _PORT) -> None:
        self._servers = servers
        self._now = clock.monotonic
        self._chance = clock.random
        self._port = port
        self._kept: dict[object, _Kept] = {}
        self._put: dict[int, OrderedDict[object, None]] = {}  # the keys of each network's answers, the oldest first
        self._under_way, self._of_network = Turns(DNS_FORWARDS), Occupancy(DNS_FORWARDS_OF_NETWORK)

    def kept(self, asked: Question, *, tcp: bool) -> bytes | None:
        """The answer, where it is known from before and counts still."""
        kept = self._kept.get(_key(asked))
        return self._again(asked, kept, tcp=tcp) if kept is not None and self._now() < kept.until else None

    async def ask(self, asked: Question, network_id: int, machine: str, *, tcp: bool) -> bytes | None:
        """The answer, with the question's own id; None when no server gave an answer. Raises `OverShare` when the
        machine, or its private network, has too many questions under way."""
        again = self.kept(asked, tcp=tcp)
        if again is not None:
            return again
        with self._under_way.hold_now(machine), self._held(str(network_id)):
            found = await self._found(asked, tcp=tcp)
        key = _key(asked)
        if found is not None:
            self._keep(key, found, network_id)
            return found.reply(asked, _most(asked, tcp=tcp), turn=self._chance())
        kept = self._kept.get(key)
        return self._again(asked, kept, tcp=tcp) if kept is not None and self._now() < kept.until + _STALE_S else None

    @contextmanager
    def _held(self, network: str) -> Iterator[None]:
        if not self._of_network.fits(network):
            raise OverShare(DNS_FORWARDS_OF_NETWORK.over)
        self._of_network.enter(network)
        try:
            yield
        finally:
            self._of_network.leave(network)

    async def _found(self, asked: Question, *, tcp: bool) -> WireAnswer | None:
        servers = self._servers()
        for number in range(_TRIES if servers else 0):
            server, query = servers[number % len(servers)], _question(asked)
            try:
                with anyio.fail_after(_TCP_S if tcp else _TRY_S):
                    wire = await (_over_tcp if tcp else _over_udp)(query.to_wire(), server, self._port)
                return read_answer(wire, query.id, question_bytes(asked))
            except (OSError, ValueError, EOFError):
                continue
        return None

    def _keep(self, key: object, found: WireAnswer, network_id: int) -> None:
        if found.flags & flags.TC or found.code not in (rcode.NOERROR, rcode.NXDOMAIN) or len(found.body) > KEPT_BYTES:
            return
        now, before = self._now(), self._kept.get(key)
        kept = _Kept(found, now, now + _ttl_s(found), network_id if before is None else before.network_id)
        self._kept[key] = kept
        mine = self._put.setdefault(kept.network_id, OrderedDict())
        mine[key] = None
        mine.move_to_end(key)
        while len(self._kept) > KEPT:
            most = max(self._put, key=lambda each: len(self._put[each]))
            oldest, _ = self._put[most].popitem(last=False)
            del self._kept[oldest]

    def _again(self, asked: Question, kept: _Kept, *, tcp: bool) -> bytes:
        now = self._now()
        least_s, turn = 0 if now < kept.until else _STALE_TTL_S, self._chance()
        return kept.answer.reply(asked, _most(asked, tcp=tcp), age_s=int(now - kept.at), least_s=least_s, turn=turn)


class _Heard(asyncio.DatagramProtocol):
    """The first packet that a server sends, of those from its own address."""

    def __init__(self) -> None:
        self.packet: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, address: object) -> None:
        if not self.packet.done():
            self.packet.set_result(data)

    def error_received(self, error: Exception) -> None:
        if not self.packet.done():
            self.packet.set_exception(error)


async def _over_udp(query: bytes, server: str, port: int) -> bytes:
    loop = asyncio.get_running_loop()
    transport, heard = await loop.create_datagram_endpoint(_Heard, remote_addr=(server, port))
    try:
        transport.sendto(query)
        return await heard.packet
    finally:
        transport.close()


async def _over_tcp(query: bytes, server: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(server, port)
    try:
        writer.write(_LENGTH.pack(len(query)) + query)
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return await reader.readexactly(length)
    finally:
        writer.transport.abort()


def _key(asked: Question) -> object:
    return asked.name.canonicalize(), asked.kind, asked.query.flags & flags.CD, asked.query.ednsflags & flags.DO


def _most(asked: Question, *, tcp: bool) -> int:
    return _TCP_BYTES if tcp else asked.most


def _question(asked: Question) -> message.QueryMessage:
    """The question anew: nothing that a client has put beside it goes to others."""
    query = message.make_query(asked.name, asked.kind, use_edns=0, payload=1232, want_dnssec=_wants_dnssec(asked))
    query.flags |= asked.query.flags & (flags.RD | flags.CD | flags.AD)
    return query


def _wants_dnssec(asked: Question) -> bool:
    return bool(asked.query.ednsflags & flags.DO)


def _ttl_s(found: WireAnswer) -> int:
    """An answer without records counts for as long as its zone says (RFC 2308)."""
    if found.least_ttl_s is not None:
        return max(_LEAST_TTL_S, min(_MOST_TTL_S, found.least_ttl_s))
    said = _NEGATIVE_TTL_S if found.negative_ttl_s is None else found.negative_ttl_s
    return min(_NEGATIVE_TTL_S, said) or _LEAST_TTL_S
