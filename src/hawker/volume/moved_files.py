"""The bytes of what goes to another node: a volume's file, and the root filesystem that a machine keeps. At its source
a file is read piece by piece, also while a machine writes to it, and what was written since is told; at its destination
a draft is filled, which counts for nothing until it is adopted.
"""

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeAlias

import anyio

from hawker.errors import NotFound, NotServed, Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.host import ext4
from hawker.host.changed_blocks import BlockRange, close_left_over, track
from hawker.host.cloned_blocks import ClonedBlocks, remove_clones
from hawker.host.disk_blocks import track_on_disk
from hawker.host.extents import tells_places
from hawker.host.mount import is_mounted
from hawker.host.sparse import allocated_bytes, draft_file, publish, stored_pieces
from hawker.host.unreadable import FileRange, PatientReader
from hawker.ids import NodeId, is_snapshot_id
from hawker.value_object import ValueObject
from hawker.volume.moved_blocks import Digests, digests_of, read_blocks, write_all, write_blocks

BRIDGED_BYTES = 32 << 10
"""The longest hole in bytes that a piece goes on over. It travels as zeros: another question would take longer."""

_PAGE_BYTES = 4096
_ZEROS = bytes(_PAGE_BYTES)
_TRIES = 2  # watches that are asked one after the other

Lost: TypeAlias = Sequence[FileRange] | None
"""The places of a file that are noted as lost, in order, and are zeros from then on; None where no loss is taken."""


class StoredPiece(ValueObject, frozen=True):
    """`data` lies at `offset`, and before it there is nothing since where was asked from."""

    offset: int
    data: bytes


class BlockChanges(ValueObject, frozen=True):
    """The blocks that changed since a moment; None when that is not known, so that any may have. `mark` is the moment
    of the answer, for the next question, "" when nobody notes what changes."""

    mark: str
    spans: tuple[BlockRange, ...] | None


class MovedFile(ValueObject, frozen=True):
    """The file of the volume or snapshot `id`; with a `layer`, that of the layer which the machine `id` keeps under
    this name; with `memory`, the file that its driver calls so of the suspended machine `id`."""

    id: str
    layer: str = ""
    memory: str = ""

    @property
    def said(self) -> str:
        """The name of the file, for people."""
        if self.memory:
            return f"memory of machine {self.id}"
        return f"root filesystem of machine {self.id}" if self.layer else f"volume {self.id}"


def draft_of(move: str, file: MovedFile) -> str:
    """The name of its draft, of which the move is what comes before the first dot; that of a snapshot is its id."""
    if is_snapshot_id(file.id):
        return file.id
    if file.memory:
        return f"{move}.memory.{file.memory.replace('/', '.')}"
    return f"{move}.root" if file.layer else move


class FilePlace(ValueObject, frozen=True):
    """The place of a file, and the place where it is mounted while it is."""

    file: Path
    mounted: Path


