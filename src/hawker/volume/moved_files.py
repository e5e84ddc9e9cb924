"""The bytes of a volume that goes to another node. At its source a file that nobody writes to is read piece by piece;
at its destination a draft is filled, which counts for nothing until it is adopted.

A digest does not depend on where a file has holes: pieces of zeros count as holes.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hawker.errors import NotFound
from hawker.fair.threads import Pool, in_thread
from hawker.host.sparse import allocated_bytes, publish, stored_pieces
from hawker.ids import VolumeId

DIGESTED_BYTES = 8 << 20
_ZEROS = bytes(DIGESTED_BYTES)
_BLOCK = 64 << 10


@dataclass(frozen=True, slots=True)
class StoredPiece:
    """`data` lies at `offset`, and before it there is nothing since where was asked from."""

    offset: int
    data: bytes


class MovedFiles(Protocol):
    """Every call is idempotent. Raises `OSError` for what the host refuses, `NotFound` for what is not there."""

    async def stored_bytes(self, volume_id: VolumeId) -> int:
        """What the volume's file takes of the disk."""

    async def flush(self, volume_id: VolumeId) -> None:
        """What was written to the volume's file is on disk."""

    async def piece(self, volume_id: VolumeId, offset: int, count: int) -> StoredPiece | None:
        """The first stored bytes from `offset` on, `count` at most; None when there are no more."""

    async def digest(self, volume_id: VolumeId) -> str:
        """Of the volume's whole content."""

    async def begin(self, move: str, size_bytes: int, upto: int) -> None:
        """Have a draft of this size that has nothing beyond `upto`."""

    async def write(self, move: str, piece: StoredPiece) -> None: ...

    async def sync(self, move: str) -> None:
        """What was written is on disk."""

    async def digest_of_draft(self, move: str) -> str: ...

    async def adopt(self, move: str, volume_id: VolumeId) -> None:
        """The draft is the volume's file from now on."""

    async def drop(self, move: str, volume_id: VolumeId | None = None) -> None:
        """The draft, also if it was adopted as this volume's file already."""

    async def drafts(self) -> list[str]:
        """The moves of which there is a draft."""

    async def retire(self, volume_id: VolumeId, generation: int) -> None:
        """The file is not the volume's any more, and is kept."""

    async def forget(self, volume_id: VolumeId, generation: int) -> None:
        """Remove a file that was retired."""


