"""The audit log of a node, in DATA_DIR/audit: segments of JSON lines, only ever appended to.

A line is in the kernel's hands when `append` returns, so it outlives a daemon that is killed; it is on disk when
`sync` returns. A line that was torn by a crash is cut off at the next start. The oldest segments go when the log is
larger than it may be.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import anyio
import msgspec
from anyio import to_thread

from hawker.audit.chain import BEGINNING, AuditEntry, line_of, read_line, sealed
from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.log import bind

SEGMENT_BYTES = 8 << 20
_TAIL_BYTES = 64 * 1024
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
        self._number, self._before = 0, BEGINNING
        self._lost = 0
        self._written, self._synced = 0, 0
        self._turn = anyio.Lock()
        self._thread = anyio.CapacityLimiter(1)

    def open(self) -> None:
        """Goes on where the last daemon ended. Raises `OSError`."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        for segment in reversed(segments(self._directory)):
            torn = _mend(segment)
            last = _last(segment)
            if last is not None:
                self._number, self._before = last.number, last.hash
                self._use(segment)
                if torn:
                    self.append(what="torn line cut off", things={"bytes": str(torn)})
                return
            segment.unlink()
        self._use(self._directory / _name(1))

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
        """Raises `Unavailable` when it cannot be written; then nothing of it is there, and the next entry counts it."""
        entry = sealed(
            AuditEntry(
                number=self._number + 1,
                at=datetime.fromtimestamp(self._clock.now(), UTC).isoformat(timespec="milliseconds"),
                request=request,
                who=who,
                tokens=tokens,
                source=source,
                node=node,
                what=what,
                action=action,
                things=things or {},
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
        """What was appended so far is on disk. Callers that wait share one sync. Raises `Unavailable`."""
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
        self.close()
        self._fd = os.open(segment, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._size = os.fstat(self._fd).st_size

    def _drop_oldest(self) -> None:
        for segment in segments(self._directory)[: -self._segments]:
            segment.unlink()


def segments(directory: Path) -> list[Path]:
    """The oldest first."""
    return sorted(directory.glob(f"audit-{'[0-9]' * 16}.jsonl"))


def lines(directory: Path) -> Iterator[bytes]:
    """Of all segments; one that goes meanwhile is left out. A last line without its end is not one yet."""
    for segment in segments(directory):
        try:
            with segment.open("rb") as file:
                yield from (line for line in file if line.endswith(b"\n"))
        except FileNotFoundError:
            continue


def number_of(segment: Path) -> int:
    """Of its first entry."""
    return int(segment.stem.removeprefix("audit-"))


def _name(number: int) -> str:
    return f"audit-{number:016}.jsonl"


def _mend(segment: Path) -> int:
    """Cut off what follows the last whole line. How many bytes that were."""
    with segment.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - _TAIL_BYTES)
        file.seek(start)
        whole = start + file.read().rfind(b"\n") + 1
        if whole < size:
            file.truncate(whole)
            os.fsync(file.fileno())
        return size - whole


def _last(segment: Path) -> AuditEntry | None:
    """None of an empty one. Raises `OSError`, and `ValueError` for a last line that is no entry: somebody wrote it."""
    with segment.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        found = file.read().splitlines()
    try:
        return read_line(found[-1]) if found else None
    except msgspec.DecodeError:
        _log.error("the audit log's last line is no entry: a new chain begins", extra={"file": str(segment)})
        return AuditEntry(number=0, at="", what="")
