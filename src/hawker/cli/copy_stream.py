"""The copy stream of guest/PROTOCOL.md, and files of this host: packed into it, and unpacked from what a machine sends.

A machine may send anything. What it names stays below the destination: names are checked, and no link below it is
followed. What is held at once is one record. A file has its name when it is complete, and not before.
"""

import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from hawker.cli.exits import Failure
from hawker.clock import SystemClock
from hawker.value_object import ValueObject

_CLOCK = SystemClock()
_MAGIC = b"HKCP\x01\x00"
_ENTRY, _DATA, _DONE, _PASSED_OVER, _CLOSE = 1, 2, 3, 4, 5
_FILE, _DIRECTORY, _SYMLINK = 1, 2, 3
_HEAD = struct.Struct("<BIIIqQ")  # kind, mode, uid, gid, time of change in ns, size
_STRETCH = struct.Struct("<QI")  # where, how many bytes
_PART = 64 * 1024
_TEXT_MAX = 4096
_BELOW = os.O_NOFOLLOW | os.O_CLOEXEC


class CopyTally:
    """What was copied so far. `tell` hears of each change."""

    def __init__(self, tell: Callable[["CopyTally"], None] | None = None) -> None:
        self.files = self.data = 0
        self.passed_over: list[str] = []
        self.tell = tell

    def add(self, *, files: int = 0, data: int = 0) -> None:
        self.files += files
        self.data += data
        if self.tell is not None:
            self.tell(self)


# From files of this host.


def pack(source: Path, tally: CopyTally) -> Iterator[bytes]:
    """The stream of a file, a link or a whole directory. Raises `OSError`."""
    yield _MAGIC
    yield from _packed(source, b"", tally)
    yield bytes([_CLOSE])


def _packed(path: Path, name: bytes, tally: CopyTally) -> Iterator[bytes]:
    about = path.lstat()
    if stat.S_ISREG(about.st_mode):
        yield from _packed_file(path, name, tally)
    elif stat.S_ISLNK(about.st_mode):
        yield _entry(_SYMLINK, about, name, os.fsencode(os.readlink(path)))
    elif stat.S_ISDIR(about.st_mode):
        yield _entry(_DIRECTORY, about, name)
        for each in sorted(path.iterdir()):
            below = os.fsencode(each.name)
            yield from _packed(each, name + b"/" + below if name else below, tally)
    else:
        tally.passed_over.append(str(path))


def _packed_file(path: Path, name: bytes, tally: CopyTally) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        about = os.fstat(file.fileno())
        yield _entry(_FILE, about, name)
        for start, end in _stretches(file.fileno(), about.st_size):
            for at in range(start, end, _PART):
                data = os.pread(file.fileno(), min(_PART, end - at), at)
                yield bytes([_DATA]) + _STRETCH.pack(at, len(data)) + data
                tally.add(data=len(data))
    yield bytes([_DONE])
    tally.add(files=1)


