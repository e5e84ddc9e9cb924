"""A file of blocks into a repository, out of it, and checked in it. Memory and disk are a few segments of 16 MiB,
whatever the volume's size and whatever a manifest says.

A transfer that was cut short is begun again: what is in the repository is found by its name, and not sent again.
"""

import errno
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from hawker.archive.failure import ArchiveDamaged
from hawker.archive.pack import owned
from hawker.backup.format import (
    CHUNK_BYTES,
    HOLE,
    MOST_VOLUME_BYTES,
    SEGMENT_BYTES,
    BackupManifest,
    BackupSegment,
    RepositoryKeys,
    StoredChunk,
    is_zero,
    segments_in,
)
from hawker.backup.repository import BackupRepository, pack_digest
from hawker.backup.several import each_of
from hawker.errors import Unprocessable
from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.host.extents import SharedFiles
from hawker.host.unreadable import FileRange, PatientReader, joined
from hawker.value_object import ValueObject

SEGMENTS_AT_ONCE = 3
"""The most segments of one backup at once: what is read beside what is sealed and sent."""


class _Read(ValueObject, frozen=True):
    """One segment of the file: its chunks' names, and by number the bytes of those that were read and are no holes."""

    chunks: Sequence[bytes]
    data: Mapping[int, memoryview]


async def save(
    repository: BackupRepository,
    file: Path,
    backup: str,
    about: BackupManifest,
    parent: BackupManifest | None,
    *,
    doubted: bool = False,
    base: Path | None = None,
) -> BackupManifest:
    """Have the backup; `file` must not change meanwhile. `about` is its manifest but for what is measured here,
    `parent` an earlier backup of the same volume, if there is one. Where it is `doubted` that what is kept of the
    volume is whole, all of that is read, and what is not is written anew. `base` is a file that has what `parent` is a
    backup of: where `file` shares its blocks, nothing is read. Returns the manifest as it is written. Raises
    `Unavailable` while the repository is pruned, `UnreadableBytes` for what the file's disk cannot read: then there is
    no such backup."""
    async with repository.writing() as keep_on:
        return await _save(repository, file, backup, about, parent, doubted, base, keep_on)


async def _save(
    repository: BackupRepository,
    file: Path,
    backup: str,
    about: BackupManifest,
    parent: BackupManifest | None,
    doubted: bool,
    base: Path | None,
    keep_on: Callable[[], Awaitable[None]],
) -> BackupManifest:
    keys = await repository.keys(make=True)
    with ExitStack() as opened:
        source = opened.enter_context(file.open("rb"))
        size = os.fstat(source.fileno()).st_size
        if not 0 < size <= MOST_VOLUME_BYTES:
            raise Unprocessable(f"a volume of {size} bytes cannot be backed up")
        kept = None if base is None or doubted else opened.enter_context(base.open("rb"))
        before = _Before(parent, None if kept is None else SharedFiles(kept.fileno(), source.fileno()))
        reader = PatientReader(file, source.fileno())
        saving = _Saving(repository, keys, reader, size, before, doubted, keep_on)
        await each_of(range(segments_in(size)), SEGMENTS_AT_ONCE, saving.take)
    made = msgspec.structs.replace(
        about,
        size_bytes=size,
        segments=b"".join(saving.names),
        stored_bytes=min(sum(saving.filled) * CHUNK_BYTES, size),
        sent_bytes=saving.sent,
        filled=bytes(saving.filled),
    )
    await keep_on()
    await repository.put_manifest(backup, made)
    return made


class _Before:
    """What the parent has at each place. `shared` compares the file that it is a backup of with the one of now."""

    def __init__(self, parent: BackupManifest | None, shared: SharedFiles | None) -> None:
        self._names = [] if parent is None else parent.names()
        self._filled = b"" if parent is None else parent.filled
        self._size = 0 if parent is None else parent.size_bytes
        self._shared = shared

    def name(self, number: int) -> bytes:
        return self._names[number] if number < len(self._names) else HOLE

    def filled(self, number: int) -> int:
        return self._filled[number]

    def differing(self, number: int, size: int) -> Sequence[FileRange]:
        """The chunks of the segment that may not be what the parent has there, told without a look at its bytes; all
        others are."""
        whole = _segment_at(number, size)
        if self._shared is None or number >= len(self._filled):
            return (whole,)
        if whole != _segment_at(number, self._size):
            return (whole,)  # it has another number of chunks
        return joined(_chunks_of(each, whole) for each in self._shared.differing(whole.offset, whole.count))


