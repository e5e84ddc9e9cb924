"""Answers of other servers as bytes, compared with what a library that somebody else wrote reads in them."""

import pytest
from dns import flags, message, rcode, rdatatype, rrset
from hypothesis import given
from hypothesis import strategies as st

from hawker.dns.answer import Question
from hawker.dns.wire import MOST_RECORDS, WireAnswer, question_bytes, read_answer
from tests.dns.known import asked

ID = 4711
SOA = "ns.example. hostmaster.example. 1 2 3 4 30"


def given_wire(*sets: tuple[str, int, str, str], name: str = "www.example", **options: object) -> bytes:
    """An answer to a question for `name`; a set of records is a name, TTL, type and text."""
    reply = message.make_response(message.make_query(name, "A", id=ID, **options))  # type: ignore[arg-type]
    for owner, ttl, kind, text in sets:
        section = reply.authority if kind in ("SOA", "NS") else reply.answer
        section.append(rrset.from_text(f"{owner}.", ttl, "IN", kind, *text.split("|")))
    return reply.to_wire(want_shuffle=False)


def read(wire: bytes, name: str = "www.example") -> WireAnswer:
    return read_answer(wire, ID, question_bytes(asked(name, "A")))


CHAIN = (
    ("www.example", 50, "CNAME", "host.cdn.example."),
    ("host.cdn.example", 20, "A", "192.0.2.1|192.0.2.2|192.0.2.3"),
    ("example", 900, "NS", "a.ns.example.|b.ns.example."),
)


def test_an_answer_is_given_again_with_id_spelling_and_ttls_of_whoever_asks() -> None:
    found = read(given_wire(*CHAIN, use_edns=0))
    reply = message.from_wire(found.reply(asked("WWW.eXample", "A", id=7), 512, age_s=15))
    assert (reply.id, str(reply.question[0].name), reply.edns) == (7, "WWW.eXample.", -1)
    assert [(str(each.name), each.ttl, len(each)) for each in reply.answer + reply.authority] == [
        ("WWW.eXample.", 35, 1), ("host.cdn.eXample.", 5, 3), ("eXample.", 885, 2)]  # fmt: skip
    assert reply.flags & flags.RA and reply.flags & flags.RD and not reply.flags & flags.TC
    late = message.from_wire(found.reply(asked("www.example", "A"), 512, age_s=100, least_s=5))
    assert [each.ttl for each in late.answer + late.authority] == [5, 5, 800]


def test_an_answer_has_an_opt_record_where_the_question_has_one_and_its_flags_are_no_ttl() -> None:
    found = read(given_wire(*CHAIN))
    reply = message.from_wire(found.reply(asked("www.example", "A", use_edns=0, want_dnssec=True), 1232, age_s=9))
    assert (reply.edns, reply.ednsflags, reply.payload) == (0, 0, 8192)
    assert reply.answer[0].ttl == 41


@pytest.mark.parametrize(("options", "size"), [({}, 29), ({"use_edns": 0}, 40)])
def test_an_answer_that_does_not_fit_is_its_question_and_says_so(options: dict[str, object], size: int) -> None:
    many = "|".join(f"192.0.2.{number}" for number in range(100))
    wire = read(given_wire(("www.example", 50, "A", many))).reply(asked("www.example", "A", **options), 512)
    reply = message.from_wire(wire)
    assert len(wire) == size and reply.flags & flags.TC and not reply.answer
    assert reply.edns == (0 if options else -1)


def test_addresses_of_one_name_take_turns_and_nothing_else_moves() -> None:
    found = read(given_wire(*CHAIN))
    orders = []
    for turn in (0.0, 0.4, 0.99):
        reply = message.from_wire(found.reply(asked("www.example", "A"), 512, turn=turn))
        assert [each.rdtype for each in reply.answer] == [rdatatype.CNAME, rdatatype.A]
        orders.append([each.address[-1] for each in reply.answer[1]])
    assert orders == [["1", "2", "3"], ["2", "3", "1"], ["3", "1", "2"]]


def test_the_life_of_an_answer_is_that_of_its_shortest_record_or_of_its_denial() -> None:
    found = read(given_wire(*CHAIN))
    assert (found.least_ttl_s, found.negative_ttl_s) == (20, None)
    denied = read(given_wire(("example", 40, "SOA", SOA)))
    assert (denied.least_ttl_s, denied.negative_ttl_s) == (None, 30)
    assert (
        read(given_wire(("www.example", 50, "A", "192.0.2.1")).replace(b"\0\0\0\x32", b"\xff\0\0\x32")).least_ttl_s == 0
    )


def test_a_refusal_without_its_question_is_an_answer() -> None:
    found = read(ID.to_bytes(2, "big") + b"\x81\x05" + bytes(8))
    assert message.from_wire(found.reply(asked("www.example", "A"), 512)).rcode() == rcode.REFUSED


def test_a_packet_that_is_no_answer_to_the_question_is_refused() -> None:
    good, empty = given_wire(*CHAIN, use_edns=0), given_wire(use_edns=0)
    assert read(good) and read(empty)
    crowded = empty[:6] + (MOST_RECORDS + 1).to_bytes(2, "big") + bytes(4) + given_wire()[12:]
    for wire in (
        b"",
        good[:-3],
        good[:60],
        b"\0\0" + good[2:],
        good[:2] + b"\x01" + good[3:],
        good[:2] + b"\xf9" + good[3:],
        given_wire(name="www.example2"),
        given_wire(name="wwx.example"),
        empty[:-6] + b"\x01" + empty[-5:],  # the code of an answer has its upper bits in the OPT record
        crowded + b"\0\0\x01\0\x01\0\0\0\0\0\0" * (MOST_RECORDS + 1),
    ):
        with pytest.raises(ValueError, match=r"packet|server|record|label"):
            read(wire)


@given(st.data())
def test_no_changed_answer_breaks_the_reader(data: st.DataObject) -> None:
    wire = bytearray(given_wire(*CHAIN, use_edns=0))
    for _ in range(data.draw(st.integers(0, 4))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    question: Question = asked("www.example", "A")
    try:
        found = read(bytes(wire[: data.draw(st.integers(0, len(wire)))]))
    except ValueError:
        return
    assert 12 <= len(found.reply(question, 512, age_s=3, turn=0.5)) <= 512
