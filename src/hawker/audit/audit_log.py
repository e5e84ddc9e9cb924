"""The audit log of a node, in DATA_DIR/audit: segments of JSON lines, only ever appended to, each with the hash of the
one before; and its reader, which checks that chain.

A line is in the kernel's hands when `append` returns, so it outlives a daemon that is killed; it is on disk when
`sync` returns. A line that was torn by a crash is cut off at the next start. The oldest segments go when the log is
larger than it may be. Who may write the files can write a new chain: ship the log elsewhere.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import anyio
import msgspec
from anyio import to_thread

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.log import bind
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
    """The `hash` of the entry before this one, 64 hexadecimal digits; zeros at the beginning."""
    hash: str = ""
    """SHA-256, in hexadecimal, of `before` and the entry without this field: it ties the chain together."""


class Broken(ValueObject, frozen=True):
    """The place where a chain does not hold: the line's place in all that was read, from 1, and why."""

    line: int
    """The number of the line, 1 or more."""
    number: int | None
    """The number of the entry there, None where the line is no entry."""
    why: str
    """The reason in words, for an operator."""

    def __str__(self) -> str:
        which = "" if self.number is None else f", entry {self.number}"
        return f"the chain breaks at line {self.line}{which}: {self.why}"


def sealed(entry: AuditEntry) -> AuditEntry:
    """The entry with its hash."""
    plain = msgspec.structs.replace(entry, hash="")
    digest = hashlib.sha256(entry.before.encode() + msgspec.json.encode(plain)).hexdigest()
    return msgspec.structs.replace(plain, hash=digest)


def line_of(entry: AuditEntry) -> bytes:
    return msgspec.json.encode(entry) + b"\n"


def read_line(line: bytes) -> AuditEntry:
    """The entry that a line is. Raises `ValueError`."""
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


SEGMENT_BYTES = 8 << 20
MAX_TEXT = 256
"""The characters of a name, an address or a part of a path that an entry has."""
_PIECE_BYTES = 64 * 1024
_log = bind("hawker.audit")


