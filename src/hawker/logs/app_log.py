"""One app's log on this node: segments of frames, each of which has lines and how far they were taken (its cursors).

Lines and cursors are one frame, so a line is there once, wherever the daemon was killed: a frame that was torn is cut
off at the next start, and its lines are taken again. Positions count lines. The first is the microsecond in which the
log was begun, so that those of a log that was lost are never given again.
"""

import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

import msgspec
import zstandard

from hawker.logs.line import LINE_BYTES, Cursor, KeptLine, size_of
from hawker.value_object import ValueObject

_HEAD = struct.Struct("<IIIQIQQ")  # crc of what follows; bytes of cursors, of lines; first position, lines; times
_MOST_FRAMES = 4096  # in a segment
_MARK_EVERY = 64  # frames
_LINES = msgspec.msgpack.Decoder(list[KeptLine])
_CURSORS = msgspec.msgpack.Decoder(dict[str, Cursor])
_ENCODER = msgspec.msgpack.Encoder()
_SUFFIX = ".log"
_SCANNED_BYTES = 8 << 20  # of lines that one look goes past, wanted or not: some 0.1 s of a processor

Wanted = Callable[[KeptLine], bool]


class LogLimits(ValueObject, frozen=True, kw_only=True):
    """The limits of the log of one app on one node: `most_bytes` on the disk, at least two segments; lines older than
    `kept_s` seconds go. While the disk is `scarce`, an app that writes keeps two segments: what is free then is
    promised to machines."""

    most_bytes: int = 256 << 20
    kept_s: float = 86_400.0
    scarce: Callable[[], bool] = lambda: False

    @property
    def segment_bytes(self) -> int:
        return min(4 << 20, max(64 * 1024, self.most_bytes // 8))


class PositionedLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line with its place. There are many thousands a second: a struct is made five times as fast as a dataclass."""

    position: int
    """The position of the line in its node's log of the app; a later line has a greater one."""
    line: KeptLine


class LogPart(ValueObject, frozen=True, kw_only=True):
    """`position` is how far was looked, also past lines that were not wanted; `more`: there is more beyond it, or, of
    a tail, before `begin`."""

    lines: Sequence[PositionedLine]
    position: int
    more: bool = False
    begin: int = 0


class _Frame(ValueObject, frozen=True):
    offset: int
    cursors: int  # bytes
    lines: int  # bytes
    first: int
    count: int
    last_ns: int

    @property
    def end(self) -> int:
        return self.offset + _HEAD.size + self.cursors + self.lines


class AppLog:
    """Safe in threads. Its calls block."""

    def __init__(self, directory: Path, limits: LogLimits, now: float) -> None:
        """Raises `OSError`. `now` is Unix seconds."""
        self.directory = directory
        self._limits = limits
        self._lock = Lock()
        self._frames, self._size, self._marks = 0, 0, list[tuple[int, int]]()
        self._began_ns = int(now * 1e9)
        self.cursors = dict[str, Cursor]()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._next = int(now * 1e6)
        self._segment: Path | None = None
        self._torn = True  # until the first append
        segments = _segments(directory)
        any(self._take_up(segment) for segment in reversed(segments))
        if segments and self._segment != segments[-1]:
            self._size = limits.segment_bytes  # the next frame begins a segment, in the place of what nothing is in

    @property
    def position(self) -> int:
        """The position of the newest line."""
        return self._next - 1

    def append(self, lines: Sequence[KeptLine], cursors: Mapping[str, Cursor]) -> None:
        """Writes lines, all of them or none, in the kernel's hands when this returns. Raises `OSError`."""
        with self._lock:
            if self._segment is None or self._size >= self._limits.segment_bytes or self._frames >= _MOST_FRAMES:
                self._rotate(lines)
            if not self._frames:
                cursors = {**self.cursors, **cursors}
            data = _framed(self._next, lines, cursors)
            assert self._segment is not None
            _write_all(self._segment, self._size, data, cut=self._torn)
            self._torn = False
            if self._frames % _MARK_EVERY == 0:
                self._marks.append((self._next, self._size))
            self._frames += 1
            self._size += len(data)
            self._next += len(lines)
            self.cursors |= cursors

    def forget(self, machines: Sequence[str]) -> None:
        """Forgets the cursors of machines: they are gone, and nothing more comes of them."""
        with self._lock:
            for machine in machines:
                self.cursors.pop(machine, None)

    def read(
        self, after: int, *, most_lines: int, most_bytes: int, since: int = 0, wanted: Wanted | None = None
    ) -> LogPart:
        """Lines past position `after` that are not older than `since`, Unix nanoseconds, oldest first. Maybe none
        although there is more: it has looked at much."""
        found, size, scanned, end = list[PositionedLine](), 0, 0, self._next
        after = min(after, end - 1)
        for frame, fd in self._frames_from(after, end, since):
            if scanned >= _SCANNED_BYTES:
                return LogPart(lines=found, position=frame.first - 1, more=True)
            for position, line in _past(after, _lines(fd, frame), frame.first):
                scanned += len(line.text) + LINE_BYTES
                if line.at < since or not (wanted is None or wanted(line)):
                    continue
                if len(found) >= most_lines or size >= most_bytes:
                    return LogPart(lines=found, position=found[-1].position, more=True)
                found.append(PositionedLine(position=position, line=line))
                size += len(line.text) + LINE_BYTES
        return LogPart(lines=found, position=end - 1)

    def tail(self, count: int, *, before: int | None = None, since: int = 0, wanted: Wanted | None = None) -> LogPart:
        """The last `count` lines that are wanted, of those before a position that is the `begin` of another tail. Fewer
        although there is more: it has looked at much."""
        end = begin = self._next if before is None else before
        found, scanned = list[PositionedLine](), 0
        for frame, fd in self._frames_back(end, since) if count else ():
            if scanned >= _SCANNED_BYTES:
                return LogPart(lines=found, position=end - 1, more=True, begin=begin)
            lines, begin = _lines(fd, frame), frame.first
            scanned += size_of(lines)
            part = [
                PositionedLine(position=position, line=line)
                for position, line in enumerate(lines, begin)
                if line.at >= since and (wanted is None or wanted(line))
            ]
            found = part[-(count - len(found)) :] + found
            if len(found) >= count:
                break
        return LogPart(lines=found, position=end - 1, begin=begin)

    def trim(self, now: float) -> None:
        """Drop the oldest segments, by bytes and by age; never the newest, nor the newest that has something."""
        oldest_ns = int((now - self._limits.kept_s) * 1e9)
        segments = _segments(self.directory)
        sizes = [_size(each) for each in segments]
        total = sum(sizes)
        for segment, size in zip(segments[:-1], sizes, strict=False):
            fits = total <= self._limits.most_bytes - self._limits.segment_bytes
            if segment == self._segment or (fits and _last_ns(segment) >= oldest_ns):
                return
            with suppress(FileNotFoundError):
                segment.unlink()
            total -= size
        with self._lock:
            if self._frames and self._began_ns < oldest_ns + int(self._limits.kept_s * 1e9 * 7 / 8):
                self._size = self._limits.segment_bytes  # the next frame begins a segment, so that this one can go

    def _frames_back(self, end: int, since: int) -> Iterator[tuple[_Frame, int]]:
        """Those before position `end` that have something that is not older than `since`, from the last one on."""
        for segment in reversed(_segments(self.directory)):
            with suppress(FileNotFoundError), _opened(segment) as fd:
                for frame in reversed([each for each in _frames(fd, 0, end) if each.count and each.last_ns >= since]):
                    yield frame, fd

    def _frames_from(self, after: int, end: int, since: int) -> Iterator[tuple[_Frame, int]]:
        """Those that have something past `after` and before `end`, that is not older than `since`."""
        segments = _segments(self.directory)
        begins = [_first(each) for each in segments]
        for place, segment in enumerate(segments):
            if (place + 1 < len(segments) and begins[place + 1] <= after + 1) or begins[place] >= end:
                continue
            offset = self._mark(after) if segment == self._segment else 0
            with suppress(FileNotFoundError), _opened(segment) as fd:
                for frame in _frames(fd, offset, end):
                    if frame.count and frame.first + frame.count > after + 1 and frame.last_ns >= since:
                        yield frame, fd

    def _mark(self, after: int) -> int:
        with self._lock:
            return max((offset for first, offset in self._marks if first <= after + 1), default=0)

    def _rotate(self, lines: Sequence[KeptLine]) -> None:
        """Segments from the next position on have nothing whole, and would hide what comes."""
        segments = _segments(self.directory)
        there = [segment for segment in segments if _first(segment) < self._next]
        for segment in (*(there[:-1] if self._limits.scarce() else ()), *segments[len(there) :]):
            segment.unlink(missing_ok=True)
        self._segment = self.directory / f"{self._next:020d}{_SUFFIX}"
        self._frames, self._size, self._marks, self._torn = 0, 0, [], True
        if lines:
            self._began_ns = lines[0].at

    def _take_up(self, segment: Path) -> bool:
        """Go on with the newest segment; False when nothing whole is in it."""
        with _opened(segment) as fd:
            for frame in _frames(fd, 0, None):
                body = os.pread(fd, frame.end - frame.offset, frame.offset)
                if zlib.crc32(memoryview(body)[4:]) != _HEAD.unpack_from(body)[0]:
                    break
                if self._frames % _MARK_EVERY == 0:
                    self._marks.append((frame.first, frame.offset))
                self.cursors |= _CURSORS.decode(body[_HEAD.size : _HEAD.size + frame.cursors])
                self._frames, self._size = self._frames + 1, frame.end
                self._next = frame.first + frame.count
        if not self._frames:
            return False
        self._segment = segment
        return True


def _framed(first: int, lines: Sequence[KeptLine], cursors: Mapping[str, Cursor]) -> bytes:
    told = _ENCODER.encode(cursors)
    body = zstandard.ZstdCompressor(level=1).compress(_ENCODER.encode(lines)) if lines else b""
    times = [line.at for line in lines] or [0]
    head = _HEAD.pack(0, len(told), len(body), first, len(lines), max(0, min(times)), max(0, *times))
    rest = head[4:] + told + body
    return zlib.crc32(rest).to_bytes(4, "little") + rest


def _lines(fd: int, frame: _Frame) -> list[KeptLine]:
    if not frame.lines:
        return []
    data = os.pread(fd, frame.lines, frame.offset + _HEAD.size + frame.cursors)
    try:
        return _LINES.decode(zstandard.ZstdDecompressor().decompress(data))
    except (zstandard.ZstdError, msgspec.DecodeError):
        return []  # the disk has damaged it


def _past(after: int, lines: Sequence[KeptLine], first: int) -> Iterator[tuple[int, KeptLine]]:
    """Those past position `after`, of lines whose first has position `first`."""
    skipped = max(0, after + 1 - first)
    return enumerate(lines[skipped:] if skipped else lines, first + skipped)


def _frames(fd: int, offset: int, end: int | None) -> Iterator[_Frame]:
    """From `offset` on, up to the first that is not whole or begins at position `end`, which is still being written."""
    size = os.fstat(fd).st_size
    while len(head := os.pread(fd, _HEAD.size, offset)) == _HEAD.size:
        _, cursors, lines, first, count, _, last_ns = _HEAD.unpack(head)
        if end is not None and first >= end and count:
            return
        frame = _Frame(offset=offset, cursors=cursors, lines=lines, first=first, count=count, last_ns=last_ns)
        if frame.end > size:
            return
        yield frame
        offset = frame.end


class _opened:
    """A descriptor to read a file with."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> int:
        self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _write_all(path: Path, size: int, data: bytes, *, cut: bool) -> None:
    """At `size`; what could be written of a part is cut off, and with `cut` what is there from before."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if cut:
            os.ftruncate(fd, size)
        view = memoryview(data)
        while view:
            view = view[os.pwrite(fd, view, size + len(data) - len(view)) :]
    except OSError:
        os.ftruncate(fd, size)
        raise
    finally:
        os.close(fd)


def _segments(directory: Path) -> list[Path]:
    """Oldest first."""
    with suppress(FileNotFoundError):
        return sorted(each for each in directory.iterdir() if each.suffix == _SUFFIX and each.stem.isdecimal())
    return []


def _first(segment: Path) -> int:
    return int(segment.stem)


def _size(segment: Path) -> int:
    with suppress(FileNotFoundError):
        return segment.stat().st_size
    return 0


def _last_ns(segment: Path) -> int:
    """When it was written to last: what it has is not younger."""
    with suppress(FileNotFoundError):
        return segment.stat().st_mtime_ns
    return 0
