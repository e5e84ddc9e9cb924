"""The bytes of a volume that goes to another node. At its source its file is read piece by piece, also while a machine
writes to it, and what was written since is told; at its destination a draft is filled, which counts for nothing until
it is adopted.
"""

import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import anyio

from hawker.errors import NotFound
from hawker.fair.threads import Pool, in_thread
from hawker.host import ext4
from hawker.host.changed_blocks import BLOCK_BYTES, BlockRange, ChangedBlocks, close_left_over, track
from hawker.host.mount import is_mounted
from hawker.host.sparse import allocated_bytes, publish, stored_pieces
from hawker.ids import NodeId, VolumeId
from hawker.value_object import ValueObject
from hawker.volume.moved_blocks import Digests, digests_of, read_all, read_blocks, write_all, write_blocks

_ZEROS = bytes(BLOCK_BYTES)


class StoredPiece(ValueObject, frozen=True):
    """`data` lies at `offset`, and before it there is nothing since where was asked from."""

    offset: int
    data: bytes


class BlockChanges(ValueObject, frozen=True):
    """Which blocks changed since a moment; None when that is not known, so that any may have. `mark` is the moment of
    the answer, for the next question, "" when nobody notes what changes."""

    mark: str
    spans: tuple[BlockRange, ...] | None