class AuditLog:
    """`most_bytes` is the bound of all segments together, at least two of them."""

    def __init__(self, directory: Path, clock: Clock, most_bytes: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._directory = directory
        self._clock = clock
        self._segment_bytes = segment_bytes
        self._segments = max(2, most_bytes // segment_bytes)
        self._fd = -1
        self._size = 0
        self._segment = directory
        self._number, self._before = 0, BEGINNING
        self._lost = 0
        self._written, self._synced = 0, 0
        self._turn = anyio.Lock()
        self._thread = anyio.CapacityLimiter(1)

    def open(self) -> None:
        """Goes on where the last daemon ended. Raises `OSError`."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        torn, noted = 0, list[tuple[str, dict[str, str]]]()
        for segment in reversed(segments(self._directory)):
            cut, line = _mend(segment)
            torn += cut
            if line:
                self._use(segment)
                if not self._follows(segment, line):
                    noted.append(("new chain begun", {"file": segment.name}))
                break
            self._number = max(self._number, number_of(segment) - 1)
            segment.unlink()
        else:
            self._use(self._directory / _name(self._number + 1))
        if torn:
            noted.append(("torn line cut off", {"bytes": str(torn)}))
        with suppress(Unavailable):  # the next entry tells how many are missing
            for what, things in noted:
                self.append(what=what, things=things)

    def _follows(self, segment: Path, line: bytes) -> bool:
        """Whether the chain goes on after the segment's last line. If not, the numbers go on all the same: a segment is
        named by its first one, and the names are the order of the segments. Raises `OSError`."""
        try:
            last = read_line(line)
        except ValueError:
            _log.error("the audit log's last line is no entry: a new chain begins", extra={"file": str(segment)})
            self._number = max(self._number, number_of(segment) - 1 + _count(segment))
            return False
        self._number, self._before = max(self._number, last.number), last.hash
        if last.number < number_of(segment):
            self._number = max(self._number, number_of(segment) - 1 + _count(segment))
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def append(
        self,
        *,
        what: str,
        who: str = "",
        tokens: tuple[str, ...] = (),
        source: str = "",
        node: str = "",
        action: str = "",
        things: dict[str, str] | None = None,
        request: str = "",
        status: int = 0,
    ) -> None:
        """Appends an entry, with no more than the beginning of a long text. Raises `Unavailable` when it cannot be
        written; then nothing of it is there, and the next entry counts it."""
        entry = sealed(
            AuditEntry(
                number=self._number + 1,
                at=datetime.fromtimestamp(self._clock.now(), UTC).isoformat(timespec="milliseconds"),
                request=request,
                who=_clipped(who),
                tokens=tokens,
                source=_clipped(source),
                node=node,
                what=what,
                action=action,
                things={name: _clipped(value) for name, value in (things or {}).items()},
                status=status,
                lost=self._lost,
                before=self._before,
            )
        )
        try:
            self._write(line_of(entry))
        except OSError as error:
            self._lost += 1
            _log.error("audit entry not written", extra={"what": what, "error": str(error), "lost": self._lost})
            raise Unavailable(f"the audit log cannot be written ({error.strerror}): nothing was done") from error
        self._number, self._before, self._lost = entry.number, entry.hash, 0
        self._written += 1

    async def sync(self) -> None:
        """Brings what was appended so far to the disk. Callers that wait share one sync. Raises `Unavailable`."""
        wanted = self._written
        async with self._turn:
            if self._synced >= wanted:
                return
            now = self._written
            try:
                await to_thread.run_sync(os.fdatasync, self._fd, limiter=self._thread)
            except OSError as error:
                raise Unavailable(f"the audit log cannot be written ({error.strerror})") from error
            self._synced = now

    def _write(self, line: bytes) -> None:
        """All of it or nothing."""
        if self._size + len(line) > self._segment_bytes and self._size and not self._turn.locked():
            os.fdatasync(self._fd)
            self._use(self._directory / _name(self._number + 1))
            self._drop_oldest()
        try:
            done = os.write(self._fd, line)
            if done < len(line):
                raise OSError(28, "No space left on device")
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(line)

    def _use(self, segment: Path) -> None:
        """Raises `OSError`, and goes on with the segment before."""
        fd = os.open(segment, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self.close()
        self._fd, self._size, self._segment = fd, os.fstat(fd).st_size, segment

    def _drop_oldest(self) -> None:
        for segment in segments(self._directory)[: -self._segments]:
            if segment != self._segment:
                segment.unlink()


def segments(directory: Path) -> list[Path]:
    """The segments of the log, the oldest first."""
    return sorted(directory.glob(f"audit-{'[0-9]' * 16}.jsonl"))


def lines(directory: Path) -> Iterator[bytes]:
    """The lines of all segments; a segment that goes meanwhile is left out. A last line without its end is not one
    yet."""
    for segment in segments(directory):
        try:
            with segment.open("rb") as file:
                yield from (line for line in file if line.endswith(b"\n"))
        except FileNotFoundError:
            continue


def number_of(segment: Path) -> int:
    """The number of the segment's first entry."""
    return int(segment.stem.removeprefix("audit-"))


def _name(number: int) -> str:
    return f"audit-{number:016}.jsonl"


def _clipped(text: str) -> str:
    """Whoever calls writes names of any length into a path. One that was clipped is longer than any that was not."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text)} characters)"


def _mend(segment: Path) -> tuple[int, bytes]:
    """Cut off what follows the last whole line. How many bytes that were, and that line, empty where there is none.
    Raises `OSError`."""
    with segment.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        end = _line_begin(file, size)
        if end < size:
            file.truncate(end)
            os.fsync(file.fileno())
        file.seek(_line_begin(file, max(0, end - 1)))
        return size - end, file.read()


def _line_begin(file: BinaryIO, end: int) -> int:
    """Where the line begins that goes on at `end`, however long it is."""
    piece = _PIECE_BYTES
    while end:
        start = max(0, end - piece)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end, piece = start, 2 * piece
    return 0


def _count(segment: Path) -> int:
    """The lines of a segment."""
    with segment.open("rb") as file:
        return sum(1 for _ in file)


SCANNED_BYTES = 2 << 20
"""The most that one piece looks at, whether it is wanted or not: some 0.1 s of a processor."""
_OFFSETS = 1 << 28  # more than any segment has bytes


class WantedEntries(ValueObject, frozen=True, kw_only=True):
    """Empty for all. `who` is a holder's name or a token's id, `since` RFC 3339 or the beginning of one."""

    app: str = ""
    """An app's name: only calls about it."""
    machine: str = ""
    """A machine's id: only calls about it."""
    who: str = ""
    what: str = ""
    """A route's name: only its calls."""
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
    """The position of the line's end, in bytes of all that the node has written."""
    entry: AuditEntry
    line: bytes
    """The line as it stands in the file, without its end."""


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
    """A piece of the log after position `after`: at least one line, if there is one, and `most_bytes` of what is
    selected. Raises `OSError`."""
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
    """The entry that a line is, or what stands for it where it is none."""
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