class HostMovedFiles:
    """Keeps `MovedFiles`. `directory` is that of the volumes; `file_of` is where a volume's blocks are."""

    def __init__(self, directory: Path, file_of: Callable[[VolumeId], Path]) -> None:
        self._incoming = directory / ".incoming"
        self._retired = directory / ".retired"
        self._file_of = file_of

    async def stored_bytes(self, volume_id: VolumeId) -> int:
        return await in_thread(Pool.DISKS, allocated_bytes, self._existing(volume_id))

    async def flush(self, volume_id: VolumeId) -> None:
        await in_thread(Pool.DISKS, _sync, self._existing(volume_id))

    async def piece(self, volume_id: VolumeId, offset: int, count: int) -> StoredPiece | None:
        return await in_thread(Pool.DISKS, _piece, self._existing(volume_id), offset, count)

    async def digest(self, volume_id: VolumeId) -> str:
        return await in_thread(Pool.DISKS, digest_of, self._existing(volume_id))

    async def begin(self, move: str, size_bytes: int, upto: int) -> None:
        await in_thread(Pool.DISKS, self._begin, self._draft(move), size_bytes, upto)

    def _begin(self, draft: Path, size_bytes: int, upto: int) -> None:
        self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, min(upto, size_bytes))
            os.ftruncate(fd, size_bytes)
        finally:
            os.close(fd)

    async def write(self, move: str, piece: StoredPiece) -> None:
        await in_thread(Pool.DISKS, _write, self._draft(move), piece)

    async def sync(self, move: str) -> None:
        await in_thread(Pool.DISKS, _sync, self._draft(move))

    async def digest_of_draft(self, move: str) -> str:
        return await in_thread(Pool.DISKS, digest_of, self._draft(move))

    async def adopt(self, move: str, volume_id: VolumeId) -> None:
        file = self._file_of(volume_id)
        await in_thread(Pool.DISKS, lambda: file.parent.mkdir(parents=True, exist_ok=True, mode=0o700))
        await publish(self._draft(move), file)

    async def drop(self, move: str, volume_id: VolumeId | None = None) -> None:
        def drop() -> None:
            self._draft(move).unlink(missing_ok=True)
            if volume_id is not None:
                shutil.rmtree(self._file_of(volume_id).parent, ignore_errors=True)

        await in_thread(Pool.DISKS, drop)

    async def drafts(self) -> list[str]:
        return await in_thread(
            Pool.DISKS, lambda: sorted(os.listdir(self._incoming)) if self._incoming.is_dir() else []
        )

    async def retire(self, volume_id: VolumeId, generation: int) -> None:
        await in_thread(Pool.DISKS, self._retire, self._file_of(volume_id), self._kept(volume_id, generation))

    def _retire(self, file: Path, kept: Path) -> None:
        self._retired.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileNotFoundError):
            file.rename(kept)
        shutil.rmtree(file.parent, ignore_errors=True)
        for directory in (self._retired, file.parent.parent):
            _sync_directory(directory)

    async def forget(self, volume_id: VolumeId, generation: int) -> None:
        kept = self._kept(volume_id, generation)
        await in_thread(Pool.DISKS, lambda: kept.unlink(missing_ok=True))

    def _draft(self, move: str) -> Path:
        return self._incoming / move

    def _kept(self, volume_id: VolumeId, generation: int) -> Path:
        return self._retired / f"{volume_id}.{generation}"

    def _existing(self, volume_id: VolumeId) -> Path:
        file = self._file_of(volume_id)
        if not file.exists():
            raise NotFound(f"the file of volume {volume_id} is not there")
        return file


def digest_of(file: Path) -> str:
    """BLAKE2b over the size and each piece of `DIGESTED_BYTES` that is not all zeros, with its offset."""
    total = hashlib.blake2b(digest_size=32)
    with file.open("rb", buffering=0) as opened:
        fd, size = opened.fileno(), os.fstat(opened.fileno()).st_size
        total.update(size.to_bytes(8, "big"))
        offset = -1
        for start, length in stored_pieces(fd, size):
            for each in range(start - start % DIGESTED_BYTES, start + length, DIGESTED_BYTES):
                if each <= offset:
                    continue
                offset = each
                data = _read(fd, each, DIGESTED_BYTES)
                if data != _ZEROS[: len(data)]:
                    total.update(each.to_bytes(8, "big") + hashlib.blake2b(data, digest_size=32).digest())
    return f"blake2b:{total.hexdigest()}"


def _piece(file: Path, offset: int, count: int) -> StoredPiece | None:
    with file.open("rb", buffering=0) as opened:
        fd, size = opened.fileno(), os.fstat(opened.fileno()).st_size
        for start, length in stored_pieces(fd, size, offset):
            return StoredPiece(start, _read(fd, start, min(count, length)))
    return None


def _read(fd: int, offset: int, count: int) -> bytes:
    """As many as there are."""
    parts = list[bytes]()
    while count > 0 and (part := os.pread(fd, count, offset)):
        parts.append(part)
        offset, count = offset + len(part), count - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _write(draft: Path, piece: StoredPiece) -> None:
    """Blocks of zeros stay holes."""
    fd = os.open(draft, os.O_WRONLY | os.O_CLOEXEC)
    try:
        view = memoryview(piece.data)
        for start in range(0, len(view), _BLOCK):
            block = view[start : start + _BLOCK]
            if block != _ZEROS[: len(block)]:
                _write_all(fd, block, piece.offset + start)
    finally:
        os.close(fd)


def _write_all(fd: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def _sync(file: Path) -> None:
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
