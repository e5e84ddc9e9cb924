"""Reads tar archives (POSIX pax and ustar, GNU, v7) as a stream of entries; writes nothing and judges no name.

The archive is hostile: every header is checked, every length has a bound before it is read. Python's `tarfile` takes
several times as long, and does not refuse negative sizes, owner ids beyond 32 bits, unknown types, names, link targets
and extended headers of any length (one of 64 MiB takes 192 MiB), or sparse maps beyond their file; a chain of extended
headers ends it with RecursionError. `tests/image/test_tar.py` has these archives.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import BinaryIO, TypeAlias

from hawker.value_object import ValueObject

BLOCK = 512
_DECIMAL_SECONDS = re.compile(rb"(-?\d{1,18})(?:\.(\d*))?")
_DIGITS = {8: re.compile(rb"[0-7]{1,24}"), 10: re.compile(rb"[0-9]{1,24}")}


class TarError(ValueError):
    """The archive cannot be read or asks for too much. `entry` is the name it was about, if known."""

    def __init__(self, reason: str, entry: bytes = b"") -> None:
        super().__init__(reason)
        self.entry = entry


def number(field: bytes | None, digits: int = 8) -> int:
    """A number in octal, in GNU's base-256 where the first bit is set, or in decimal (`digits=10`); empty is 0.
    Raises `TarError`."""
    if not field:
        return 0
    if digits == 8 and field[0] & 0x80:
        value = int.from_bytes(field, "big")
        bits = 8 * len(field)
        return value - (1 << bits) if field[0] & 0x40 else value - (1 << (bits - 1))
    plain = field.strip(b"\0 ")
    if plain and not _DIGITS[digits].fullmatch(plain):
        raise TarError(f"a number that cannot be read: {field[:24]!r}")
    return int(plain or b"0", digits)


def text(field: bytes) -> bytes:
    return field.split(b"\0", 1)[0]


def seconds_to_ns(value: bytes) -> int:
    """`1700000000.25`, as pax writes times, in ns. Raises `TarError`."""
    found = _DECIMAL_SECONDS.fullmatch(value)
    if not found:
        raise TarError(f"a time that cannot be read: {value[:40]!r}")
    fraction = int((found[2] or b"")[:9].ljust(9, b"0") or b"0")
    return int(found[1]) * 10**9 + fraction


Extents: TypeAlias = tuple[tuple[int, int], ...]
"""(offset, length) pairs, ascending."""

_LIMIT = 65_536
_Read: TypeAlias = Callable[[int], bytes]

_PAX_LIMIT = 1 << 20
_EXTRAS_LIMIT = 16  # extended headers of one entry
_XATTR = b"SCHILY.xattr."
_SPARSE = b"GNU.sparse."
_ID_LIMIT = 2**32 - 2
_MTIME_LIMIT_NS = 2**34 * 10**9


def gnu_extents(head: bytes, read: _Read) -> tuple[int, Extents]:
    """The old form: four pairs in the header, more in blocks that follow it. Gives the file's size as well.
    Raises `TarError`."""
    pairs = list(_fields(head, 386, 4))
    more = head[482]
    while more:
        block = read(BLOCK)
        if len(block) < BLOCK:
            raise TarError("the archive is cut off")
        pairs.extend(_fields(block, 0, 21))
        _check_count(len(pairs))
        more = block[504]
    return number(head[483:495]), tuple(pair for pair in pairs if pair != (0, 0))


def _fields(block: bytes, start: int, count: int) -> Iterable[tuple[int, int]]:
    for at in range(start, start + 24 * count, 24):
        yield number(block[at : at + 12]), number(block[at + 12 : at + 24])


def pax_map_extents(value: bytes) -> Extents:
    """Form 0.1: `offset,length,offset,length` in a pax record."""
    return _pairs([number(part, 10) for part in value.split(b",")])


def stream_extents(read: _Read) -> Extents:
    """Form 1.0: numbers, one a line, in whole blocks before the data; the first is the number of pairs.
    Raises `TarError`."""
    lines: list[bytes] = []
    rest = b""
    wanted = 1
    while len(lines) < wanted:
        block = read(BLOCK)
        if len(block) < BLOCK:
            raise TarError("a sparse file's map is cut off")
        *whole, rest = (rest + block).split(b"\n")
        lines.extend(whole)
        if lines:
            count = number(lines[0], 10)
            _check_count(count)
            wanted = 1 + 2 * count
        elif len(rest) > BLOCK:
            raise TarError("a sparse file's map cannot be read")
    return _pairs([number(line, 10) for line in lines[1:wanted]])


def _pairs(numbers: list[int]) -> Extents:
    _check_count(len(numbers) // 2)
    if len(numbers) % 2:
        raise TarError("a sparse file's map cannot be read")
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _check_count(count: int) -> None:
    if count > _LIMIT:
        raise TarError(f"a sparse file of more than {_LIMIT} pieces")


def checked_extents(extents: Extents, size: int, stored: int) -> Extents:
    """Ascending, without overlap, within the file, and as long as what is stored. Raises `TarError`."""
    if size < 0:
        raise TarError("a sparse file whose size is negative")
    end = 0
    for offset, length in extents:
        if offset < end or length < 0 or offset + length > size:
            raise TarError("a sparse file whose pieces overlap or lie outside of it")
        end = offset + length
    if sum(length for _, length in extents) != stored:
        raise TarError("a sparse file whose map does not match its bytes")
    return extents


class EntryKind(Enum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    HARD_LINK = "hard link"
    FIFO = "fifo"
    DEVICE = "device"


_KINDS = {
    b"0": EntryKind.FILE,
    b"\0": EntryKind.FILE,
    b"7": EntryKind.FILE,
    b"S": EntryKind.FILE,
    b"1": EntryKind.HARD_LINK,
    b"2": EntryKind.SYMLINK,
    b"3": EntryKind.DEVICE,
    b"4": EntryKind.DEVICE,
    b"5": EntryKind.DIRECTORY,
    b"6": EntryKind.FIFO,
}


class TarEntry(ValueObject, frozen=True):
    """One member of an archive. `name` and `link` are as written. `size` is of the file when it is unpacked, holes
    included, and `extents` where its bytes go; `stored` is how many bytes follow in the archive."""

    name: bytes
    kind: EntryKind
    mode: int
    """Permission bits, with set-user-id, set-group-id and sticky; no kind of file."""
    uid: int
    """The owner within the image."""
    gid: int
    """The group within the image."""
    mtime_ns: int
    """The time of the last change in Unix nanoseconds, below 0 before 1970."""
    size: int
    stored: int
    extents: Extents
    link: bytes
    xattrs: tuple[tuple[str, bytes], ...]
    """Names and values of extended attributes."""


class TarReader:
    """Entries in order. `read` gives the bytes of the entry that came last; what is not read is passed over: read, so
    that a cut is seen, or `by_seeking` in files where the caller would see it."""

    def __init__(self, stream: BinaryIO, max_path: int = 4096, *, by_seeking: bool = False) -> None:
        self._stream = stream
        self._max_path = max_path
        self._by_seeking = by_seeking
        self._left = 0  # bytes of the current entry not yet read
        self._padding = 0

    def __iter__(self) -> Iterator[TarEntry]:
        while (head := self._next_header()) is not None:
            extras: dict[bytes, bytes] = {}
            for _ in range(_EXTRAS_LIMIT):
                if head[156:157] not in b"xgLK":
                    break
                self._take_extra(head, extras)
                head = self._next_header() or b""
                if not head:
                    return
            yield self._entry(head, extras)

    def read(self, limit: int) -> bytes:
        """At most `limit` bytes; none at the end of the entry. Raises `TarError` for an archive that is cut off."""
        data = self._stream.read(min(limit, self._left))
        if not data and self._left:
            raise TarError("the archive is cut off")
        self._left -= len(data)
        return data

    def tell(self) -> int:
        """The place of the next byte of the current entry, in a file that can be read at any place."""
        return self._stream.tell()

    def _next_header(self) -> bytes | None:
        """None at the end: a block of zeros, or nothing more at all."""
        self._pass_over(self._left + self._padding)
        self._left = self._padding = 0
        head = self._stream.read(BLOCK)
        if not head or head.count(0) == BLOCK:
            return None
        if len(head) < BLOCK:
            raise TarError("the archive is cut off")
        if not _is_header(head):
            raise TarError("what should be a header is none: its checksum is wrong")
        return head

    def _pass_over(self, count: int) -> None:
        if self._by_seeking:
            self._stream.seek(count, os.SEEK_CUR)
            return
        while count:
            skipped = len(self._stream.read(min(count, 1 << 20)))
            if not skipped:
                raise TarError("the archive is cut off")
            count -= skipped

    def _take_extra(self, head: bytes, extras: dict[bytes, bytes]) -> None:
        """A header about the next one: pax records, or GNU's long name or link. Global pax headers are comments of
        tools like git and are passed over, as Docker does."""
        kind, size = head[156:157], number(head[124:136])
        self._begin(size)
        if kind == b"g":
            return
        limit = _PAX_LIMIT if kind == b"x" else self._max_path + 1
        if size > limit:
            raise TarError(f"an extended header of {size} bytes; {limit} is the limit")
        body = self._read_all()
        if kind == b"x":
            extras.update(parse_pax(body))
        else:
            extras.setdefault(b"path" if kind == b"L" else b"linkpath", text(body))

    def _read_all(self) -> bytes:
        parts = []
        while part := self.read(_PAX_LIMIT):
            parts.append(part)
        return b"".join(parts)

    def _begin(self, stored: int) -> None:
        if stored < 0:
            raise TarError("a negative size")
        self._left = stored
        self._padding = -stored % BLOCK

    def _entry(self, head: bytes, extras: dict[bytes, bytes]) -> TarEntry:
        name = extras.get(_SPARSE + b"name") or extras.get(b"path") or _header_name(head)
        kind = _KINDS.get(head[156:157])
        if kind is None:
            raise TarError(f"an entry of unknown type {head[156:157]!r}", name)
        if len(name) > self._max_path or b"\0" in name:
            raise TarError(f"a name longer than {self._max_path} bytes or with a zero in it", name)
        if kind is EntryKind.FILE and name.endswith(b"/"):
            kind = EntryKind.DIRECTORY
        try:
            return self._described(head, extras, name, kind)
        except TarError as error:
            raise TarError(str(error), name) from error

    def _described(self, head: bytes, extras: dict[bytes, bytes], name: bytes, kind: EntryKind) -> TarEntry:
        stored = number(extras.get(b"size"), 10) if b"size" in extras else number(head[124:136])
        self._begin(stored if kind is EntryKind.FILE else 0)
        size, extents = self._content(head, extras) if kind is EntryKind.FILE else (0, ())
        link = extras.get(b"linkpath") or text(head[157:257])
        if len(link) > self._max_path or b"\0" in link:
            raise TarError(f"a link target longer than {self._max_path} bytes or with a zero in it")
        return TarEntry(
            name=name,
            kind=kind,
            mode=number(head[100:108]) & 0o7777,
            uid=_owner(extras.get(b"uid"), head[108:116]),
            gid=_owner(extras.get(b"gid"), head[116:124]),
            mtime_ns=_mtime_ns(extras.get(b"mtime"), head[136:148]),
            size=size,
            stored=self._left,
            extents=extents,
            link=link,
            xattrs=_xattrs(extras),
        )

    def _content(self, head: bytes, extras: dict[bytes, bytes]) -> tuple[int, Extents]:
        """The unpacked size and where the stored bytes go. GNU tar has three ways to write a sparse file."""
        if head[156:157] == b"S":
            size, extents = gnu_extents(head, self._stream.read)
        elif extras.get(_SPARSE + b"major") == b"1":
            size = number(extras.get(_SPARSE + b"realsize"), 10)
            extents = stream_extents(self.read)
        elif _SPARSE + b"map" in extras:
            size = number(extras.get(_SPARSE + b"size"), 10)
            extents = pax_map_extents(extras[_SPARSE + b"map"])
        elif any(key.startswith(_SPARSE) for key in extras):
            raise TarError("a sparse file in an old form of GNU tar that is not served")
        else:
            return self._left, ((0, self._left),)
        return size, checked_extents(extents, size, self._left)


def parse_pax(body: bytes) -> dict[bytes, bytes]:
    """Records `length key=value newline` (POSIX pax). Raises `TarError`."""
    found: dict[bytes, bytes] = {}
    position = 0
    while position < len(body):
        space = body.find(b" ", position, position + 20)
        length = number(body[position:space], 10) if space > 0 else 0
        record = body[position : position + length]
        key, equals, value = record[space + 1 - position : -1].partition(b"=")
        if length < 5 or len(record) != length or record[-1:] != b"\n" or not key or not equals:
            raise TarError("an extended header cannot be read")
        found[key] = value
        position += length
    return found


def _is_header(head: bytes) -> bool:
    try:
        return number(head[148:156]) == sum(head) - sum(head[148:156]) + 8 * 32
    except TarError:
        return False


def _header_name(head: bytes) -> bytes:
    name = text(head[:100])
    prefix = text(head[345:500]) if head[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _owner(extra: bytes | None, field: bytes) -> int:
    value = number(extra, 10) if extra else number(field)
    if not 0 <= value <= _ID_LIMIT:
        raise TarError(f"an owner id of {value}")
    return value


def _mtime_ns(extra: bytes | None, field: bytes) -> int:
    """Clamped to what block images can hold."""
    value = seconds_to_ns(extra) if extra else number(field) * 10**9
    return max(0, min(value, _MTIME_LIMIT_NS))


def _xattrs(extras: dict[bytes, bytes]) -> tuple[tuple[str, bytes], ...]:
    found = ((key[len(_XATTR) :], value) for key, value in extras.items() if key.startswith(_XATTR))
    return tuple((key.decode("utf-8", "replace"), value) for key, value in found)