class MovedFiles(Protocol):
    """Every call is idempotent. Raises `OSError` for what the host refuses, `UnreadableBytes` for what its disk cannot
    read, `NotFound` for what is not there. A `draft` has a name by `draft_of`."""

    async def size_bytes(self, file: MovedFile) -> int | None:
        """The size of the file in bytes; None when it is not there. Raises `NotServed` for a kept layer that is no
        file."""

    def path(self, file: MovedFile) -> str:
        """The path at which the file is, or is to be."""

    async def stored_bytes(self, file: MovedFile) -> int:
        """The bytes that the file takes of the disk."""

    async def flush(self, file: MovedFile) -> None:
        """Brings what was written to the file to the disk. Raises `Unavailable` while its file system is in use
        still."""

    async def piece(self, file: MovedFile, offset: int, count: int, lost: Lost = None) -> StoredPiece | None:
        """The first stored bytes from `offset` on, with what follows after short holes, which are zeros; `count` bytes
        at most. None when there are no more."""

    async def trim(self, file: MovedFile, start: int) -> int | None:
        """Frees what was deleted in some GiB of the file's mounted file system, from `start` on, so that it takes no
        room any more; returns where to go on."""

    async def settle(self, file: MovedFile) -> None:
        """Brings what was written to the file's mounted file system into the file."""

    async def watch(self, file: MovedFile, name: str) -> None:
        """Notes from now on which blocks change, where the host can; `name` is of this watch alone."""

    async def changed(self, file: MovedFile, since: str) -> BlockChanges:
        """Since the mark of an earlier answer. A watch that missed something is begun anew, without earlier marks."""

    async def keep_watch(self, file: MovedFile) -> None:
        """Notes what changed until now: the kernel remembers little, so this is to be called often while a file is
        watched."""

    async def unwatch(self, file: MovedFile) -> None:
        """Note nothing any more."""

    async def end_watches(self, open: Collection[str]) -> None:
        """Ends the watches of files of other ids than `open`, also what an earlier daemon left."""

    async def digests(self, file: MovedFile, spans: Sequence[BlockRange], lost: Lost = None) -> Digests:
        """The digests of the first of these blocks, in order."""

    async def blocks(self, file: MovedFile, spans: Sequence[BlockRange], lost: Lost = None) -> Mapping[int, bytes]:
        """The bytes of these blocks; those of zeros are left out."""

    async def begin(self, draft: str, size_bytes: int, upto: int) -> None:
        """Have a draft of this size that has nothing beyond `upto`."""

    async def write(self, draft: str, piece: StoredPiece) -> None: ...

    async def sync(self, draft: str) -> None:
        """Brings what was written to the draft to the disk."""

    async def digests_of_draft(self, draft: str, spans: Sequence[BlockRange]) -> Digests: ...

    async def overwrite(self, draft: str, spans: Sequence[BlockRange], blocks: Mapping[int, bytes]) -> None:
        """Writes these blocks of the draft, and zeros where there is none."""

    async def adopt(self, draft: str, file: MovedFile) -> None:
        """The draft is this file from now on."""

    async def drop(self, draft: str, adopted: MovedFile | None = None) -> None:
        """The draft, also if it was adopted as this file already."""

    async def drafts(self) -> list[str]:
        """The names of those that there are."""

    async def retire(self, file: MovedFile, generation: int) -> None:
        """The file is not the owner's any more, and is kept aside."""

    async def restore(self, file: MovedFile, generation: int) -> None:
        """A file that was retired is where it was. Raises `NotFound` when it is at neither place."""

    async def forget(self, file: MovedFile, generation: int) -> None:
        """Remove a file that was retired."""


class Tracker(Protocol):
    """The one that tells the blocks of one file that change, see `ChangedBlocks`."""

    def since(self, mark: int) -> tuple[int, tuple[BlockRange, ...]] | None: ...
    def empty(self) -> bool: ...
    def close(self) -> None: ...


