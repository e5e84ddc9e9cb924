"""The entries of an audit log and the chain that they make: each has the hash of the one before. Pure.

A line is JSON; `hash` is SHA-256 of the hash before and of the entry without it. So an entry that was changed, taken
out, put in or moved breaks the chain there. Who may write the files can write a new chain: ship the log elsewhere.
"""

import hashlib
from collections.abc import Iterable

import msgspec

from hawker.value_object import ValueObject

BEGINNING = "0" * 64


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`number` counts the entries of a node, `at` is its clock as RFC 3339, `request` the id that the answer carries.
    `who` is the holder's name, `tokens` the ids of the tokens that were shown. `source` is the caller's address, `node`
    the node that passed the call on. `what` is the name of a route, `action` its class, in letters; `things` are the
    parts of the path. `status` is the answer's, 0 for a call that is about to be done, and whose end is another entry.
    `lost` counts entries that could not be written before this one. Never a body, a query, a header or a value."""

    number: int
    at: str
    request: str = ""
    who: str = ""
    tokens: tuple[str, ...] = ()
    source: str = ""
    node: str = ""
    what: str
    action: str = ""
    things: dict[str, str] = {}
    status: int = 0
    lost: int = 0
    before: str = BEGINNING
    hash: str = ""


class Broken(ValueObject, frozen=True):
    """Where a chain does not hold: the line's place in all that was read, from 1, and why."""

    line: int
    number: int | None
    why: str

    def __str__(self) -> str:
        which = "" if self.number is None else f", entry {self.number}"
        return f"the chain breaks at line {self.line}{which}: {self.why}"


def sealed(entry: AuditEntry) -> AuditEntry:
    """With its hash."""
    plain = msgspec.structs.replace(entry, hash="")
    digest = hashlib.sha256(entry.before.encode() + msgspec.json.encode(plain)).hexdigest()
    return msgspec.structs.replace(plain, hash=digest)


def line_of(entry: AuditEntry) -> bytes:
    return msgspec.json.encode(entry) + b"\n"


def read_line(line: bytes) -> AuditEntry:
    """Raises `ValueError`."""
    return msgspec.json.decode(line, type=AuditEntry)


class Chain:
    """Checks lines one after the other, from wherever they begin: what was rotated away before is not missed. After a
    break it goes on from there."""

    def __init__(self) -> None:
        self.entries = 0
        self.first: int | None = None
        self.last: AuditEntry | None = None

    def check(self, line: bytes) -> Broken | None:
        """Why the line does not hold, if it does not."""
        self.entries += 1
        before = self.last
        try:
            entry = self.last = read_line(line)
        except ValueError:
            self.last = None
            return Broken(self.entries, None, "this is no entry")
        self.first = entry.number if self.first is None else self.first
        if why := _fault(entry, line, before):
            return Broken(self.entries, entry.number, why)
        return None


def _fault(entry: AuditEntry, line: bytes, before: AuditEntry | None) -> str:
    if before is not None and entry.before != before.hash:
        return f"it does not follow entry {before.number}"
    if before is not None and entry.number != before.number + 1:
        return f"its number does not follow {before.number}"
    if sealed(entry).hash != entry.hash or line.rstrip(b"\n") != line_of(entry).rstrip(b"\n"):
        return "it was changed"
    return ""


def broken(lines: Iterable[bytes]) -> Broken | None:
    """The first place where the chain does not hold."""
    chain = Chain()
    return next((found for line in lines if (found := chain.check(line))), None)
