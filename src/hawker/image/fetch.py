"""Brings an image's blobs into the store: those that are missing, several at once, each by one download at a time."""

import os
from collections.abc import Sequence

import anyio
from anyio.to_thread import run_sync

from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.ids import Digest
from hawker.image.blobs import BlobStore
from hawker.image.config import Layer
from hawker.image.download import download
from hawker.image.failure import no_room
from hawker.image.locks import KeyedLocks
from hawker.image.progress import Report
from hawker.image.source import Source


class Fetcher:
    """Of one node: `parallel` bounds the downloads of all images together."""

    def __init__(self, blobs: BlobStore, clock: Clock, parallel: int) -> None:
        self.locks: KeyedLocks[Digest] = KeyedLocks()
        self._blobs = blobs
        self._clock = clock
        self._slots = anyio.Semaphore(parallel)

    async def fetch(self, source: Source, wanted: Sequence[Layer], report: Report) -> None:
        """Raises the first error; the other downloads are given up then, and resumed by the next call."""
        await run_sync(self._check_room, wanted)
        failures: list[HawkerError | OSError] = []
        async with anyio.create_task_group() as group:

            async def one(blob: Layer) -> None:
                try:
                    await self._one(source, blob, report)
                except (HawkerError, OSError) as error:
                    failures.append(error)
                    group.cancel_scope.cancel()

            for blob in {blob.digest: blob for blob in wanted}.values():
                group.start_soon(one, blob)
        if failures:
            raise failures[0]

    async def _one(self, source: Source, blob: Layer, report: Report) -> None:
        async with self.locks.hold(blob.digest), self._slots:
            await download(source, blob, self._blobs, self._clock, report)

    def _check_room(self, wanted: Sequence[Layer]) -> None:
        missing = sum(blob.size for blob in wanted if not self._blobs.has(blob.digest))
        found = os.statvfs(self._blobs.folder)
        free = found.f_bavail * found.f_frsize
        if missing > free:
            raise no_room(f"downloading {missing} bytes", missing - free)
