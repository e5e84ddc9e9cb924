"""Plain questions have the answer that the DNS library would give, and what is not plain is left to it."""

import pytest
from dns import flags, message, opcode, rdataclass
from dns.reversename import from_address
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hawker.dns.answer import UDP_BYTES_PLAIN, Question, answer, read_question, wire_of
from hawker.dns.plain import plain_answer, read_plain
from hawker.dns.view import View
from hawker.names import KnownNames
from tests.dns.known import HERE, MINE, ONE, asked, named, view

_NAMES = (
    "shop.internal", "ShOp.Internal", "empty.internal", "nobody.internal", "bank.internal", "internal",
    "gold.tier.kv._metadata.shop.internal", "top2.nearest.of.shop.internal", f"{ONE.id}.vm.shop.internal",
    "internal.internal", "db.one.vm.shop.internal", "_apps.internal", "vms.shop.internal", "a.b.c.d.internal",
    "vm.shop.internal", "ns.internal", "a\\.b.internal", "x" * 63 + ".internal", "\\000.internal",
    "shop.flycast", "nobody.flycast", "flycast",
)  # fmt: skip
_MANY = KnownNames(node=HERE, region="ams", machines=tuple(named(number) for number in range(1, 100)))


def plainly(data: bytes, seen: View, most: int | None = None) -> bytes | None:
    found = read_plain(data)
    return None if found is None else plain_answer(found, seen, most or found.most)


def by_the_library(data: bytes, seen: View) -> bytes:
    question = read_question(data)
    assert isinstance(question, Question)
    return wire_of(answer(question, seen), question.most, in_any_order=False)


@given(
    name=st.sampled_from(_NAMES),
    kind=st.sampled_from(["AAAA", "A", "HTTPS", "SRV", "PTR", "MX", "TXT"]),
    told=st.sets(st.sampled_from([flags.RD, flags.AD, flags.CD])),
    payload=st.none() | st.integers(0, 65_535),
    dnssec=st.booleans(),
    number=st.integers(0, 65_535),
)
def test_a_plain_answer_is_what_the_library_says(
    name: str, kind: str, told: set[int], payload: int | None, dnssec: bool, number: int
) -> None:
    query = message.make_query(name, kind, id=number, flags=sum(told))
    if payload is not None:
        query.use_edns(0, flags.DO if dnssec else 0, payload)
    found = plainly(query.to_wire(), view(seed=number))
    expected = by_the_library(query.to_wire(), view(seed=number))
    if kind == "TXT" and message.from_wire(expected).answer:
        assert found is None
    else:
        assert found is not None
        read = message.from_wire(found)
        assert read.to_text() == message.from_wire(expected).to_text()
        assert read.payload == message.from_wire(expected).payload and query.is_response(read)
        assert found == expected or name == "ns.internal", "there the library points at the whole name"


@given(st.data())
def test_a_changed_plain_question_is_answered_as_the_library_answers_it_or_not_here(data: st.DataObject) -> None:
    query = message.make_query(data.draw(st.sampled_from(_NAMES)), "AAAA", use_edns=data.draw(st.sampled_from([-1, 0])))
    wire = bytearray(query.to_wire())
    for _ in range(data.draw(st.integers(1, 3))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(wire[: data.draw(st.integers(0, len(wire)))]) if data.draw(st.booleans()) else bytes(wire)
    found = plainly(changed, view())
    if found is not None:
        expected = by_the_library(changed, view())
        assert message.from_wire(found).to_text() == message.from_wire(expected).to_text()


@given(st.binary(max_size=600))
def test_no_packet_breaks_the_reader_of_plain_questions(data: bytes) -> None:
    plainly(data, view())


@pytest.mark.parametrize("options", [{}, {"use_edns": 0, "payload": 512}, {"use_edns": 0, "payload": 1232}])
def test_an_answer_that_does_not_fit_is_cut_as_the_library_cuts_it(options: dict[str, object]) -> None:
    question = message.make_query("shop.internal", "AAAA", **options).to_wire()  # type: ignore[arg-type]
    for count in (*range(14, 19), *range(38, 46), 99):
        seen = view(MINE, replace(_MANY, machines=_MANY.machines[:count]))
        cut = plainly(question, seen)
        assert (
            cut is not None
            and message.from_wire(cut).to_text()
            == message.from_wire(
                by_the_library(question, view(MINE, replace(_MANY, machines=_MANY.machines[:count])))
            ).to_text()
        )
    whole = plainly(question, view(MINE, _MANY), 65_535)
    assert whole is not None and len(message.from_wire(whole).answer[0]) == 99 and len(whole) > UDP_BYTES_PLAIN


def _changed(**options: object) -> bytes:
    query = message.make_query("shop.internal", "AAAA", **options)  # type: ignore[arg-type]
    return query.to_wire()


def _notify() -> bytes:
    query = message.make_query("shop.internal", "AAAA")
    query.set_opcode(opcode.NOTIFY)
    return query.to_wire()


@pytest.mark.parametrize(
    "data",
    [
        message.make_query("example.com", "AAAA").to_wire(),
        message.make_query(from_address(ONE.ip), "PTR").to_wire(),
        message.make_query("caf\\195\\169.internal", "AAAA").to_wire(),
        message.make_query("shop.internal", "ANY").to_wire(),
        message.make_response(asked("shop.internal").query).to_wire(),
        _notify(),
        _changed(rdclass=rdataclass.CH),
        _changed(use_edns=1),
        _changed(use_edns=0, pad=128),
        _changed() + b"\0",
        _changed()[:-1],
        _changed()[:11],
    ],
    ids="foreign address letters any answer notify class version padding longer shorter head".split(),  # each has an id
)
def test_questions_that_are_not_plain_are_left_to_the_library(data: bytes) -> None:
    assert read_plain(data) is None
