"""Reads an audit log by pieces, in the order in which it was written, and checks the chain of what it reads.

A position is the place of the last line that was read: its segment and its offset there. The next piece begins with
that line, which is not told again, so that the chain is checked from piece to piece too.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from hawker.audit.audit_log import number_of, segments
from hawker.audit.chain import AuditEntry, Broken, Chain, read_line
from hawker.value_object import ValueObject

SCANNED_BYTES = 2 << 20
"""The most that one piece looks at, whether it is wanted or not: some 0.1 s of a processor."""
_OFFSETS = 1 << 28  # more than any segment has bytes


class WantedEntries(ValueObject, frozen=True, kw_only=True):
    """Empty for all. `who` is a holder's name or a token's id, `since` RFC 3339 or the beginning of one."""

    app: str = ""
    machine: str = ""
    who: str = ""
    what: str = ""
    since: str = ""

    def __contains__(self, entry: AuditEntry) -> bool:
        things = entry.things
        return (
            self.app in ("", things.get("app_name"))
            and self.machine in ("", things.get("machine_id"))
            and (self.who in ("", entry.who) or self.who in entry.tokens)
            and self.what in ("", entry.what)
            and entry.at >= self.since
        )


class AuditPlaced(ValueObject, frozen=True):
    position: int
    entry: AuditEntry
    line: bytes


class AuditPiece(ValueObject, frozen=True, kw_only=True):
    """`position` is None where nothing was read yet; `seen` the latest moment that was read. `more`: there is more
    now. `broken` is the first place where the chain does not hold."""

    found: tuple[AuditPlaced, ...]
    position: int | None
    seen: str
    more: bool
    broken: Broken | None


def read_piece(
    directory: Path,
    selection: WantedEntries,
    after: int | None,
    *,
    most_bytes: int,
    most_scanned: int = SCANNED_BYTES,
) -> AuditPiece:
    """At least one line, if there is one, and `most_bytes` of what is selected. Raises `OSError`."""
    chain, broken = Chain(), None
    found, size, scanned = list[AuditPlaced](), 0, 0
    position, seen = after, ""
    for at, line in _lines(directory, after, selection.since):
        if at == after:
            chain.check(line)
            continue
        if (found and size + len(line) > most_bytes) or scanned >= most_scanned:
            return AuditPiece(found=tuple(found), position=position, seen=seen, more=True, broken=broken)
        scanned += len(line)
        position = at
        broken = broken or chain.check(line)
        entry = entry_of(line)
        seen = max(seen, entry.at)
        if entry in selection:
            found.append(AuditPlaced(at, entry, line))
            size += len(line)
    return AuditPiece(found=tuple(found), position=position, seen=seen, more=False, broken=broken)


def entry_of(line: bytes) -> AuditEntry:
    """What stands for it where it is none."""
    try:
        return read_line(line)
    except ValueError:
        return AuditEntry(number=0, at="", what="(no entry: see `hawker audit verify`)")


def _lines(directory: Path, after: int | None, since: str) -> Iterator[tuple[int, bytes]]:
    """Each with its position, from `after` on. A segment that goes meanwhile is left out; a last line without its end
    is none yet."""
    held = segments(directory)
    first, offset = (_first_since(held, since), 0) if after is None else divmod(after, _OFFSETS)
    for segment in held:
        number = number_of(segment)
        if number < first:
            continue
        try:
            with segment.open("rb") as file:
                at = file.seek(offset if number == first else 0)
                for line in file:
                    if line.endswith(b"\n"):
                        yield number * _OFFSETS + at, line
                    at += len(line)
        except FileNotFoundError:
            continue


def _first_since(held: list[Path], since: str) -> int:
    """The number of the first segment that may have something from then on."""
    first = 0
    for segment, following in pairwise(held):
        try:
            with following.open("rb") as file:
                begins = entry_of(file.readline()).at
        except FileNotFoundError:
            break
        if not begins or begins >= since:
            break
        first = number_of(segment) + 1
    return first
