"""From a question's bytes to an answer's, for names of private networks. Pure: who asks is told by the view that is
passed in. What no resolver has to answer is dropped; what is somebody else's name is for `forward`.
"""

from collections.abc import Callable
from ipaddress import IPv6Address
from struct import Struct

from dns import exception, flags, message, rcode, rdataclass, rdatatype, rrset
from dns.name import Name, from_text
from dns.rdata import Rdata
from dns.rdata import from_text as rdata_of
from dns.rdtypes.ANY.SOA import SOA
from dns.rdtypes.ANY.TXT import TXT

from hawker.dns.view import Leads, View
from hawker.value_object import ValueObject

TTL_S, NEGATIVE_TTL_S = 5, 2
UDP_BYTES, UDP_BYTES_PLAIN, TCP_BYTES = 1232, 512, 65_535
_INTERNAL, _FLYCAST = from_text("internal."), from_text("flycast.")
_REVERSE = from_text("a.a.d.f.ip6.arpa.")
_NIBBLES = 32
_PIECE = 255
_RECORD_HEAD_BYTES = 12
_HEAD, _OPT = Struct("!6H"), Struct("!BHHIH")
_COUNTS_AT, _LABEL_BYTES, _QUESTION_END = 4, 63, 5
_OPCODE = 0x7800
_QUESTION_AT = 10  # in an answer without its id
_ADDRESS, _ADDRESS_BYTES = bytes.fromhex("c00c001c0001"), 28
"""The first bytes of each address record in an answer of ours: the question's name, AAAA, IN; and the length of the
whole record in bytes."""
_NEAREST = b"\x07nearest\x02of"


class Question(ValueObject, frozen=True):
    """A question that can be answered. `most` is how many bytes fit an answer over UDP."""

    query: message.QueryMessage
    name: Name
    kind: rdatatype.RdataType
    most: int

    @property
    def is_ours(self) -> bool:
        """Whether this resolver alone answers the question: its name is in a zone of ours, and no other server is
        asked."""
        name = self.name.canonicalize()
        return any(name.is_subdomain(zone) for zone in (_INTERNAL, _FLYCAST, _REVERSE))


def read_question(data: bytes) -> Question | message.Message | None:
    """The question; or the answer to a question that cannot be answered; or None for a message that gets no answer at
    all. What is read is a few hundred bytes of a packet: all that a question has room for took 11 ms."""
    if len(data) < _HEAD.size:
        return None
    _, said, questions, answers, authorities, others = _HEAD.unpack_from(data)
    if said & flags.QR:
        return None
    if said & _OPCODE:
        return _failed(_head_of(data), rcode.NOTIMP)
    if questions != 1 or answers or authorities:
        return _failed(_head_of(data), rcode.FORMERR)
    needed = _needed(data, others)
    try:
        query = None if needed is None else message.from_wire(needed)
    except (exception.DNSException, ValueError):
        return None
    if not isinstance(query, message.QueryMessage) or len(query.question) != 1:
        return None
    (question,) = query.question
    if query.edns > 0:
        return _failed(query, rcode.BADVERS)
    if question.rdclass != rdataclass.IN:
        return _failed(query, rcode.REFUSED)
    most = max(UDP_BYTES_PLAIN, min(query.payload, UDP_BYTES)) if query.edns == 0 else UDP_BYTES_PLAIN
    return Question(query, question.name, question.rdtype, most)


def _head_of(data: bytes) -> message.Message:
    return message.from_wire(data[:_COUNTS_AT] + bytes(_HEAD.size - _COUNTS_AT))


def _needed(data: bytes, others: int) -> bytes | None:
    """Of a packet with one question and `others` more records what says something here: without the options of an OPT
    record. None for one that is damaged, or has anything else than an OPT record beside its question."""
    at = _HEAD.size
    while at < len(data) and 0 < data[at] <= _LABEL_BYTES:
        at += 1 + data[at]
    end = at + _QUESTION_END
    if not others:
        return data if len(data) == end else None
    if others > 1 or len(data) < end + _OPT.size:
        return None
    name, kind, _, _, options = _OPT.unpack_from(data, end)
    if name or kind != rdatatype.OPT or len(data) != end + _OPT.size + options:
        return None
    return data[: end + _OPT.size - 2] + b"\0\0"


def spelling(data: bytes, *, tcp: bool) -> tuple[bytes, int] | None:
    """All that the answer to a question of ours comes from, but for the id and upper case in its name; and where that
    name ends in the packet. None for a packet that is not in order."""
    if len(data) < _HEAD.size:
        return None
    _, said, questions, answers, authorities, others = _HEAD.unpack_from(data)
    if said & (flags.QR | _OPCODE) or questions != 1 or answers or authorities:
        return None
    needed = _needed(data, others)
    if needed is None:
        return None
    end = len(needed) - (_OPT.size if others else 0)
    most = UDP_BYTES_PLAIN
    if others:
        _, _, room, extended, _ = _OPT.unpack_from(data, end)
        if extended >> 16:
            return None
        most = max(UDP_BYTES_PLAIN, min(room, UDP_BYTES))
    kind_at = end - _QUESTION_END + 1
    form = bytes((tcp, said & flags.RD != 0, others)) + (0 if tcp else most).to_bytes(2, "big")
    return form + data[kind_at:end] + data[_HEAD.size : kind_at].lower(), kind_at