class HostMovedFiles:
    """Keeps `MovedFiles`. `directory` is that of the volumes of `node`, which keeps `floor_bytes` of the disk free;
    `place_of` says where a file is. What changes in a file is told by its loop device; where it has none, by the disk
    below its file system (ext4), or by clones of it (where files share blocks)."""

    def __init__(
        self, node: NodeId, directory: Path, place_of: Callable[[MovedFile], FilePlace], floor_bytes: int = 0
    ) -> None:
        self._node = node
        self._incoming = directory / ".incoming"
        self._clones = directory / ".watched"
        self._floor_bytes = floor_bytes
        self._retired = directory / ".retired"
        self._place_of = place_of
        self._watched: dict[str, tuple[str, Tracker]] = {}
        self._looked = False
        self._rings = anyio.Lock()  # a ring that is being made is not yet among those that stay

    async def size_bytes(self, file: MovedFile) -> int | None:
        return await in_thread(Pool.DISKS, self._size_bytes, file)

    def _size_bytes(self, file: MovedFile) -> int | None:
        place = self._place_of(file)
        if place.file.exists():
            return place.file.stat().st_size
        if file.layer and (place.mounted / "upper").exists():
            raise NotServed(
                f"the root filesystem that machine {file.id} keeps is a directory, from when `machine_disk_mib` was 0,"
                " and only one with a size is moved: with another `machine_disk_mib`, the next fresh one has a size"
            )
        return None

    def path(self, file: MovedFile) -> str:
        return str(self._place_of(file).file)

    async def stored_bytes(self, file: MovedFile) -> int:
        return await in_thread(Pool.DISKS, allocated_bytes, self._existing(file))

    async def flush(self, file: MovedFile) -> None:
        await in_thread(Pool.DISKS, self._flush, file)

    def _flush(self, file: MovedFile) -> None:
        """A mount may outlive its unmount for a moment, in a namespace that is on its way out. Until it is gone, its
        file system may write to the file what the destination would not hear of."""
        path = self._existing(file)
        if ext4.device_of(path) is not None:
            raise Unavailable(f"the {file.said} is in use still")
        _sync(path)

    async def piece(self, file: MovedFile, offset: int, count: int, lost: Lost = None) -> StoredPiece | None:
        return await in_thread(Pool.DISKS, _piece, self._existing(file), offset, count, lost)

    async def trim(self, file: MovedFile, start: int) -> int | None:
        self._existing(file)
        target = self._place_of(file).mounted
        return await in_thread(Pool.DISKS, ext4.trim, target, start) if is_mounted(target) else None

    async def settle(self, file: MovedFile) -> None:
        self._existing(file)
        target = self._place_of(file).mounted
        if is_mounted(target):
            await in_thread(Pool.DISKS, ext4.sync_filesystem, target)

    async def watch(self, file: MovedFile, name: str) -> None:
        async with self._rings:
            await self._watch(file, name)

    async def _watch(self, file: MovedFile, name: str) -> None:
        path = self._existing(file)

        def begin() -> Tracker | None:
            device = ext4.device_of(path)
            if device is not None:
                ring = track(device, path, self._node, file.id)
            else:
                ring = track_on_disk(path, self._node, file.id)
            if ring is not None or not tells_places(path):
                return ring
            return ClonedBlocks(path, self._clones / file.id, self._floor_bytes)

        await self._unwatch(file.id)
        tracker = await in_thread(Pool.DISKS, begin)
        if tracker is not None:
            self._watched[file.id] = (name, tracker)

    async def changed(self, file: MovedFile, since: str) -> BlockChanges:
        asked, _, mark = since.partition("/")
        for _ in range(_TRIES):
            watched = self._watched.get(file.id)
            if watched is None:
                break
            name, tracker = watched
            known = asked == name and mark.isdecimal()
            found = await in_thread(Pool.DISKS, tracker.since, int(mark) if known else 0)
            if found is not None:
                return BlockChanges(f"{name}/{found[0]}", found[1] if known else None)
            await self._watch_anew(file, watched)
        return BlockChanges("", None)

    async def keep_watch(self, file: MovedFile) -> None:
        watched = self._watched.get(file.id)
        if watched is not None and not await in_thread(Pool.DISKS, watched[1].empty):
            await self._watch_anew(file, watched)

    async def _watch_anew(self, file: MovedFile, missed: tuple[str, Tracker]) -> None:
        """Unless somebody has since. A name is never had twice: a mark of the old watch is none of the new one's."""
        async with self._rings:
            if self._watched.get(file.id) == missed:
                await self._watch(file, f"{missed[0]}+")

    async def end_watches(self, open: Collection[str]) -> None:
        async with self._rings:
            for id in [each for each in self._watched if each not in open]:
                await self._unwatch(id)
            if not self._looked:
                await in_thread(Pool.DISKS, self._clear, frozenset(self._watched))
                self._looked = True

    def _clear(self, but: Collection[str]) -> None:
        close_left_over(self._node, but)
        if self._clones.is_dir():
            for left in [each for each in self._clones.iterdir() if each.name not in but]:
                remove_clones(left)

    async def unwatch(self, file: MovedFile) -> None:
        await self._unwatch(file.id)

    async def _unwatch(self, id: str) -> None:
        watched = self._watched.pop(id, None)
        if watched is not None:
            await in_thread(Pool.DISKS, watched[1].close)

    async def digests(self, file: MovedFile, spans: Sequence[BlockRange], lost: Lost = None) -> Digests:
        return await in_thread(Pool.DISKS, digests_of, self._existing(file), spans, lost)

    async def blocks(self, file: MovedFile, spans: Sequence[BlockRange], lost: Lost = None) -> Mapping[int, bytes]:
        return await in_thread(Pool.DISKS, read_blocks, self._existing(file), spans, lost)

    async def begin(self, draft: str, size_bytes: int, upto: int) -> None:
        await in_thread(Pool.DISKS, self._begin, self._draft(draft), size_bytes, upto)

    def _begin(self, draft: Path, size_bytes: int, upto: int) -> None:
        draft.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, min(upto, size_bytes))
            os.ftruncate(fd, size_bytes)
        finally:
            os.close(fd)

    async def write(self, draft: str, piece: StoredPiece) -> None:
        await in_thread(Pool.DISKS, _write, self._draft(draft), piece)

    async def sync(self, draft: str) -> None:
        await in_thread(Pool.DISKS, _sync, self._draft(draft))

    async def digests_of_draft(self, draft: str, spans: Sequence[BlockRange]) -> Digests:
        return await in_thread(Pool.DISKS, digests_of, self._draft(draft), spans)

    async def overwrite(self, draft: str, spans: Sequence[BlockRange], blocks: Mapping[int, bytes]) -> None:
        await in_thread(Pool.DISKS, write_blocks, self._draft(draft), spans, blocks)

    async def adopt(self, draft: str, file: MovedFile) -> None:
        path = self._place_of(file).file
        await in_thread(Pool.DISKS, lambda: path.parent.mkdir(parents=True, exist_ok=True, mode=0o700))
        try:
            await publish(self._draft(draft), path)
        except FileNotFoundError:
            if not file.memory:
                raise  # of a memory that was put in place before a machine was made: see `arrive`

    async def drop(self, draft: str, adopted: MovedFile | None = None) -> None:
        def drop() -> None:
            self._draft(draft).unlink(missing_ok=True)
            if adopted is not None and not adopted.memory:
                shutil.rmtree(self._place_of(adopted).file.parent, ignore_errors=True)

        await in_thread(Pool.DISKS, drop)

    async def drafts(self) -> list[str]:
        return await in_thread(
            Pool.DISKS, lambda: sorted(os.listdir(self._incoming)) if self._incoming.is_dir() else []
        )

    async def retire(self, file: MovedFile, generation: int) -> None:
        await self.unwatch(file)
        alone = not file.memory  # others of a memory are beside it
        await in_thread(Pool.DISKS, self._retire, self._place_of(file).file, self._kept(file, generation), alone)

    def _retire(self, file: Path, kept: Path, alone: bool) -> None:
        self._retired.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileNotFoundError):
            file.rename(kept)
        if alone:
            shutil.rmtree(file.parent, ignore_errors=True)
        for directory in (self._retired, file.parent.parent):
            if directory.is_dir():  # that of a machine goes with it
                _sync_directory(directory)

    async def restore(self, file: MovedFile, generation: int) -> None:
        kept, path = self._kept(file, generation), self._place_of(file).file
        if await in_thread(Pool.DISKS, kept.exists):
            await in_thread(Pool.DISKS, lambda: path.parent.mkdir(parents=True, exist_ok=True, mode=0o700))
            await publish(kept, path)
        self._existing(file)

    async def forget(self, file: MovedFile, generation: int) -> None:
        kept = self._kept(file, generation)
        await in_thread(Pool.DISKS, lambda: kept.unlink(missing_ok=True))

    def _draft(self, draft: str) -> Path:
        """That of a snapshot lies where it is to be, and goes with it."""
        return draft_file(self._place_of(MovedFile(draft)).file) if is_snapshot_id(draft) else self._incoming / draft

    def _kept(self, file: MovedFile, generation: int) -> Path:
        part = f".{file.memory.replace('/', '.')}" if file.memory else ""
        return self._retired / f"{file.id}.{generation}{part}"

    def _existing(self, file: MovedFile) -> Path:
        path = self._place_of(file).file
        if not path.exists():
            what = file.said if file.layer or file.memory else f"file of {file.said}"
            raise NotFound(f"the {what} is not there")
        return path


