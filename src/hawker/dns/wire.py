"""An answer of another server as its bytes, and the same bytes for whoever asks next: with an id, a spelling, flags and
TTLs of their own. No record is read for its content, and none is made anew: with 250 records that took 18 ms a
question. What is behind the authority section is left out. Pure.
"""

from array import array
from collections.abc import Sequence
from struct import Struct
from struct import error as StructError

from dns import flags, rcode

from hawker.dns.answer import Question
from hawker.value_object import ValueObject

MOST_RECORDS = 2000
"""An answer with more records is none: to look at them all holds up others."""
_HEAD, _RECORD, _TTL = Struct("!6H"), Struct("!HHIH"), Struct("!I")
_A, _SOA, _AAAA, _OPT, _IN = 1, 6, 28, 41, 1
_OUR_OPT = b"\0" + _RECORD.pack(_OPT, 8192, 0, 0)
_OPCODE, _CODE = 0x7800, 0x000F
_POINTER, _POINTER_BYTES, _TTL_AT = 0xC0, 2, 4
_NO_TTL = 1 << 31
"""A TTL from here on counts as 0 (RFC 2181, 8)."""
_WITHOUT_QUESTION = (rcode.FORMERR, rcode.SERVFAIL, rcode.NOTIMP, rcode.REFUSED)


class WireAnswer(ValueObject, frozen=True):
    """The records of an answer, which are in the same place behind each spelling of its question."""

    flags: int
    """The second word of the packet's head, with the answer's code in its last 4 bits."""
    answers: int
    """The number of records in the answer section."""
    authorities: int
    """The number of records in the authority section."""
    body: bytes
    """The bytes of all records of the two sections."""
    ttls: Sequence[int]
    """The offsets of the TTLs in `body`."""
    least_ttl_s: int | None
    """The smallest TTL of the answer section, seconds; None without a record there."""
    negative_ttl_s: int | None
    """For how many seconds the zone says that there is no such record; None where it says nothing."""
    alike: range
    """The offsets in `body` of addresses of one name, one behind the other, which may come in any order."""

    @property
    def code(self) -> int:
        return self.flags & _CODE

    def reply(self, asked: Question, most: int, *, age_s: int = 0, least_s: int = 0, turn: float = 0.0) -> bytes:
        """The answer to `asked`, `age_s` seconds later, with TTLs of at least `least_s` seconds; its addresses begin at
        `turn` (0 to 1) of them. Where `most` bytes have no room for it, it has no records, and says so (TC)."""
        query = asked.query
        said = flags.QR | flags.RA | query.flags & flags.RD | self.flags & (flags.TC | flags.AD | _CODE)
        question, opt = question_bytes(asked), _OUR_OPT if query.edns >= 0 else b""
        if _HEAD.size + len(question) + len(self.body) + len(opt) > most:
            return _HEAD.pack(query.id, said | flags.TC, 1, 0, 0, bool(opt)) + question + opt
        head = _HEAD.pack(query.id, said, 1, self.answers, self.authorities, bool(opt))
        return b"".join((head, question, *self._turned(self._aged(age_s, least_s), turn), opt))

    def _aged(self, age_s: int, least_s: int) -> bytes | bytearray:
        if not age_s and not least_s:
            return self.body
        aged = bytearray(self.body)
        for at in self.ttls:
            (ttl,) = _TTL.unpack_from(aged, at)
            _TTL.pack_into(aged, at, max(0 if ttl >= _NO_TTL else ttl - age_s, least_s))
        return aged

    def _turned(self, body: bytes | bytearray, turn: float) -> tuple[bytes | bytearray, ...]:
        if len(self.alike) < 2:
            return (body,)
        first, start, end = self.alike[int(turn * len(self.alike))], self.alike.start, self.alike.stop
        return body[:start], body[first:end], body[start:first], body[end:]


def question_bytes(asked: Question) -> bytes:
    """The question as whoever asks has spelled it."""
    return (asked.name.to_wire() or b"") + asked.kind.to_bytes(2, "big") + _IN.to_bytes(2, "big")


