"""Brings one blob from a source into the store: resumes, hashes while it streams, tries again.

Hashing and disk work are in threads, in batches.
"""

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import anyio
from msgspec.structs import replace

from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.fair.table import DOWNLOADS
from hawker.fair.threads import Pool, in_thread, whose
from hawker.fair.turns import Turns
from hawker.ids import Digest
from hawker.image.blobs import EVERYBODY, ArrivingBlob, BlobReaders, BlobStore, ImageReader, PartialBlob
from hawker.image.config import Layer
from hawker.image.failure import BadImage, disk_room, no_room
from hawker.image.progress import PullProgress, PullStage, Report
from hawker.image.source import ImageSource, Piece
from hawker.image.transport import TryLater, persist
from hawker.keyed_locks import KeyedLocks
from hawker.value_object import ValueObject

_BATCH = 1 << 20
_NODE = "the node"  # which has no more slots than anybody
_PROGRESS_WORTH = 1 << 16


class Arrivals(ValueObject, frozen=True):
    """The place where blobs go for one organization: `org` may have what it has, and `reader` is whose the source's
    bytes are."""

    store: BlobStore
    readers: BlobReaders
    org: ImageReader
    reader: ImageReader

    def has(self, digest: Digest) -> bool:
        return self.store.has(digest) and self.readers.may_read(self.org, (digest,))

    @property
    def owner(self) -> str:
        """The owner of partial files: no other organization goes on with them, nor does this one for other readers."""
        return self.reader if self.reader == self.org else f"{self.reader} for {self.org}"


async def download(
    source: ImageSource,
    blob: Layer,
    to: Arrivals,
    clock: Clock,
    report: Report,
    arriving: ArrivingBlob | None = None,
) -> bool:
    """Whether the blob came; no effect when it is there for its organization. Raises `BadImage` when the content is
    wrong, `NoRoom` when the disk is full, `Unavailable` when the source cannot be had. Only in the last case is a
    partial file kept; the next call resumes. `arriving` hears how far it is."""
    arriving = arriving or ArrivingBlob(blob.size)
    if await in_thread(Pool.IMAGES, to.has, blob.digest):
        arriving.whole(to.store.path(blob.digest))
        report(PullProgress(PullStage.DOWNLOADING, blob.digest, blob.size, blob.size))
        return False
    doing = f"failed to download {blob.digest}"
    resumed = await persist(clock, doing, lambda: _attempt(source, blob, to, report, arriving, fresh=False))
    if not resumed:
        await persist(clock, doing, lambda: _attempt(source, blob, to, report, arriving, fresh=True))
    await to.readers.add(to.reader, blob.digest)
    return True


async def _attempt(
    source: ImageSource, blob: Layer, to: Arrivals, report: Report, arriving: ArrivingBlob, *, fresh: bool
) -> bool:
    """One request. False: an earlier try's bytes were wrong, so begin again."""
    with disk_room(f"downloading {blob.digest}"):
        partial = await in_thread(Pool.IMAGES, PartialBlob, to.store, blob, to.owner, arriving)
        try:
            await in_thread(Pool.IMAGES, partial.restart if fresh else partial.recall)
            return await _complete(source, blob, partial, report)
        except OSError:
            partial.discard()
            raise
        finally:
            partial.close()


async def _complete(source: ImageSource, blob: Layer, partial: PartialBlob, report: Report) -> bool:
    kept = partial.size
    await _fill(source, blob, partial, report)
    try:
        await in_thread(Pool.IMAGES, partial.finish)
    except BadImage:
        if kept:
            return False
        raise
    return True


async def _fill(source: ImageSource, blob: Layer, partial: PartialBlob, report: Report) -> None:
    """Raises `TryLater` unless the blob is whole. Progress is what goes beyond the start of this try, also when the
    source made it begin again: so a source that always breaks off at one point is given up."""
    had = partial.size
    if partial.is_whole:
        return
    reason, after_s = "", None
    try:
        async with source.blob(blob, partial.size) as piece:
            await _take(piece, blob, partial, report)
    except TryLater as error:
        reason, after_s = str(error), error.after_s
    if reason or not partial.is_whole:
        reason = reason or f"it ended after {partial.size} of {blob.size} bytes"
        raise TryLater(reason, after_s=after_s, progressed=partial.size >= had + _PROGRESS_WORTH)


async def _take(piece: Piece, blob: Layer, partial: PartialBlob, report: Report) -> None:
    if piece.offset != partial.size:
        await in_thread(Pool.IMAGES, partial.restart)
    batch = bytearray()
    async for chunk in piece.chunks:
        batch += chunk
        if len(batch) >= _BATCH:
            await _write(blob, partial, batch, report)
    await _write(blob, partial, batch, report)


async def _write(blob: Layer, partial: PartialBlob, batch: bytearray, report: Report) -> None:
    await in_thread(Pool.IMAGES, partial.write, bytes(batch))
    batch.clear()
    report(PullProgress(PullStage.DOWNLOADING, blob.digest, partial.size, blob.size))


class ImageFetcher:
    """Brings images' blobs into a store; at most `parallel` downloads of an organization at once, and one of a blob.
    Two organizations download the same blob beside each other, since nobody waits for a registry that another one
    named, nor for another one's turns: whoever is whole last is kept."""

    def __init__(self, clock: Clock, parallel: int) -> None:
        self._locks: KeyedLocks[tuple[Digest, ImageReader]] = KeyedLocks()
        self._clock = clock
        self._slots = Turns(replace(DOWNLOADS, each=parallel))

    def busy(self) -> frozenset[Digest]:
        """The blobs that somebody downloads or is about to."""
        return frozenset(digest for digest, _ in self._locks.busy())

    async def fetch(
        self,
        source: ImageSource,
        wanted: Sequence[Layer],
        to: Arrivals,
        report: Report,
        arriving: Mapping[Digest, ArrivingBlob] = MappingProxyType({}),
    ) -> None:
        """Fetches the blobs that are not here. Raises the first error; the other downloads are given up then, and
        resumed by the next call. `arriving` are those that somebody reads while they come."""
        await in_thread(Pool.IMAGES, _check_room, wanted, to)
        failures: list[HawkerError | OSError] = []
        async with anyio.create_task_group() as group:

            async def one(blob: Layer) -> None:
                try:
                    await self._one(source, blob, to, report, arriving.get(blob.digest))
                except (HawkerError, OSError) as error:
                    failures.append(error)
                    group.cancel_scope.cancel()

            for blob in {blob.digest: blob for blob in wanted}.values():
                group.start_soon(one, blob)
        if failures:
            raise failures[0]

    async def _one(
        self, source: ImageSource, blob: Layer, to: Arrivals, report: Report, arriving: ArrivingBlob | None
    ) -> None:
        async with self._locks.hold((blob.digest, to.org)), self._slots.hold(whose() or _NODE):
            came = await download(source, blob, to, self._clock, report, arriving)
            if came and to.reader == EVERYBODY and self._is_alone(blob.digest):  # who asks from now on has the blob
                await in_thread(Pool.IMAGES, to.store.drop_partials_of, blob.digest)

    def _is_alone(self, digest: Digest) -> bool:
        return sum(each == digest for each, _ in self._locks.busy()) == 1


def _check_room(wanted: Sequence[Layer], to: Arrivals) -> None:
    missing = sum(blob.size for blob in wanted if not to.has(blob.digest))
    found = os.statvfs(to.store.folder)
    free = found.f_bavail * found.f_frsize
    if missing > free:
        raise no_room(f"downloading {missing} bytes", missing - free)