class _Saving:
    """The segments of one file, taken in any order: `names` has those that were taken at their places, and `filled` how
    many of their chunks are no holes. Of equal ones the first is sent."""

    def __init__(
        self,
        repository: BackupRepository,
        keys: RepositoryKeys,
        source: PatientReader,
        size: int,
        before: _Before,
        doubted: bool,
        keep_on: Callable[[], Awaitable[None]],
    ) -> None:
        self.names = [HOLE] * segments_in(size)
        self.filled = [0] * segments_in(size)
        self.sent = 0
        self._repository = repository
        self._keys = keys
        self._source = source
        self._size = size
        self._before = before
        self._doubted = doubted
        self._keep_on = keep_on
        self._begun: set[bytes] = set()

    async def take(self, number: int) -> None:
        keys = self._keys
        await self._keep_on()
        old, whole = self._before.name(number), _segment_at(number, self._size)
        ranges = await in_thread(Pool.DISKS, self._before.differing, number, self._size)
        if not ranges:
            self.names[number], self.filled[number] = old, self._before.filled(number)
            return
        before = None if ranges == (whole,) else await self._kept(old, whole)
        read = await in_thread(Pool.DISKS, _read, self._source, whole, keys, ranges, before)
        name = keys.segment_name(read.chunks)
        if name == HOLE:
            return
        self.names[number] = name
        self.filled[number] = sum(chunk != HOLE for chunk in read.chunks)
        if name in self._begun or (name == old and not self._doubted):
            return
        self._begun.add(name)
        sent = await (self._mend(read, name, old) if self._doubted else self._have(read, name, old, before))
        if sent:
            self.sent += sent
            inside("sent")

    async def _kept(self, name: bytes, place: FileRange) -> BackupSegment | None:
        """What the parent has at this place; None when that cannot be read."""
        count = len(_cut(place))
        if name == HOLE:
            return BackupSegment(chunks=(None,) * count)
        with suppress(ArchiveDamaged):
            kept = await self._repository.segment(name)
            return kept if len(kept.chunks) == count else None
        return None

    async def _have(self, read: _Read, name: bytes, old: bytes, before: BackupSegment | None) -> int:
        """Bytes sent of a segment, of whose predecessor at the same place nothing is doubted."""
        if await self._repository.has_segment(name):
            return 0
        known = await self._listed(old) if before is None else _places(before)
        fresh = await _send(self._repository, self._keys, read, known)
        return fresh.sent + await self._repository.put_segment(name, fresh.segment(read.chunks))

    async def _listed(self, name: bytes) -> dict[bytes, StoredChunk]:
        """Where the chunks of a segment are; of one that cannot be read nothing is known."""
        with suppress(ArchiveDamaged):
            return {} if name == HOLE else _places(await self._repository.segment(name))
        return {}

    async def _mend(self, read: _Read, name: bytes, old: bytes) -> int:
        """Bytes sent of a segment of which no more is believed than what can be read. What its predecessor lacks and
        the volume still has, that one gets back, too: so earlier backups become whole again."""
        repository, keys = self._repository, self._keys
        there, before = await self._listed(name), await self._listed(old)
        whole = await _readable(repository, keys, there | before)
        if all(chunk in whole for chunk in there) and there.keys() >= set(read.chunks) - {HOLE}:
            return 0
        fresh = await _send(repository, keys, read, whole)
        sent = fresh.sent + await repository.put_segment(name, fresh.segment(read.chunks), anew=True)
        if old != name and not before.keys() <= whole.keys() and before.keys() <= fresh.places.keys():
            chunks = [HOLE if place is None else place.chunk for place in (await repository.segment(old)).chunks]
            sent += await repository.put_segment(old, fresh.segment(chunks), anew=True)
        return sent


def _segment_at(number: int, size: int) -> FileRange:
    """Its place in a file of `size` bytes; without any behind the end."""
    start = number * SEGMENT_BYTES
    return FileRange(start, max(0, min(size - start, SEGMENT_BYTES)))


