"""Answers about images. A pull that a user asks for is done in the call, with its progress; one that a machine needs is
a run. Both share what is already under way."""

from collections import Counter
from collections.abc import AsyncIterator

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from hawker.api.contract.body import instant
from hawker.api.contract.image import (
    IMPORT_IMAGE,
    LIST_IMAGES,
    PRUNE_IMAGES,
    PULL_IMAGE,
    ImageInfo,
    ImageList,
    ImportQuery,
    PruneAnswer,
    PruneRequest,
    PullEvent,
    PullRequest,
)
from hawker.api.handlers import answers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.ids import Digest
from hawker.image.cache import ImageCache
from hawker.image.config import Image
from hawker.image.progress import PullProgress
from hawker.image.registry_auth import Credentials
from hawker.log import Secret
from hawker.record.machine import MACHINES
from hawker.store.contract import Store
from hawker.worker.handlers.leaf import one_error
from hawker.worker.images import Versioned, digests_of
from hawker.worker.lifecycle.host_adapters import Rootfs

_QUEUED_EVENTS = 256


class ImageHandlers:
    def __init__(self, store: Store, images: ImageCache, rootfs: Rootfs | None) -> None:
        self._store = store
        self._rootfs = rootfs
        self._images = images

    @answers(LIST_IMAGES)
    async def list_(self, call: Call[NoParams, NoQuery, None]) -> ImageList:
        records = (record for _, record in self._store.scan(MACHINES))
        users = Counter(digest for record in records for digest in digests_of(record))
        return ImageList(images=tuple(self._info(image, users[image.digest]) for image in self._images.list()))

    @answers(PULL_IMAGE)
    async def pull(self, call: Call[NoParams, NoQuery, PullRequest]) -> AsyncIterator[PullEvent]:
        return self._pull_events(call.body)

    @answers(PRUNE_IMAGES)
    async def prune(self, call: Call[NoParams, NoQuery, PruneRequest]) -> PruneAnswer:
        report = await self._images.prune(self._in_use, call.body.unused_for_s)
        for digest in report.removed:
            if self._rootfs is not None:
                await self._rootfs.forget_image(digest)
        return PruneAnswer(removed=tuple(report.removed), freed_bytes=report.freed_bytes)

    @answers(IMPORT_IMAGE)
    async def import_(self, call: Call[NoParams, ImportQuery, None], data: AsyncIterator[bytes]) -> ImageInfo:
        return self._info(await self._images.import_archive(data, call.query.reference), 0)

    def _in_use(self) -> frozenset[Digest]:
        """Whatever a machine runs from, will run from, or would fall back to."""
        records = [record for _, record in self._store.scan(MACHINES)]
        versions: list[Versioned] = [*records, *(record.previous for record in records if record.previous)]
        return frozenset(digest for version in versions for digest in digests_of(version))

    async def _pull_events(self, wanted: PullRequest) -> AsyncIterator[PullEvent]:
        send, receive = anyio.create_memory_object_stream[PullEvent](_QUEUED_EVENTS)
        with one_error():
            async with anyio.create_task_group() as tasks, receive:
                tasks.start_soon(self._pull_into, send, wanted)
                async for event in receive:
                    yield event

    async def _pull_into(self, send: MemoryObjectSendStream[PullEvent], wanted: PullRequest) -> None:
        credentials = Credentials(wanted.username, Secret(wanted.password or "")) if wanted.username else None

        def report(progress: PullProgress) -> None:
            """A client too slow for its progress misses some of it."""
            event = PullEvent(
                stage=progress.stage.value,
                layer=progress.layer,
                done_bytes=progress.done_bytes,
                total_bytes=progress.total_bytes,
            )
            if send.statistics().current_buffer_used < _QUEUED_EVENTS - 1:
                send.send_nowait(event)

        async with send:
            image = await self._images.pull(wanted.reference, credentials, report)
            await send.send(
                PullEvent(stage="done", done_bytes=image.size_bytes, total_bytes=image.size_bytes, digest=image.digest)
            )

    def _info(self, image: Image, machines: int) -> ImageInfo:
        return ImageInfo(
            digest=image.digest,
            references=self._images.names_of(image.digest),
            size_bytes=image.size_bytes,
            layers=len(image.layers),
            machines=machines,
            pulled_at=instant(image.created_at),
            used_at=instant(self._images.used_at(image.digest)),
        )
