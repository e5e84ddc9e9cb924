"""Removes images that nothing uses, and the blobs and leftovers that no image needs."""

from collections.abc import Callable, Set

import msgspec

from hawker.clock import Clock
from hawker.fair.threads import Pool, in_thread
from hawker.ids import Digest
from hawker.image.blobs import BlobReaders, BlobStore, remove_file
from hawker.image.block_image import Blocks
from hawker.image.config import Image
from hawker.image.image_index import ImageIndex
from hawker.keyed_locks import KeyedLocks

GRACE_S = 600.0  # an unreferenced blob may belong to a pull whose next step has not begun


class PruneReport(msgspec.Struct, frozen=True, kw_only=True):
    removed: tuple[Digest, ...]
    freed_bytes: int
    """The bytes of blobs, block images and parts of downloads that were removed."""


class Pruner:
    """`building` are the locks that builds hold; `fetching` are the blobs that are downloaded, and `pinned` is what
    pulls under way need."""

    def __init__(
        self,
        *,
        blobs: BlobStore,
        readers: BlobReaders,
        blocks: Blocks,
        index: ImageIndex,
        building: KeyedLocks[Digest],
        fetching: Callable[[], frozenset[Digest]],
        pinned: Callable[[Digest], bool],
        clock: Clock,
    ) -> None:
        self._blobs = blobs
        self._readers = readers
        self._blocks = blocks
        self._index = index
        self._building = building
        self._fetching = fetching
        self._pinned = pinned
        self._clock = clock

    async def prune(
        self, in_use: Callable[[], Set[Digest]], unused_for_s: float, only: Set[Digest] | None = None
    ) -> PruneReport:
        """Remove images that are not in use, or `only` these of them, and blobs that no image needs. What was used
        within `unused_for_s` is spared, and so is an image in the middle of a pull. `in_use` is asked right before each
        removal, with nothing else running in between."""
        removed: list[Digest] = []
        loose: set[Digest] = set()
        freed = 0
        for image in self._index.images():
            if only is not None and image.digest not in only:
                continue
            async with self._building.hold(image.digest):
                if self._may_go(image, in_use(), unused_for_s):
                    self._index.remove(image.digest)
                    freed += await in_thread(Pool.IMAGES, self._remove_block, image.digest)
                    removed.append(image.digest)
                    loose |= image.blobs
        return PruneReport(removed=tuple(removed), freed_bytes=freed + await self.sweep(GRACE_S, loose))

    def _may_go(self, image: Image, in_use: Set[Digest], unused_for_s: float) -> bool:
        if image.digest in in_use or self._pinned(image.digest) or self._index.image(image.digest) is None:
            return False
        return self._index.used_at(image.digest) <= self._clock.now() - unused_for_s

    def _remove_block(self, digest: Digest) -> int:
        block = self._blocks.find(digest)
        return remove_file(block) if block else 0

    async def sweep(self, grace_s: float, loose: Set[Digest] = frozenset()) -> int:
        """Drop what no image needs and no pull works on: block images, blobs in `loose`, and other blobs and partial
        downloads that are older than `grace_s`. Gives the bytes freed. While a file in the index is damaged nothing is
        dropped: it may be what that image needs."""
        if not self._index.is_whole:
            return 0
        before = self._clock.now() - grace_s
        freed = await self._sweep_blobs(before, loose)
        for digest, block in await in_thread(Pool.IMAGES, self._blocks.all):
            async with self._building.hold(digest):
                if self._index.image(digest) is None and not self._pinned(digest):
                    freed += await in_thread(Pool.IMAGES, remove_file, block)
        return freed + await in_thread(Pool.IMAGES, self._blobs.drop_partials, before, self._fetching())

    async def _sweep_blobs(self, before: float, loose: Set[Digest]) -> int:
        freed = 0
        for digest, found in await in_thread(Pool.IMAGES, lambda: list(self._blobs.all())):
            if digest in loose or found.st_mtime < before:
                freed += await self._remove_blob(digest)
        return freed

    async def _remove_blob(self, digest: Digest) -> int:
        """No effect on a blob that an image or a pull needs. A download may take as long as its registry likes, and an
        image may come while others are removed: nothing is waited for between the question and the end of the blob."""
        if self._index.needs(digest) or self._pinned(digest) or digest in self._fetching():
            return 0
        aside = self._blobs.set_aside(digest)
        self._readers.forget(digest)
        return await in_thread(Pool.IMAGES, remove_file, aside)
