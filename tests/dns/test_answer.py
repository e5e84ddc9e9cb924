"""Answers as a client that somebody else wrote reads them, and packets that are no questions."""

from unittest.mock import Mock

import pytest
from dns import flags, message, opcode, rcode, rdataclass, rdatatype
from dns.reversename import from_address
from hypothesis import given
from hypothesis import strategies as st

from hawker.dns import answer as answer_module
from hawker.dns.answer import NEGATIVE_TTL_S, TCP_BYTES, TTL_S, Question, answer, failed, read_question, wire_of
from hawker.dns.view import Leads
from hawker.names import KnownNames
from tests.dns.known import FLYCAST, HERE, MINE, ONE, THEIRS, addresses, answered, asked, named, texts, view


def test_an_answer_has_the_questions_id_and_case_and_a_short_life() -> None:
    question = asked("ShOp.InterNal", id=4711)
    reply = message.from_wire(wire_of(answer(question, view()), 1232))
    assert reply.id == 4711 and reply.flags & flags.QR and reply.flags & flags.AA and reply.flags & flags.RA
    assert str(reply.answer[0].name) == "ShOp.InterNal." and reply.answer[0].ttl == TTL_S
    assert ONE.ip in addresses(reply) and len(addresses(reply)) == 3


def test_a_text_is_cut_into_strings_of_255_bytes() -> None:
    known = KnownNames(node=HERE, region="ams", machines=tuple(named(number) for number in range(1, 40)))
    reply = message.from_wire(wire_of(answer(asked("vms.shop.internal", "TXT"), view(MINE, known)), 65_535))
    (record,) = reply.answer[0]
    assert len(record.strings) > 1 and all(len(each) == 255 for each in record.strings[:-1])
    assert texts(reply)[0].count(",") == 38


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("nobody.internal", "AAAA", rcode.NXDOMAIN),
        ("bank.internal", "AAAA", rcode.NXDOMAIN),
        ("bank.flycast", "AAAA", rcode.NXDOMAIN),
        ("a.shop.flycast", "AAAA", rcode.NXDOMAIN),
        ("empty.flycast", "AAAA", rcode.NOERROR),
        ("shop.flycast", "A", rcode.NOERROR),
        ("empty.internal", "AAAA", rcode.NOERROR),
        ("shop.internal", "A", rcode.NOERROR),
        ("shop.internal", "HTTPS", rcode.NOERROR),
        ("shop.internal", "SRV", rcode.NOERROR),
        ("_apps.internal", "AAAA", rcode.NOERROR),
        ("internal", "AAAA", rcode.NOERROR),
        ("1.0.0.0.a.a.d.f.ip6.arpa", "PTR", rcode.NOERROR),
        ("g.a.a.d.f.ip6.arpa", "PTR", rcode.NXDOMAIN),
    ],
)
def test_a_name_without_such_records_is_empty_and_no_name_is_denied(name: str, kind: str, code: rcode.Rcode) -> None:
    reply = answered(name, kind)
    assert (reply.rcode(), reply.answer) == (code, [])
    assert reply.authority[0].rdtype == rdatatype.SOA and reply.authority[0].ttl == NEGATIVE_TTL_S


def test_addresses_have_names_in_their_network() -> None:

    name = str(from_address(ONE.ip))
    assert str(answered(name, "PTR").answer[0][0]) == f"{ONE.id}.vm.shop.internal."
    assert answered(name, "PTR", THEIRS).rcode() == rcode.NXDOMAIN


def test_an_answer_that_does_not_fit_is_said_to_be_cut() -> None:
    known = KnownNames(node=HERE, region="ams", machines=tuple(named(number) for number in range(1, 400)))
    plain, extended = asked("shop.internal"), asked("shop.internal", use_edns=0, payload=4096)
    for question, most in ((plain, 512), (extended, 1232)):
        assert question.most == most
        wire = wire_of(answer(question, view(MINE, known)), question.most)
        assert len(wire) <= most and message.from_wire(wire).flags & flags.TC
    assert len(addresses(message.from_wire(wire_of(answer(question, view(MINE, known)), 65_535)))) == 399


def test_a_list_is_whole_over_tcp_up_to_the_last_byte_that_a_packet_has() -> None:
    seen, room = view(), TCP_BYTES - 12 - len("_instances.internal") - 2 - 4 - 12
    for length in range(65_240, 65_600, 5):
        seen.texts["_instances",] = Leads(texts=("x" * length,))
        reply = message.from_wire(wire_of(answer(asked("_instances.internal", "TXT"), seen), TCP_BYTES))
        assert (len(reply.answer), bool(reply.flags & flags.TC)) == ((1, False) if length + 256 <= room else (0, True))