def _stretches(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file has data; the rest of it is holes."""
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:  # a hole up to the end
            return
        at = min(size, os.lseek(fd, start, os.SEEK_HOLE))
        yield start, at


def _entry(kind: int, about: os.stat_result, name: bytes, target: bytes = b"") -> bytes:
    size = about.st_size if kind == _FILE else 0
    head = _HEAD.pack(kind, stat.S_IMODE(about.st_mode), about.st_uid, about.st_gid, about.st_mtime_ns, size)
    return bytes([_ENTRY]) + head + _text(name) + _text(target)


def _text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value + b"\0"


# To files of this host.


class CutShort(Failure):
    """The stream ended, or went wrong, before all was copied."""


class _Entry(ValueObject, frozen=True):
    kind: int
    mode: int
    uid: int
    gid: int
    changed_ns: int
    size: int
    path: bytes
    target: bytes


class _OpenFile(ValueObject, frozen=True):
    entry: _Entry
    fd: int
    parent: int
    temporary: bytes
    name: bytes


class CopyUnpacker:
    """Feed it what comes. `owners`: files keep the user and group ids of the machine, and bits such as set-user-id;
    else they are the caller's, without such bits."""

    def __init__(self, destination: Path, name: str, tally: CopyTally, *, owners: bool) -> None:
        self._destination, self._name = destination, os.fsencode(name)
        self._tally, self._owners = tally, owners
        self._top: Path | None = None
        self._held = bytearray()
        self._file: _OpenFile | None = None
        self._begun = False
        self.complete = False

    def feed(self, data: bytes) -> None:
        """Raises `CutShort` for what is no copy stream, and `OSError`."""
        self._held += data
        if not self._begun and len(self._held) >= len(_MAGIC):
            if not self._held.startswith(_MAGIC):
                raise CutShort("the machine sends no copy that is understood here")
            del self._held[: len(_MAGIC)]
            self._begun = True
        taken = 1
        while self._begun and self._held and taken and not self.complete:
            taken = self._take()
            del self._held[:taken]

    def close(self) -> None:
        """Drop what is there by half."""
        if (file := self._file) is not None:
            self._file = None
            with suppress(OSError):
                os.unlink(file.temporary, dir_fd=file.parent)
            os.close(file.fd)
            os.close(file.parent)

    def _take(self) -> int:
        """Do one record; its size, 0 when it is not all here."""
        reader = _Record(self._held)
        try:
            self._do(reader)
        except _Incomplete:
            return 0
        return reader.at

    def _do(self, reader: "_Record") -> None:
        match reader.take(1)[0]:
            case 1 if self._file is None:
                entry = reader.entry()
                self._make(entry)
            case 2 if self._file is not None:
                at, length = _STRETCH.unpack(reader.take(_STRETCH.size))
                size = self._file.entry.size
                if length > _PART or at > size or length > size - at:
                    raise CutShort("the machine sends more of a file than there is")
                self._write(self._file, reader.take(length), at)
            case 3 if self._file is not None:
                self._finish(self._file)
            case 4:
                path, why = reader.text(), reader.text()
                self._tally.passed_over.append(f"{_shown(path)}: {_shown(why)}")
                del self._tally.passed_over[1000:]
            case 5 if self._file is None:
                self.complete = True
            case kind:
                raise CutShort(f"the machine sends what cannot be in a copy: record {kind}")

    def _make(self, entry: _Entry) -> None:
        if self._top is None:
            self._top = self._find_top(entry)
        parent, name = self._parent_of(entry)
        try:
            match entry.kind:
                case 1:
                    self._file, parent = self._begin(entry, parent, name), -1
                    os.ftruncate(self._file.fd, entry.size)
                case 2:
                    self._make_directory(entry, parent, name)
                case 3:
                    self._make_link(entry, parent, name)
                case _:
                    raise CutShort(f"the machine sends what is no file: kind {entry.kind}")
        finally:
            if parent >= 0:
                os.close(parent)

    def _find_top(self, entry: _Entry) -> Path:
        """Into a directory that is there under its own name; else as the destination says."""
        if entry.path:
            raise CutShort("the machine sends what is below nothing")
        if self._destination.is_dir():
            return self._destination / os.fsdecode(self._name) if self._name else self._destination
        if entry.kind == _DIRECTORY and self._destination.exists():
            raise Failure(f"{self._destination} is not a directory")
        return self._destination

    def _parent_of(self, entry: _Entry) -> tuple[int, bytes]:
        """The directory that holds an entry, opened, and its name there."""
        assert self._top is not None
        if not entry.path:
            top = Path(os.path.abspath(self._top))
            return os.open(top.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), os.fsencode(top.name or ".")
        *above, name = entry.path.split(b"/")
        at = os.open(self._top, os.O_PATH | os.O_DIRECTORY | _BELOW)
        for each in above:
            try:
                below = os.open(each, os.O_PATH | os.O_DIRECTORY | _BELOW, dir_fd=at)
            finally:
                os.close(at)
            at = below
        return at, name

    def _begin(self, entry: _Entry, parent: int, name: bytes) -> _OpenFile:
        temporary = b".hawker-copy-" + _CLOCK.token_bytes(8).hex().encode()
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BELOW, 0o600, dir_fd=parent)
        return _OpenFile(entry, fd, parent, temporary, name)

    def _write(self, file: _OpenFile, data: bytes, at: int) -> None:
        done = 0
        while done < len(data):
            done += os.pwrite(file.fd, data[done:], at + done)
        self._tally.add(data=len(data))

    def _finish(self, file: _OpenFile) -> None:
        """The mode comes last: changing the owner takes the bit of set-user-id."""
        entry = file.entry
        if self._owners:
            os.chown(file.fd, entry.uid, entry.gid)
        os.fchmod(file.fd, self._mode(entry))
        with suppress(OSError, OverflowError):
            os.utime(file.fd, ns=(entry.changed_ns, entry.changed_ns))
        os.rename(file.temporary, file.name, src_dir_fd=file.parent, dst_dir_fd=file.parent)
        self._file = None
        os.close(file.fd)
        os.close(file.parent)
        self._tally.add(files=1)

    def _make_directory(self, entry: _Entry, parent: int, name: bytes) -> None:
        """One that is there stays as it is: only what is in it changes."""
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            about = os.stat(name, dir_fd=parent, follow_symlinks=not entry.path)
            if not stat.S_ISDIR(about.st_mode):
                raise NotADirectoryError(f"{_shown(entry.path or name)} is there and is no directory") from None
            return
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _BELOW, dir_fd=parent)
        try:
            if self._owners:
                os.chown(fd, entry.uid, entry.gid)
            os.fchmod(fd, self._mode(entry) | 0o700)
        finally:
            os.close(fd)

    def _make_link(self, entry: _Entry, parent: int, name: bytes) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
        os.symlink(entry.target, name, dir_fd=parent)
        if self._owners:
            os.chown(name, entry.uid, entry.gid, dir_fd=parent, follow_symlinks=False)

    def _mode(self, entry: _Entry) -> int:
        return entry.mode & (0o7777 if self._owners else 0o777)


class _Incomplete(Exception):
    """More is to come."""


class _Record:
    """Reads one from the bytes that came."""

    def __init__(self, held: bytearray) -> None:
        self._held, self.at = held, 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self._held):
            raise _Incomplete
        self.at += count
        return bytes(self._held[self.at - count : self.at])

    def text(self) -> bytes:
        (length,) = struct.unpack("<I", self.take(4))
        if length >= _TEXT_MAX:
            raise CutShort("the machine sends a path that is too long")
        value = self.take(length + 1)
        if value.find(b"\0") != length:
            raise CutShort("the machine sends a path that is none")
        return value[:-1]

    def entry(self) -> _Entry:
        kind, mode, uid, gid, changed_ns, size = _HEAD.unpack(self.take(_HEAD.size))
        entry = _Entry(kind, mode, uid, gid, changed_ns, size, path=self.text(), target=self.text())
        if entry.path and any(each in (b"", b".", b"..") for each in entry.path.split(b"/")):
            raise CutShort(f"the machine sends a path that leads elsewhere: {_shown(entry.path)}")
        return entry


def _shown(path: bytes) -> str:
    """Without what could move a terminal's cursor."""
    return "".join(each if each.isprintable() else "�" for each in path.decode(errors="replace"))
