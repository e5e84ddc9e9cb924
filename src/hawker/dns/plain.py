"""Questions as nearly all of them are, answered byte by byte: for one name of a private network, with no more beside it
than an OPT record without options, where the answer is addresses or that there are none. All others, and what is
damaged, are None here and for `answer`, which says the same of these in many times the time. Pure.
"""

from struct import Struct

from hawker.dns.answer import NEGATIVE_TTL_S, TTL_S, UDP_BYTES, UDP_BYTES_PLAIN
from hawker.dns.view import View
from hawker.value_object import ValueObject

_HEAD, _KIND, _RECORD, _OPT = Struct("!6H"), Struct("!HH"), Struct("!HHIH"), Struct("!BHHBBHH")
_NAME_BYTES, _LABEL_BYTES, _ADDRESS_BYTES = 255, 63, 16
_IN, _TXT, _AAAA, _SOA, _OPTIONS = 1, 16, 28, 6, 41
_KINDS = 128
"""Record types with numbers below this are of data; the others are questions of their own kind."""
_RD, _MAY_BE_SET = 0x0100, 0x0130
"""Flags of a question: the flag that an answer repeats (RD); all flags that may be set (RD, AD, CD)."""
_ANSWERS, _CUT, _NO_SUCH_NAME = 0x8480, 0x0200, 3
"""Flags of an answer (QR, AA and RA), of one that does not fit (TC), and the code of an answer when no machine or app
has the name."""
_TO_BYTE = 0xC000
"""The two highest bits of a pointer to an earlier name; the lower bits are the offset of that name in the packet."""
_OF_ADDRESS = (_TO_BYTE | _HEAD.size).to_bytes(2, "big") + _RECORD.pack(_AAAA, _IN, TTL_S, _ADDRESS_BYTES)
_OUR_OPT = _OPT.pack(0, _OPTIONS, 8192, 0, 0, 0, 0)
_INTERNAL = b"\x08internal\0"
_TIMES = Struct("!5I").pack(1, 3600, 600, 86_400, NEGATIVE_TTL_S)


class PlainQuestion(ValueObject, frozen=True):
    """A question for the name of these `labels`, in lower case, of which the last one begins at byte `zone_at` of the
    packet."""

    head: bytes
    """The bytes of the packet, up to the end of the question."""
    flags: int
    """The flags, the second word of the packet's head; only bits of `_MAY_BE_SET`."""
    labels: list[str]
    zone_at: int
    kind: int
    """The number of a record type, below `_KINDS`."""
    most: int
    """The most bytes that fit an answer over UDP."""
    has_opt: bool
    """Whether the question came with an OPT record; its answer has one then."""


def read_plain(data: bytes) -> PlainQuestion | None:
    if len(data) < _HEAD.size:
        return None
    _, flags, questions, answers, authorities, more = _HEAD.unpack_from(data)
    if flags & ~_MAY_BE_SET or questions != 1 or answers or authorities or more > 1:
        return None
    name = _name(data)
    if name is None or len(data) < name[2] + _KIND.size:
        return None
    labels, zone_at, end = name
    kind, of_class = _KIND.unpack_from(data, end)
    end += _KIND.size
    most = _room(data, end) if more else UDP_BYTES_PLAIN if len(data) == end else None
    if most is None or of_class != _IN or kind >= _KINDS or kind == _OPTIONS:
        return None
    return PlainQuestion(data[:end], flags, labels, zone_at, kind, most, bool(more))


def _name(data: bytes) -> tuple[list[str], int, int] | None:
    """Labels, where the last of them begins, and where the name ends."""
    labels, zone_at, at = [], 0, _HEAD.size
    while at < len(data) and (length := data[at]):
        label = data[at + 1 : at + 1 + length]
        if length > _LABEL_BYTES or len(label) < length or not label.isascii():
            return None
        labels.append(label.lower().decode())
        zone_at, at = at, at + 1 + length
    if at + 1 > min(len(data), _HEAD.size + _NAME_BYTES) or not labels or labels[-1] not in ("internal", "flycast"):
        return None
    return labels, zone_at, at + 1


def _room(data: bytes, at: int) -> int | None:
    if len(data) != at + _OPT.size:
        return None
    name, kind, room, code, version, _, options = _OPT.unpack_from(data, at)
    if name or kind != _OPTIONS or code or version or options:
        return None
    return max(UDP_BYTES_PLAIN, min(int(room), UDP_BYTES))


def plain_answer(asked: PlainQuestion, view: View, most: int) -> bytes | None:
    """The bytes of the answer, at most `most` of them: where it does not fit, its records are left out, and it says so
    (TC). None where `answer` has to make it."""
    *below, zone = asked.labels
    leads = view.find(below) if zone == "internal" else view.flycast(below)
    if leads is not None and leads.texts and asked.kind == _TXT:
        return None
    addresses = leads.addresses if leads is not None and asked.kind == _AAAA else ()
    flags = _ANSWERS | asked.flags & _RD | (_NO_SUCH_NAME if leads is None else 0)
    if len(addresses) * (len(_OF_ADDRESS) + _ADDRESS_BYTES) + len(asked.head) > most - (len(_OUR_OPT) * asked.has_opt):
        return asked.head[:2] + _HEAD.pack(0, flags | _CUT, 1, 0, 0, 0)[2:] + asked.head[_HEAD.size :]
    counts = (1, len(addresses), 0 if addresses else 1, 1 if asked.has_opt else 0)
    head = asked.head[:2] + _HEAD.pack(0, flags, *counts)[2:] + asked.head[_HEAD.size :]
    records = b"".join([_OF_ADDRESS + each.packed for each in addresses]) if addresses else _none(asked, zone)
    found = head + records + (_OUR_OPT if asked.has_opt else b"")
    return found if len(found) <= most else None


def _none(asked: PlainQuestion, zone: str) -> bytes:
    """The record that says for how long there are none: the SOA of `internal`."""
    known = zone == "internal"
    pointer = (_TO_BYTE | (asked.zone_at if known else len(asked.head))).to_bytes(2, "big")
    said = b"\x02ns" + pointer + b"\x0ahostmaster" + pointer + _TIMES
    return (pointer if known else _INTERNAL) + _RECORD.pack(_SOA, _IN, NEGATIVE_TTL_S, len(said)) + said
