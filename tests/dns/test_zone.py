"""The platform's own zone: what it answers to the world, and what it does not."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import dns.asyncquery
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import msgspec
import pytest

from hawker.clock import ManualClock
from hawker.dns import zone as zone_module
from hawker.dns.zone import ALL_QUESTIONS, ANSWERS, QUESTIONS, ZoneSockets, zone_answer
from hawker.ids import AppName
from hawker.names import KnownZone, NamedAddress, ZoneProof
from tests.dns.test_forward import Hands
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
DOMAIN = "apps.example.com"
PROOF = ZoneProof(name=f"_acme-challenge.{DOMAIN}", text="proof")
FAR_PROOF = ZoneProof(name=f"www.example.org.0123abcd.acme.{DOMAIN}", text="far")
ZONE = KnownZone(
    domain=DOMAIN,
    name_servers=("192.0.2.53",),
    shared=("192.0.2.1", "2001:db8::1"),
    addresses=(NamedAddress(app=AppName("alone"), ip="192.0.2.7"),),
    proofs=(PROOF, FAR_PROOF),
)


def asked(name: str, kind: str = "A", zone: KnownZone = ZONE) -> dns.message.Message:
    found = zone_answer(dns.message.make_query(name, kind).to_wire(), zone)
    assert found is not None
    return dns.message.from_wire(found)


def texts(reply: dns.message.Message) -> list[str]:
    return sorted(each.to_text() for section in reply.answer for each in section)


@pytest.mark.parametrize(
    ("name", "kind", "wanted"),
    [
        (f"shop.{DOMAIN}", "A", ["192.0.2.1"]),
        (f"SHOP.{DOMAIN.upper()}.", "AAAA", ["2001:db8::1"]),
        (f"alone.{DOMAIN}", "A", ["192.0.2.7"]),
        (DOMAIN, "NS", [f"a.ns.{DOMAIN}."]),
        (f"a.ns.{DOMAIN}", "A", ["192.0.2.53"]),
        (f"ns.{DOMAIN}", "A", ["192.0.2.1"]),
        (f"acme.{DOMAIN}", "AAAA", ["2001:db8::1"]),
        (f"_acme-challenge.{DOMAIN}", "TXT", ['"proof"']),
        (f"www.example.org.0123abcd.acme.{DOMAIN}", "TXT", ['"far"']),
    ],
)
def test_names_of_the_zone_lead_where_apps_are_reached(name: str, kind: str, wanted: list[str]) -> None:
    reply = asked(name, kind)
    assert reply.rcode() == dns.rcode.NOERROR and reply.flags & dns.flags.AA and not reply.flags & dns.flags.RA
    assert texts(reply) == wanted


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"alone.{DOMAIN}", "AAAA"),
        (f"shop.{DOMAIN}", "CAA"),
        (f"_acme-challenge.shop.{DOMAIN}", "TXT"),
        (f"0123abcd.acme.{DOMAIN}", "TXT"),
        (f"acme.{DOMAIN}", "TXT"),
    ],
)
def test_a_name_without_such_records_is_there(name: str, kind: str) -> None:
    reply = asked(name, kind)
    assert reply.rcode() == dns.rcode.NOERROR and not reply.answer
    assert reply.authority[0].rdtype == dns.rdatatype.SOA


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (f"a.b.{DOMAIN}", dns.rcode.NXDOMAIN),
        (f"www.example.org.ffffffff.acme.{DOMAIN}", dns.rcode.NXDOMAIN),
        ("example.com", dns.rcode.REFUSED),
        ("shop.internal", dns.rcode.REFUSED),
        ("www.example.org", dns.rcode.REFUSED),
    ],
)
def test_a_name_outside_the_zone_is_not_answered(name: str, code: dns.rcode.Rcode) -> None:
    reply = asked(name, "TXT")
    assert reply.rcode() == code and not reply.answer


@pytest.mark.parametrize("app", ["acme", "ns"])
def test_an_app_that_is_named_as_a_part_of_the_zone_is_found_at_its_own_address(app: str) -> None:
    own = NamedAddress(app=AppName(app), ip="192.0.2.8")
    zone = msgspec.structs.replace(ZONE, addresses=(own,))
    assert texts(asked(f"{app}.{DOMAIN}", zone=zone)) == ["192.0.2.8"]
    assert texts(asked(f"a.ns.{DOMAIN}", zone=zone)) == ["192.0.2.53"], "no app answers for the zone"
    assert texts(asked(f"www.example.org.0123abcd.acme.{DOMAIN}", "TXT", zone)) == ['"far"']


def test_bytes_that_are_no_question_get_no_answer_or_a_refusal() -> None:
    assert zone_answer(b"", ZONE) is None and zone_answer(b"\xff" * 40, ZONE) is None
    answered = dns.message.make_response(dns.message.make_query(DOMAIN, "A")).to_wire()
    assert zone_answer(answered, ZONE) is None, "an answer is no question: two servers would answer each other for ever"
    update = dns.message.make_query(DOMAIN, "A")
    update.set_opcode(dns.opcode.STATUS)
    found = zone_answer(update.to_wire(), ZONE)
    assert found is not None and dns.message.from_wire(found).rcode() == dns.rcode.NOTIMP


def test_an_answer_that_does_not_fit_says_so() -> None:
    many = KnownZone(domain=DOMAIN, shared=tuple(f"192.0.2.{number}" for number in range(1, 120)))
    query = dns.message.make_query(f"shop.{DOMAIN}", "A").to_wire()
    short, whole = zone_answer(query, many), zone_answer(query, many, tcp=True)
    assert short is not None and whole is not None and len(short) <= 512
    assert dns.message.from_wire(short).flags & dns.flags.TC and len(texts(dns.message.from_wire(whole))) == 119


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def serving(zone: KnownZone) -> AsyncIterator[int]:
    """No time passes for what is asked so often."""
    port = free_port()
    listening = KnownZone(domain=zone.domain, listen=(f"127.0.0.1:{port}",), shared=zone.shared)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ZoneSockets(lambda: listening, Hands()).serve)
        await eventually(lambda: _listens(port))
        yield port
        tasks.cancel_scope.cancel()


async def test_a_flood_gets_short_answers_over_udp_and_whole_ones_over_tcp() -> None:
    query = dns.message.make_query(f"shop.{DOMAIN}", "A")
    async with serving(ZONE) as port:
        whole = 0
        for _ in range(int(ANSWERS.burst) + 60):
            reply = await dns.asyncquery.udp(query, "127.0.0.1", port=port, timeout=60, raise_on_truncation=False)
            assert bool(reply.answer) is not bool(reply.flags & dns.flags.TC)
            whole += bool(reply.answer)
        assert whole == ANSWERS.burst
        reply = await dns.asyncquery.tcp(query, "127.0.0.1", port=port, timeout=60)
        assert texts(reply) == ["192.0.2.1"]


def test_questions_beyond_a_rate_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read, clock = list[bytes](), ManualClock()

    def counted(data: bytes, zone: KnownZone, *, whole: bool) -> bytes | None:
        read.append(data)
        return zone_answer(data, zone, whole=whole)

    monkeypatch.setattr(zone_module, "zone_answer", counted)
    sockets, query = ZoneSockets(lambda: ZONE, clock), dns.message.make_query(f"shop.{DOMAIN}", "A").to_wire()
    answers = [sockets.answer(query, f"198.51.100.{number % 250}") for number in range(2000)]
    assert len(read) == QUESTIONS.burst == sum(each is not None for each in answers), "one network"
    assert sockets.answer(query, "203.0.113.1") is not None, "another one is answered"
    clock.advance(60.0)
    read.clear()
    for number in range(5000):
        sockets.answer(query, f"10.{number // 250}.{number % 250}.1")
    assert len(read) == ALL_QUESTIONS.burst, "forged sources, each of a network of its own"
    clock.advance(1.0)
    assert sockets.answer(query, "10.0.0.1") is not None, "after a second questions are read again"


async def test_a_connection_with_more_questions_than_its_network_may_ask_is_closed() -> None:
    query = dns.message.make_query(f"shop.{DOMAIN}", "A").to_wire()
    async with serving(ZONE) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((struct.pack("!H", len(query)) + query) * (2 * int(QUESTIONS.burst)))
        answered = (await reader.read()).count(query[:2] + b"\x85")
        assert QUESTIONS.burst <= answered < 2 * QUESTIONS.burst
        writer.close()
        reply = await dns.asyncquery.udp(
            dns.message.make_query(f"shop.{DOMAIN}", "A"), "127.0.0.1", port=port, timeout=60
        )
        assert texts(reply) == ["192.0.2.1"], "questions over UDP are counted apart"


async def test_a_connection_that_says_nothing_of_dns_is_closed() -> None:
    async with serving(ZONE) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(struct.pack("!H", 20) + b"\xff" * 20)
        assert await reader.read() == b""
        writer.close()


def test_the_host_name_of_the_api_leads_to_the_platform_though_an_app_of_that_name_has_an_address() -> None:
    zone = msgspec.structs.replace(ZONE, api_hostname=f"alone.{DOMAIN}")
    assert texts(asked(f"alone.{DOMAIN}", zone=zone)) == ["192.0.2.1"]