class MovedFiles(Protocol):
    """Every call is idempotent. Raises `OSError` for what the host refuses, `NotFound` for what is not there."""

    async def stored_bytes(self, volume_id: VolumeId) -> int:
        """What the volume's file takes of the disk."""

    async def flush(self, volume_id: VolumeId) -> None:
        """What was written to the volume's file is on disk."""

    async def piece(self, volume_id: VolumeId, offset: int, count: int) -> StoredPiece | None:
        """The first stored bytes from `offset` on, `count` at most; None when there are no more."""

    async def trim(self, volume_id: VolumeId, start: int) -> int | None:
        """What was deleted in some GiB of its mounted file system takes no room any more; where to go on."""

    async def settle(self, volume_id: VolumeId) -> None:
        """What was written to its mounted file system is in its file."""

    async def watch(self, volume_id: VolumeId, name: str) -> None:
        """From now on note which blocks change, where the host can; `name` is of this watch alone."""

    async def changed(self, volume_id: VolumeId, since: str) -> BlockChanges:
        """Since the mark of an earlier answer."""

    async def unwatch(self, volume_id: VolumeId) -> None:
        """Note nothing any more."""

    async def end_watches(self, open: Collection[VolumeId]) -> None:
        """Those of other volumes than `open`, also what an earlier daemon left."""

    async def digests(self, volume_id: VolumeId, spans: Sequence[BlockRange]) -> Digests:
        """Of the first of these blocks, in order."""

    async def blocks(self, volume_id: VolumeId, spans: Sequence[BlockRange]) -> Mapping[int, bytes]:
        """What is in these blocks; those of zeros are left out."""

    async def begin(self, move: str, size_bytes: int, upto: int) -> None:
        """Have a draft of this size that has nothing beyond `upto`."""

    async def write(self, move: str, piece: StoredPiece) -> None: ...

    async def sync(self, move: str) -> None:
        """What was written is on disk."""

    async def digests_of_draft(self, move: str, spans: Sequence[BlockRange]) -> Digests: ...

    async def overwrite(self, move: str, spans: Sequence[BlockRange], blocks: Mapping[int, bytes]) -> None:
        """In the draft these blocks are so, and zeros where there is none."""

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
    """Keeps `MovedFiles`. `directory` is that of the volumes of `node`; `file_of` is where a volume's blocks are."""

    def __init__(self, node: NodeId, directory: Path, file_of: Callable[[VolumeId], Path]) -> None:
        self._node = node
        self._incoming = directory / ".incoming"
        self._retired = directory / ".retired"
        self._file_of = file_of
        self._watched: dict[VolumeId, tuple[str, ChangedBlocks]] = {}
        self._looked = False
        self._rings = anyio.Lock()  # a ring that is being made is not yet among those that stay

    async def stored_bytes(self, volume_id: VolumeId) -> int:
        return await in_thread(Pool.DISKS, allocated_bytes, self._existing(volume_id))

    async def flush(self, volume_id: VolumeId) -> None:
        await in_thread(Pool.DISKS, _sync, self._existing(volume_id))

    async def piece(self, volume_id: VolumeId, offset: int, count: int) -> StoredPiece | None:
        return await in_thread(Pool.DISKS, _piece, self._existing(volume_id), offset, count)

    async def trim(self, volume_id: VolumeId, start: int) -> int | None:
        target = self._existing(volume_id).parent / "mounted"
        return await in_thread(Pool.DISKS, ext4.trim, target, start) if is_mounted(target) else None

    async def settle(self, volume_id: VolumeId) -> None:
        target = self._existing(volume_id).parent / "mounted"
        if is_mounted(target):
            await in_thread(Pool.DISKS, ext4.sync_filesystem, target)

    async def watch(self, volume_id: VolumeId, name: str) -> None:
        file = self._existing(volume_id)

        def begin() -> ChangedBlocks | None:
            device = ext4.device_of(file)
            return None if device is None else track(device, file, self._node, volume_id)

        async with self._rings:
            await self.unwatch(volume_id)
            tracker = await in_thread(Pool.DISKS, begin)
            if tracker is not None:
                self._watched[volume_id] = (name, tracker)

    async def changed(self, volume_id: VolumeId, since: str) -> BlockChanges:
        if volume_id not in self._watched:
            return BlockChanges("", None)
        name, tracker = self._watched[volume_id]
        asked, _, mark = since.partition("/")
        known = asked == name and mark.isdecimal()
        found = await in_thread(Pool.DISKS, tracker.since, int(mark) if known else 0)
        if found is None:
            return BlockChanges("", None)
        return BlockChanges(f"{name}/{found[0]}", found[1] if known else None)

    async def end_watches(self, open: Collection[VolumeId]) -> None:
        async with self._rings:
            for volume_id in [each for each in self._watched if each not in open]:
                await self.unwatch(volume_id)
            if not self._looked:
                await in_thread(Pool.DISKS, close_left_over, self._node, frozenset(self._watched))
                self._looked = True

    async def unwatch(self, volume_id: VolumeId) -> None:
        watched = self._watched.pop(volume_id, None)
        if watched is not None:
            await in_thread(Pool.DISKS, watched[1].close)

    async def digests(self, volume_id: VolumeId, spans: Sequence[BlockRange]) -> Digests:
        return await in_thread(Pool.DISKS, digests_of, self._existing(volume_id), spans)

    async def blocks(self, volume_id: VolumeId, spans: Sequence[BlockRange]) -> Mapping[int, bytes]:
        return await in_thread(Pool.DISKS, read_blocks, self._existing(volume_id), spans)

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

    async def digests_of_draft(self, move: str, spans: Sequence[BlockRange]) -> Digests:
        return await in_thread(Pool.DISKS, digests_of, self._draft(move), spans)

    async def overwrite(self, move: str, spans: Sequence[BlockRange], blocks: Mapping[int, bytes]) -> None:
        await in_thread(Pool.DISKS, write_blocks, self._draft(move), spans, blocks)

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
        await self.unwatch(volume_id)
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


def _piece(file: Path, offset: int, count: int) -> StoredPiece | None:
    with file.open("rb", buffering=0) as opened:
        fd, size = opened.fileno(), os.fstat(opened.fileno()).st_size
        for start, length in stored_pieces(fd, size, offset):
            return StoredPiece(start, read_all(fd, start, min(count, length)))
    return None


def _write(draft: Path, piece: StoredPiece) -> None:
    """Blocks of zeros stay holes."""
    fd = os.open(draft, os.O_WRONLY | os.O_CLOEXEC)
    try:
        view = memoryview(piece.data)
        for start in range(0, len(view), BLOCK_BYTES):
            block = view[start : start + BLOCK_BYTES]
            if block != _ZEROS[: len(block)]:
                write_all(fd, block, piece.offset + start)
    finally:
        os.close(fd)


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