def answer(asked: Question, view: View, most: int = TCP_BYTES) -> message.Message:
    """The answer to a question that `is_ours`. One of more than `most` bytes has no records, and says so (TC)."""
    reply = message.make_response(asked.query, recursion_available=True)
    reply.flags |= flags.AA
    leads = _leads(asked.name.canonicalize(), view)
    if leads is None:
        reply.set_rcode(rcode.NXDOMAIN)
    if isinstance(leads, Leads) and _record_bytes(asked, leads) > most:
        reply.flags |= flags.TC
        return reply
    records = [] if leads is None else _records(asked, leads)
    if records:
        reply.answer.append(rrset.from_rdata_list(asked.name, TTL_S, records))
    else:
        reply.authority.append(_soa())
    return reply


def wire_of(reply: message.Message, most: int, *, in_any_order: bool = True) -> bytes:
    """The bytes of an answer, at most `most` of them: where it does not fit, its records are left out, and the answer
    says so (TC). Records of a name come in any order, or in that of `reply`."""
    try:
        return reply.to_wire(max_size=most, want_shuffle=in_any_order)
    except exception.TooBig:
        short = message.Message(id=reply.id)
        short.flags = reply.flags | flags.TC
        short.question = reply.question
        return short.to_wire(max_size=most)


def reordered(wire: bytes, chance: Callable[[], float]) -> bytes:
    """The same answer, without its id, with its addresses in another order; those of the nearest machines stay in
    theirs. All other parts of the answer stay where they are."""
    count, start = int.from_bytes(wire[4:6], "big"), wire.find(b"\0", _QUESTION_AT) + 5
    end = start + count * _ADDRESS_BYTES
    records = [wire[at : at + _ADDRESS_BYTES] for at in range(start, end, _ADDRESS_BYTES)]
    if count < 2 or end > len(wire) or not all(each.startswith(_ADDRESS) for each in records):
        return wire
    if _NEAREST in wire[_QUESTION_AT:start].lower():
        return wire
    records.sort(key=lambda each: chance())
    return wire[:start] + b"".join(records) + wire[end:]


def failed(asked: Question) -> message.Message:
    """The answer SERVFAIL: no server could be asked."""
    return _failed(asked.query, rcode.SERVFAIL)


def _failed(query: message.Message, code: rcode.Rcode) -> message.Message:
    reply = message.make_response(query, recursion_available=True)
    reply.set_rcode(code)
    return reply


class _Pointer(ValueObject, frozen=True):
    target: str


def _leads(name: Name, view: View) -> Leads | _Pointer | None:
    if name.is_subdomain(_INTERNAL):
        labels = [label.decode("ascii", "replace") for label in name.relativize(_INTERNAL).labels]
        return view.find(labels)
    if name.is_subdomain(_REVERSE):
        return _reverse(name, view)
    if name.is_subdomain(_FLYCAST):
        return view.flycast([label.decode("ascii", "replace") for label in name.relativize(_FLYCAST).labels])
    return None


def _reverse(name: Name, view: View) -> Leads | _Pointer | None:
    nibbles = [label.decode("ascii", "replace") for label in name.labels[:-3]]
    digits = "".join(reversed(nibbles))
    if any(len(nibble) != 1 for nibble in nibbles) or set(digits) - set("0123456789abcdef"):
        return None
    if len(digits) != _NIBBLES:
        return Leads() if len(digits) < _NIBBLES else None
    found = view.name_of(IPv6Address(int(digits, 16)))
    return None if found is None else _Pointer(f"{found}.")


def _records(asked: Question, leads: Leads | _Pointer) -> list[Rdata]:
    match asked.kind, leads:
        case rdatatype.PTR, _Pointer():
            return [rdata_of(rdataclass.IN, rdatatype.PTR, leads.target)]
        case rdatatype.AAAA, Leads():
            return [rdata_of(rdataclass.IN, rdatatype.AAAA, str(each)) for each in leads.addresses]
        case rdatatype.TXT, Leads():
            return [TXT(rdataclass.IN, rdatatype.TXT, _pieces(text)) for text in leads.texts]
    return []


def _record_bytes(asked: Question, leads: Leads) -> int:
    """What the records take. The library raises an error of its own for a text that no record has room for."""
    if asked.kind == rdatatype.AAAA:
        return len(leads.addresses) * _ADDRESS_BYTES
    lengths = [len(text.encode()) for text in leads.texts] if asked.kind == rdatatype.TXT else []
    return sum(_RECORD_HEAD_BYTES + length + -(-length // _PIECE) for length in lengths)


def _pieces(text: str) -> list[bytes]:
    data = text.encode()
    return [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)]


def _soa() -> rrset.RRset:
    name = from_text("ns.internal.")
    times = (1, 3600, 600, 86_400, NEGATIVE_TTL_S)
    record = SOA(  # type: ignore[no-untyped-call]
        rdataclass.IN, rdatatype.SOA, name, from_text("hostmaster.internal."), *times
    )
    return rrset.from_rdata(_INTERNAL, NEGATIVE_TTL_S, record)
