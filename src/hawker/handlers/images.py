"""Answers about images, and about organizations' logins at registries. A pull that a user asks for is done in the call,
with its progress; one that a machine needs is a run. Both share what is already under way.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Coroutine
from functools import partial
from typing import Any, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.image import (
    DELETE_LOGIN,
    HAND_BLOB,
    IMPORT_IMAGE,
    LIST_IMAGES,
    LIST_LOGINS,
    PIECE_BYTES,
    PRUNE_IMAGES,
    PULL_IMAGE,
    PUSH_IMAGE,
    PUT_LOGIN,
    RESOLVE_IMAGE,
    BlobParams,
    ImageInfo,
    ImageList,
    ImportQuery,
    LoginRequest,
    PieceQuery,
    PruneAnswer,
    PruneRequest,
    PullEvent,
    PullRequest,
    PushRequest,
    RegistryLogin,
    RegistryLoginList,
    RegistryParams,
    ResolvedImage,
    ResolveImageRequest,
)
from hawker.api.contract.org import OrgParams
from hawker.api.handlers import answers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.app import DEFAULT_ORG
from hawker.auth.image_names import check_image_names, check_registry_name
from hawker.config import MachineConfig
from hawker.errors import Unprocessable, one_error
from hawker.fair.table import HANDOVERS
from hawker.fair.turns import Turns
from hawker.ids import Digest, NodeId
from hawker.image.blobs import EVERYBODY, ImageReader
from hawker.image.cache import ImageCache
from hawker.image.config import Image
from hawker.image.progress import PullProgress
from hawker.image.reference import RegistryReference, is_digest, parse
from hawker.image.registry import Credentials
from hawker.log import Secret
from hawker.permission import Action, Attempt
from hawker.record.app import org_of
from hawker.record.machine import MACHINES
from hawker.record.org import LoginRecord
from hawker.secret.registry_logins import RegistryLogins, registry_name
from hawker.store.contract import Store
from hawker.worker.images import Versioned, digests_of
from hawker.worker.lifecycle.host_adapters import Rootfs

_QUEUED_EVENTS = 256
_Events: TypeAlias = MemoryObjectSendStream[PullEvent]


class ImageHandlers:
    """`registries` are those that the settings list: everybody may name them."""

    def __init__(
        self,
        store: Store,
        images: ImageCache,
        rootfs: Rootfs | None,
        logins: RegistryLogins,
        registries: Container[str] = (),
    ) -> None:
        self._store = store
        self._rootfs = rootfs
        self._images = images
        self._logins = logins
        self._registries = registries
        self._handovers = Turns(HANDOVERS)

    @answers(LIST_IMAGES)
    async def list_(self, call: Call[NoParams, NoQuery, None]) -> ImageList:
        records = (record for _, record in self._store.scan(MACHINES))
        users = Counter(digest for record in records for digest in digests_of(record))
        return ImageList(images=tuple(self._info(image, users[image.digest]) for image in self._images.list()))

    @answers(RESOLVE_IMAGE)
    async def resolve(self, call: Call[AppParams, NoQuery, ResolveImageRequest]) -> ResolvedImage:
        name = call.body.reference
        check_image_names(call.grant, MachineConfig(image=name), self._registries)
        org = org_of(self._store, call.params.app_name)
        found = await self._images.resolve(name, await self._logins.for_image(org, name), ImageReader(org))
        return ResolvedImage(
            reference=found.reference,
            registry=found.registry,
            repository=found.repository,
            tag=found.tag,
            digest=found.digest,
            size_bytes=found.size_bytes,
        )

    @answers(PULL_IMAGE)
    async def pull(self, call: Call[NoParams, NoQuery, PullRequest]) -> AsyncIterator[PullEvent]:
        return self._events(partial(self._pull_into, call.body, call.caller))

    @answers(PUSH_IMAGE)
    async def push(self, call: Call[NoParams, NoQuery, PushRequest]) -> AsyncIterator[PullEvent]:
        return self._events(partial(self._push_into, call.body))

    @answers(PRUNE_IMAGES)
    async def prune(self, call: Call[NoParams, NoQuery, PruneRequest]) -> PruneAnswer:
        only = None if call.body.digests is None else frozenset(map(Digest, call.body.digests))
        report = await self._images.prune(self._in_use, call.body.unused_for_s or 0.0, only)
        for digest in report.removed:
            if self._rootfs is not None:
                await self._rootfs.forget_image(digest)
        return PruneAnswer(removed=tuple(report.removed), freed_bytes=report.freed_bytes)

    @answers(IMPORT_IMAGE)
    async def import_(self, call: Call[NoParams, ImportQuery, None], data: AsyncIterator[bytes]) -> ImageInfo:
        reader = ImageReader(call.query.org) if call.query.org else EVERYBODY
        return self._info(await self._images.import_archive(data, call.query.reference, reader), 0)

    @answers(HAND_BLOB)
    async def hand(self, call: Call[BlobParams, PieceQuery, None]) -> bytes:
        """The name under which another node asks is the node's."""
        if not is_digest(call.params.digest):
            raise Unprocessable("digest: sha256: and 64 lowercase hex characters are wanted")
        offset, count = max(0, call.query.offset), min(max(0, call.query.count), PIECE_BYTES)
        async with self._handovers.hold(f"node {call.share}"):
            org = ImageReader(call.query.org)
            return await self._images.blob_piece(Digest(call.params.digest), offset, count, org)

    def _in_use(self) -> frozenset[Digest]:
        """Whatever a machine runs from, will run from, or would fall back to."""
        records = [record for _, record in self._store.scan(MACHINES)]
        versions: list[Versioned] = [*records, *(record.previous for record in records if record.previous)]
        return frozenset(digest for version in versions for digest in digests_of(version))

    async def _events(self, work: Callable[[_Events], Coroutine[Any, Any, None]]) -> AsyncIterator[PullEvent]:
        send, receive = anyio.create_memory_object_stream[PullEvent](_QUEUED_EVENTS)
        with one_error():
            async with anyio.create_task_group() as tasks, receive:
                tasks.start_soon(work, send)
                async for event in receive:
                    yield event

    async def _pull_into(self, wanted: PullRequest, by: str, send: _Events) -> None:
        """A login that was given and found good is kept, so that machines of the image can be ordered."""
        org = wanted.org or (org_of(self._store, wanted.app) if wanted.app else "") or DEFAULT_ORG
        given = Credentials(wanted.username, Secret(wanted.password or "")) if wanted.username else None
        credentials = given or await self._logins.for_image(org, wanted.reference)
        async with send:
            image = await self._images.pull(wanted.reference, credentials, partial(_report, send), ImageReader(org))
            if given is not None and isinstance(reference := parse(wanted.reference), RegistryReference):
                await self._logins.put(org, reference.registry, given, by)
            await send.send(_done(image))

    async def _push_into(self, wanted: PushRequest, send: _Events) -> None:
        credentials = await self._logins.for_image(wanted.org or DEFAULT_ORG, wanted.to or wanted.reference)
        async with send:
            image = await self._images.push(wanted.reference, wanted.to, credentials, partial(_report, send))
            await send.send(_done(image))

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