def read_answer(wire: bytes, query_id: int, question: bytes) -> WireAnswer:
    """The answer in a packet. Raises `ValueError` when it is damaged, or the answer to something else."""
    try:
        return _read(wire, query_id, question)
    except (StructError, IndexError) as error:
        raise ValueError("a packet ends too early") from error


def _read(wire: bytes, query_id: int, question: bytes) -> WireAnswer:
    its_id, said, questions, answers, authorities, others = _HEAD.unpack_from(wire)
    if its_id != query_id or not said & flags.QR or said & _OPCODE or answers + authorities + others > MOST_RECORDS:
        raise ValueError("a packet is no answer to this question")
    if not questions and not answers + authorities and said & _CODE in _WITHOUT_QUESTION:
        return WireAnswer(said, 0, 0, b"", array("H"), None, None, range(0))
    begin = _HEAD.size + len(question)
    asked = wire[_HEAD.size : begin]
    if questions != 1 or asked[-4:] != question[-4:] or asked.lower() != question.lower():
        raise ValueError("a packet is the answer to another question")
    reading = _Reading(wire, begin)
    for number in range(answers + authorities):
        reading.take(in_answer=number < answers)
    end = reading.at
    for _ in range(others):
        reading.pass_other()
    return WireAnswer(
        said,
        answers,
        authorities,
        wire[begin:end],
        reading.ttls,
        reading.least_ttl_s,
        reading.negative_ttl_s,
        reading.alike,
    )


class _Reading:
    """What was found of the records of `wire` so far, of which the next begins at `at`."""

    def __init__(self, wire: bytes, at: int) -> None:
        self.at = self._begin = at
        self.ttls = array("H")
        self.least_ttl_s: int | None = None
        self.negative_ttl_s: int | None = None
        self.alike = range(0)
        self._wire = wire

    def take(self, *, in_answer: bool) -> None:
        start, (kind, of_class, ttl, head_at) = self.at, self._next()
        if kind == _OPT:
            raise ValueError("an OPT record is not where it belongs")
        self.ttls.append(head_at + _TTL_AT - self._begin)
        ttl = 0 if ttl >= _NO_TTL else ttl
        if in_answer:
            self.least_ttl_s = ttl if self.least_ttl_s is None else min(ttl, self.least_ttl_s)
            if kind in (_A, _AAAA) and of_class == _IN and head_at == start + _POINTER_BYTES:
                self._join(start)
        elif kind == _SOA:
            (minimum,) = _TTL.unpack_from(self._wire, self.at - _TTL.size)
            found = min(ttl, minimum)
            self.negative_ttl_s = found if self.negative_ttl_s is None else min(found, self.negative_ttl_s)

    def pass_other(self) -> None:
        kind, _, ttl, _ = self._next()
        if kind == _OPT and ttl >> 24:
            raise ValueError("a server does not take the question as it is")

    def _next(self) -> tuple[int, int, int, int]:
        """Type, class and TTL of the next record, and where these begin."""
        at, wire = self.at, self._wire
        while length := wire[at]:
            if length >= _POINTER:
                at += 1
                break
            if length > 63:
                raise ValueError("a name has no such label")
            at += 1 + length
        at += 1
        kind, of_class, ttl, size = _RECORD.unpack_from(wire, at)
        self.at = at + _RECORD.size + size
        if self.at > len(wire):
            raise ValueError("a record ends behind its packet")
        return kind, of_class, ttl, at

    def _join(self, start: int) -> None:
        """An address goes with those right before it that have the same name, type and length."""
        size, at = self.at - start, start - self._begin
        before = self._wire[start - size : start] if self.alike.stop == at and self.alike.step == size else b""
        if before[:6] == self._wire[start : start + 6] and before[10:12] == self._wire[start + 10 : start + 12]:
            self.alike = range(self.alike.start, at + size, size)
        elif len(self.alike) < 2:
            self.alike = range(at, at + size, size)