def _piece(file: Path, offset: int, count: int, lost: Lost) -> StoredPiece | None:
    with file.open("rb", buffering=0) as opened:
        fd, size = opened.fileno(), os.fstat(opened.fileno()).st_size
        begin, end = size, 0
        for start, length in stored_pieces(fd, size, offset):
            if end and start - end > BRIDGED_BYTES:
                break
            begin, end = min(begin, start), start + length
            if end - begin >= count:
                break
        if not end:
            return None
        return StoredPiece(begin, PatientReader(file, fd, lost).read_some(begin, min(count, end - begin)))


def _write(draft: Path, piece: StoredPiece) -> None:
    """Pages of zeros stay holes."""
    fd = os.open(draft, os.O_WRONLY | os.O_CLOEXEC)
    try:
        view = memoryview(piece.data)
        for begin, end in _stored_runs(piece.data):
            write_all(fd, view[begin:end], piece.offset + begin)
    finally:
        os.close(fd)


def _stored_runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Where bytes other than zeros begin and end, to the page."""
    begin = None
    for at in range(0, len(data), _PAGE_BYTES):
        page = data[at : at + _PAGE_BYTES]
        if page != _ZEROS[: len(page)]:
            begin = at if begin is None else begin
        elif begin is not None:
            yield begin, at
            begin = None
    if begin is not None:
        yield begin, len(data)


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