def _report(send: _Events, progress: PullProgress) -> None:
    """A client too slow for its progress misses some of it."""
    if send.statistics().current_buffer_used < _QUEUED_EVENTS - 1:
        send.send_nowait(
            PullEvent(
                stage=progress.stage.value,
                layer=progress.layer,
                done_bytes=progress.done_bytes,
                total_bytes=progress.total_bytes,
            )
        )


def _done(image: Image) -> PullEvent:
    return PullEvent(stage="done", done_bytes=image.size_bytes, total_bytes=image.size_bytes, digest=image.digest)


class RegistryHandlers:
    """`registries` are those that the settings list: everybody may have them asked."""

    def __init__(
        self, node: NodeId, logins: RegistryLogins, images: ImageCache, registries: Container[str] = ()
    ) -> None:
        self._node = node
        self._logins = logins
        self._images = images
        self._registries = registries

    @answers(LIST_LOGINS)
    async def list_(self, call: Call[OrgParams, NoQuery, None]) -> RegistryLoginList:
        call.grant.check(Attempt(Action.READ, org=call.params.org_slug))
        found = await self._logins.all(call.params.org_slug)
        return RegistryLoginList(logins=tuple(self._shown(record, nodes) for record, nodes in found))

    @answers(PUT_LOGIN)
    async def put(self, call: Call[RegistryParams, NoQuery, LoginRequest]) -> RegistryLogin:
        org, body = call.params.org_slug, call.body
        call.grant.check(Attempt(Action.WRITE, org=org))
        registry = registry_name(call.params.registry)
        credentials = Credentials(body.username, Secret(body.password), body.realm or "")
        self._logins.check(credentials)
        if not body.unchecked:
            check_registry_name(call.grant, registry, self._registries)
            await self._images.check_login(registry, credentials)
        return self._shown(await self._logins.put(org, registry, credentials, call.caller), ())

    @answers(DELETE_LOGIN)
    async def delete(self, call: Call[RegistryParams, NoQuery, None]) -> None:
        call.grant.check(Attempt(Action.WRITE, org=call.params.org_slug))
        await self._logins.give_up(call.params.org_slug, registry_name(call.params.registry), call.caller)

    def _shown(self, record: LoginRecord, nodes: tuple[NodeId, ...]) -> RegistryLogin:
        return RegistryLogin(
            registry=record.registry,
            username=record.username,
            at=instant(record.at),
            by=record.by,
            nodes=nodes or (self._node,),
        )