def _chunks_of(part: FileRange, segment: FileRange) -> FileRange:
    """Those of the segment that the part is of, whole."""
    start = part.offset - part.offset % CHUNK_BYTES
    return FileRange(start, min(segment.end, -(-part.end // CHUNK_BYTES) * CHUNK_BYTES) - start)


def _cut(place: FileRange) -> list[FileRange]:
    """Into chunks."""
    return [FileRange(at, min(CHUNK_BYTES, place.end - at)) for at in range(place.offset, place.end, CHUNK_BYTES)]


def _read(
    source: PatientReader,
    segment: FileRange,
    keys: RepositoryKeys,
    ranges: Sequence[FileRange] = (),
    before: BackupSegment | None = None,
) -> _Read:
    """What is not in `ranges`, of whole chunks, is what the segment was `before`; without that, all is read."""
    chunks, data = [HOLE] * len(_cut(segment)), dict[int, memoryview]()
    if before is None:
        ranges = (segment,)
    else:
        chunks = [HOLE if place is None else place.chunk for place in before.chunks]
    for each in ranges:
        stored = _stored(source, each)
        for place in _cut(each):
            piece = stored[place.offset - each.offset :][: place.count]
            name = HOLE if is_zero(piece) else keys.chunk_name(piece)
            number = (place.offset - segment.offset) // CHUNK_BYTES
            chunks[number] = name
            if name != HOLE:
                data[number] = piece
    return _Read(chunks, data)


def _stored(source: PatientReader, place: FileRange) -> memoryview:
    """Nothing for what is one hole."""
    try:
        if os.lseek(source.fd, place.offset, os.SEEK_DATA) >= place.end:
            return memoryview(b"")
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return memoryview(b"")
    data = source.read(place.offset, place.count)
    if len(data) != place.count:
        raise OSError(errno.EIO, "the file became shorter while it was read")
    return memoryview(data)


def _places(segment: BackupSegment) -> dict[bytes, StoredChunk]:
    return {place.chunk: place for place in segment.chunks if place is not None}


class _Sent(ValueObject, frozen=True):
    """How many bytes of chunks, and where each chunk is that is known of."""

    sent: int
    places: dict[bytes, StoredChunk]

    def segment(self, chunks: Sequence[bytes]) -> BackupSegment:
        return BackupSegment(chunks=tuple(None if chunk == HOLE else self.places[chunk] for chunk in chunks))


async def _send(
    repository: BackupRepository, keys: RepositoryKeys, read: _Read, known: Mapping[bytes, StoredChunk]
) -> _Sent:
    """One pack of the chunks that are not `known`."""
    places = dict(known)
    async with repository.room() as room:
        pack = room / "pack"
        fresh, named, length = await in_thread(Pool.DISKS, _seal, pack, read, known.keys(), keys)
        if fresh:
            await repository.put_pack(pack, named)
            places |= {chunk: msgspec.structs.replace(place, pack=named) for chunk, place in fresh.items()}
            inside("packed")
    return _Sent(length, places)


async def _readable(
    repository: BackupRepository, keys: RepositoryKeys, places: Mapping[bytes, StoredChunk]
) -> dict[bytes, StoredChunk]:
    """Those that lie in packs that are as they were sent, and whose chunks can be opened."""
    by_pack: dict[bytes, list[StoredChunk]] = defaultdict(list)
    for place in places.values():
        by_pack[place.pack].append(place)
    found = dict[bytes, StoredChunk]()
    for name, listed in by_pack.items():
        with suppress(ArchiveDamaged):
            async with repository.room() as room:
                await repository.pack(name, room / "pack")
                await in_thread(Pool.DISKS, _check_chunks, room / "pack", listed, keys)
            found |= {place.chunk: place for place in listed}
    return found


def _check_chunks(pack: Path, places: Sequence[StoredChunk], keys: RepositoryKeys) -> None:
    """Of whatever length: what a chunk is, its name says."""
    with pack.open("rb") as file:
        for place in places:
            if place.length > 2 * CHUNK_BYTES:
                raise ArchiveDamaged("a chunk is not within its pack")
            keys.check_chunk(place.chunk, os.pread(file.fileno(), place.length, place.offset))


def _seal(
    pack: Path, read: _Read, known: Collection[bytes], keys: RepositoryKeys
) -> tuple[dict[bytes, StoredChunk], bytes, int]:
    """Write the chunks that are not `known`, once each: where each lies, and the pack's name and length. It need not
    be on disk: the place makes what it is given durable."""
    fresh: dict[bytes, StoredChunk] = {}
    digest, length = pack_digest(), 0
    with owned(pack) as file:
        for number, chunk in enumerate(read.chunks):
            if chunk == HOLE or chunk in fresh or chunk in known:
                continue
            sealed = keys.seal_chunk(chunk, read.data[number])
            fresh[chunk] = StoredChunk(chunk=chunk, pack=b"", offset=length, length=len(sealed))
            file.write(sealed)
            digest.update(sealed)
            length += len(sealed)
    return fresh, digest.digest(), length


async def restore(repository: BackupRepository, manifest: BackupManifest, target: Path) -> None:
    """Write `target` anew, sparse, on disk when this returns. Raises `ArchiveDamaged` when anything is not as it was
    saved; then `target` is not to be used."""
    with owned(target) as file:
        await in_thread(Pool.DISKS, os.ftruncate, file.fileno(), manifest.size_bytes)

        def put(offset: int, data: bytes) -> None:
            view = memoryview(data)
            while view:
                count = os.pwrite(file.fileno(), view, offset)
                offset, view = offset + count, view[count:]

        await _visit(repository, manifest, manifest.names(), put)
        await in_thread(Pool.DISKS, os.fsync, file.fileno())


async def compare(repository: BackupRepository, manifest: BackupManifest, file: Path) -> None:
    """Read a restored file from its disk, and compare its digests with those of the backup. Raises `ArchiveDamaged`
    where it differs, `UnreadableBytes` for what the disk cannot read."""
    keys, names = await repository.keys(), manifest.names()
    with file.open("rb") as source:
        os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if os.fstat(source.fileno()).st_size != manifest.size_bytes:
            raise ArchiveDamaged("what was restored is not as long as the volume was")
        reader = PatientReader(file, source.fileno())

        async def take(number: int) -> None:
            place = _segment_at(number, manifest.size_bytes)
            read = await in_thread(Pool.DISKS, _read, reader, place, keys)
            if names[number] != keys.segment_name(read.chunks):
                raise ArchiveDamaged(f"what was restored differs after byte {number * SEGMENT_BYTES}")

        await each_of(range(len(names)), SEGMENTS_AT_ONCE, take)


def _all() -> bool:
    return True


async def verify(
    repository: BackupRepository,
    manifest: BackupManifest,
    seen: set[tuple[bytes, int]],
    chosen: Callable[[], bool] = _all,
) -> None:
    """Read and open every byte of a backup, and compare it with its names; or of the segments that are `chosen` when
    they are come to. What is in `seen` was verified before, and what is verified here is added. Raises
    `ArchiveDamaged`."""
    last = segments_in(manifest.size_bytes) - 1
    tail = manifest.size_bytes - last * SEGMENT_BYTES
    wanted = [
        HOLE if (name, tail if number == last else SEGMENT_BYTES) in seen or not chosen() else name
        for number, name in enumerate(manifest.names())
    ]
    await _visit(repository, manifest, wanted, lambda offset, data: None)
    seen |= {(name, tail if number == last else SEGMENT_BYTES) for number, name in enumerate(wanted) if name != HOLE}


async def _visit(
    repository: BackupRepository, manifest: BackupManifest, names: Sequence[bytes], put: Callable[[int, bytes], None]
) -> None:
    keys = await repository.keys()

    async def take(number: int) -> None:
        name = names[number]
        if name == HOLE:
            return
        start = number * SEGMENT_BYTES
        length = min(SEGMENT_BYTES, manifest.size_bytes - start)
        segment = await repository.segment(name)
        if len(segment.chunks) != -(-length // CHUNK_BYTES):
            raise ArchiveDamaged(f"segment {name.hex()} does not have the chunks of its place")
        await _open(repository, keys, segment, length, lambda at, data: put(start + at, data))

    await each_of(range(len(names)), SEGMENTS_AT_ONCE, take)


async def _open(
    repository: BackupRepository,
    keys: RepositoryKeys,
    segment: BackupSegment,
    length: int,
    put: Callable[[int, bytes], None],
) -> None:
    """Pack by pack, so that few are on this host at a time."""
    by_pack: dict[bytes, list[tuple[int, StoredChunk]]] = defaultdict(list)
    for number, place in enumerate(segment.chunks):
        if place is not None:
            by_pack[place.pack].append((number * CHUNK_BYTES, place))
    for name, places in by_pack.items():
        async with repository.room() as room:
            await repository.pack(name, room / "pack")
            await in_thread(Pool.DISKS, unseal, room / "pack", places, keys, length, put)


def unseal(
    pack: Path,
    places: list[tuple[int, StoredChunk]],
    keys: RepositoryKeys,
    length: int,
    put: Callable[[int, bytes], None],
) -> None:
    with pack.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        for at, place in places:
            if not 0 <= place.offset <= place.offset + place.length <= size or place.length > 2 * CHUNK_BYTES:
                raise ArchiveDamaged("a chunk is not within its pack")
            sealed = os.pread(file.fileno(), place.length, place.offset)
            put(at, keys.open_chunk(place.chunk, sealed, min(CHUNK_BYTES, length - at)))