def test_an_answer_that_cannot_fit_is_cut_before_its_records_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownNames(node=HERE, region="ams", machines=tuple(named(number) for number in range(1, 400)))
    monkeypatch.setattr(answer_module, "_records", Mock(side_effect=AssertionError))
    for name, kind in (("shop.internal", "AAAA"), ("_instances.internal", "TXT")):
        reply = answer(asked(name, kind), view(MINE, known), 1232)
        assert reply.flags & flags.TC and not reply.authority


@pytest.mark.parametrize(("name", "ours"), [("a.internal", True), ("x.flycast", True), ("example.com", False),
                                            ("0.a.a.d.f.ip6.arpa", True), ("1.0.0.2.ip6.arpa", False),
                                            ("internal.example.com", False), ("notinternal", False)])  # fmt: skip
def test_private_names_are_nobody_elses(name: str, ours: bool) -> None:
    assert asked(name).is_ours is ours


def test_a_packet_that_is_no_question_gets_no_answer_or_is_refused() -> None:
    assert read_question(b"") is None and read_question(b"\0" * 11) is None
    response = message.make_response(message.make_query("a.internal", "AAAA"))
    assert read_question(response.to_wire()) is None, "two resolvers would talk for ever"
    query = message.make_query("a.internal", "AAAA")
    query.set_opcode(opcode.NOTIFY)
    assert _code(query) == rcode.NOTIMP
    assert _code(message.make_query("a.internal", "AAAA", rdclass=rdataclass.CH)) == rcode.REFUSED
    two = message.make_query("a.internal", "AAAA")
    two.question += message.make_query("b.internal", "AAAA").question
    assert _code(two) == rcode.FORMERR
    assert _code(message.make_query("a.internal", "AAAA", use_edns=1)) == rcode.BADVERS
    assert failed(asked("a.internal")).rcode() == rcode.SERVFAIL


def test_a_question_is_read_without_what_else_is_in_its_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    query = message.make_query("a.internal", "AAAA", use_edns=0, payload=1400, want_dnssec=True)
    wire, sizes, real = query.to_wire(), [], message.from_wire
    options = wire[:-2] + (3600).to_bytes(2, "big") + b"\xfd\xe9\0\0" * 900
    others = wire[:10] + (270).to_bytes(2, "big") + wire[12:] + b"\0\0\x01\0\x01\0\0\0\0\0\x04abcd" * 269
    signed = wire[:-11] + b"\0\0\xfa\0\xff\0\0\0\0\0\0"
    answers = wire[:6] + (270).to_bytes(2, "big") + wire[8:10] + bytes(2) + others[12:]

    def read(data: bytes) -> message.Message:
        sizes.append(len(data))
        return real(data)

    monkeypatch.setattr(message, "from_wire", read)
    found = read_question(options)
    assert isinstance(found, Question) and found.query.payload == 1400 and found.query.ednsflags & flags.DO
    assert read_question(others) is None and read_question(signed) is None
    assert isinstance(read_question(answers), message.Message)
    assert sum(sizes) <= len(wire) + 12


def _code(query: message.Message) -> rcode.Rcode:
    found = read_question(query.to_wire())
    assert isinstance(found, message.Message)
    return found.rcode()


@given(st.binary(max_size=600))
def test_no_packet_breaks_the_reader(data: bytes) -> None:
    _take(data)


@given(st.data())
def test_no_changed_question_breaks_the_answer(data: st.DataObject) -> None:
    wire = bytearray(message.make_query(f"{ONE.id}.vm.shop.internal", "AAAA", use_edns=0).to_wire())
    for _ in range(data.draw(st.integers(1, 4))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    _take(bytes(wire[: data.draw(st.integers(0, len(wire)))]))


def _take(data: bytes) -> None:
    found = read_question(data)
    if isinstance(found, Question):
        wire = wire_of(answer(found, view()), found.most) if found.is_ours else b""
        assert len(wire) <= found.most
    elif found is not None:
        assert len(wire_of(found, 512)) <= 512


@pytest.mark.parametrize(("name", "ip"), [("shop.flycast", FLYCAST), ("SHOP.Flycast", FLYCAST),
                                          ("guest.flycast", "fdaa:0:7::9:1:2")])  # fmt: skip
def test_an_app_with_an_address_in_the_network_has_a_name_for_it(name: str, ip: str) -> None:
    reply = answered(name)
    assert [str(each) for rrset in reply.answer for each in rrset] == [ip]
