"""Apps: their records, the few operations on them, and the files that were uploaded for their machines, whose configs
name them by digest.

Each app has a directory of its own, named by the app's id: a digest says nothing in another app. A file under its
digest is whole and verified. It stays while a machine's config names it here, and an hour longer.
"""

import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hawker.app import DEFAULT_ORG, app_name, network_name
from hawker.clock import Clock
from hawker.config.effective import uploads_of
from hawker.config.process_rules import MAX_UPLOAD_BYTES, MAX_UPLOADS_BYTES
from hawker.errors import BadRequest, HawkerError, NameTaken, NotFound, TooLarge, Unavailable, Unprocessable, WrongState
from hawker.fair.table import UPLOADS
from hawker.fair.threads import Pool, in_thread
from hawker.fair.turns import Turns
from hawker.ids import AppName, Digest, NodeId
from hawker.image.blobs import BlobStore, PartialBlob
from hawker.image.config import Layer
from hawker.image.failure import BadImage, disk_room, no_room
from hawker.image.reference import is_digest
from hawker.keyed_locks import KeyedLocks
from hawker.log import bind
from hawker.netpolicy.private_networks import number_of
from hawker.record.app import APPS, CARRIED_APPS, POLICIES, RELEASES, SECRET_KEYS, SECRETS, AppRecord
from hawker.record.deploy import DEPLOY_SLOTS, DEPLOYS
from hawker.record.machine import BY_APP, MACHINES
from hawker.record.volume import GOING
from hawker.secret.certificates import forget_all
from hawker.store.contract import Bucket, Reader, Store, Tx
from hawker.value_object import ValueObject
from hawker.volume.table import VolumeTable
from hawker.worker.ip_assignments import release_all


class AppTable:
    """Apps of this node. A machine needs one; deleting one that has machines is the caller's business to prevent."""

    def __init__(self, store: Store, clock: Clock, volumes: VolumeTable) -> None:
        self._store = store
        self._clock = clock
        self._volumes = volumes

    async def create(self, name: str, *, org: str | None, network: str | None, key: str | None) -> AppRecord:
        """Creates an app; the same idempotency key and name return the first app. Raises `NameTaken`."""
        checked, org, network = app_name(name), org or DEFAULT_ORG, network_name(network)
        own, number = self._clock.token_bytes(8).hex(), int.from_bytes(self._clock.token_bytes(4), "big") >> 1
        now = self._clock.now()

        def apply(tx: Tx) -> AppRecord:
            there = tx.get(APPS, checked)
            if there is None:
                record = AppRecord(
                    id=own,
                    number=number,
                    name=checked,
                    org=org,
                    network=network,
                    network_id=number_of(tx, org, network),
                    created_at=now,
                    idempotency_key=key,
                )
                tx.put(APPS, checked, record)
                return record
            if key is not None and there.idempotency_key == key:
                return there
            raise NameTaken("Validation failed: Name has already been taken")

        return await self._store.write(apply)

    def get(self, reader: Reader, name: str) -> AppRecord:
        record = reader.get(APPS, name)
        if record is None:
            raise NotFound("app not found")
        return record

    def list(self, org: str | None) -> list[AppRecord]:
        return [record for _, record in self._store.scan(APPS) if org in (None, "", record.org)]

    def machine_count(self, reader: Reader, name: str) -> int:
        return reader.count(BY_APP, f"{name}/")

    def volume_count(self, reader: Reader, name: AppName) -> int:
        return self._volumes.count(reader, name)

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Deletes an app. Raises `WrongState` while the app has machines, or volumes that are not to go: `force` lets
        go of those, and they can be undeleted for a while."""

        def apply(tx: Tx) -> None:
            self.get(tx, name)
            count = self.machine_count(tx, name)
            if count:
                raise WrongState(f"app '{name}' still has {count} machines: destroy them first")
            volumes = [record for record in self._volumes.of_app(tx, AppName(name)) if record.state not in GOING]
            if volumes and not force:
                raise WrongState(f"app '{name}' still has {len(volumes)} volumes: destroy them first")
            for volume in volumes:
                self._volumes.let_go(tx, volume)
            tx.delete(APPS, name)
            release_all(tx, name)
            forget_all(tx, name)
            _forget(tx, POLICIES, name)
            _forget(tx, RELEASES, name)
            _forget(tx, DEPLOYS, name)
            _forget(tx, DEPLOY_SLOTS, name)
            _forget(tx, SECRETS, name)
            _forget(tx, SECRET_KEYS, name)
            tx.delete(CARRIED_APPS, name)

        await self._store.write(apply)


def _forget(tx: Tx, bucket: Bucket[Any], app: str) -> None:
    for key, _ in list(tx.scan(bucket, f"{app}/")):
        tx.delete(bucket, key)


MOST_FILES = 64
MOST_BYTES = MAX_UPLOADS_BYTES
GRACE_S = 3600.0
SWEEP_S = 600.0
_BATCH = 1 << 20
_APP_ID = re.compile("[0-9A-Za-z_-]{1,64}")

_log = bind("hawker.files")


class FilesOfApp(ValueObject, frozen=True):
    """The app whose files are meant."""

    id: str
    """The app's id: its secrets are sealed for it, so that a later app of that name cannot open them."""
    name: AppName


class FileNeighbours(Protocol):
    """The other nodes of a fleet, as sources of an app's files."""

    def holders(self, app: AppName) -> Sequence[NodeId]:
        """Living nodes that know the app."""

    async def piece(self, node: NodeId, app_id: str, digest: Digest, offset: int, count: int) -> bytes:
        """At most `count` bytes of a file from `offset` on, as `node` has it. Raises `NotFound` where that node does
        not have the file."""


class AppFiles:
    """`room` says how many bytes of the disk may be taken now."""

    def __init__(self, root: Path, store: Store, clock: Clock, room: Callable[[], int]) -> None:
        self._root = root
        self._store = store
        self._clock = clock
        self._room = room
        self._neighbours: FileNeighbours | None = None
        self._turns = Turns(UPLOADS)
        self._fetching = KeyedLocks[tuple[str, str]]()

    def meet(self, neighbours: FileNeighbours) -> None:
        """Has files come from other nodes, too, from now on."""
        self._neighbours = neighbours

    def path(self, app_id: str, digest: str) -> Path:
        return self._blobs(app_id).path(Digest(digest))

    def bytes_of(self, app_id: str) -> int:
        """The bytes that the app's files take of the disk."""
        return sum(self._stored(app_id).values())

    def size_of(self, app_id: str, digest: str) -> int | None:
        """The size of a file in bytes; None when it is not here. Whoever asks is about to name it: its last hour begins
        anew."""
        try:
            os.utime(self.path(app_id, _checked(digest)))
            return self.path(app_id, digest).stat().st_size
        except FileNotFoundError:
            return None

    def piece(self, app_id: str, digest: str, offset: int, count: int) -> bytes:
        """A piece of an app's file that is here. Blocks. Raises `NotFound`, `Unprocessable`."""
        if not _APP_ID.fullmatch(app_id):
            raise Unprocessable(f"{app_id!r:.100} is no app's id")
        try:
            return self._blobs(app_id).piece(Digest(_checked(digest)), offset, count)
        except FileNotFoundError as error:
            raise NotFound(f"file {digest} is not here") from error

    async def receive(self, app_id: str, digest: str, size: int, data: AsyncIterator[bytes]) -> None:
        """Take an upload of an app: it is durable and verified when this returns; nothing is kept of what goes wrong.
        One upload of an app at a time. Raises `TooLarge`, `Unprocessable`, `NoRoom`, `OverShare`."""
        _checked(digest)
        if not 1 <= size <= MAX_UPLOAD_BYTES:
            raise TooLarge(f"a file has 1 to {MAX_UPLOAD_BYTES} bytes, not {size}")
        async with self._turns.hold(app_id):
            self._make_room(app_id, digest, size)
            await self._keep(app_id, _blob(digest, size), data)

    async def check(self, app: FilesOfApp, wanted: Mapping[str, int]) -> None:
        """Whether this node has the files, or can have them. Raises `Unprocessable` for a file that no node has."""
        for digest, size in wanted.items():
            if self.size_of(app.id, digest) != size and await self._holder(app, digest) is None:
                raise Unprocessable(
                    f"config.files: nothing with the digest {digest} and {size} bytes was uploaded for app '{app.name}'"
                )

    async def fetch(self, app: FilesOfApp, wanted: Mapping[str, int]) -> dict[str, str]:
        """The paths of the files by digest; those that are not here come from other nodes first. Raises `NotFound`,
        `Unavailable`, `NoRoom`."""
        for digest, size in wanted.items():
            async with self._fetching.hold((app.id, digest)):
                if self.size_of(app.id, digest) != size:
                    await self._fetch(app, _blob(digest, size))
        return {digest: str(self.path(app.id, digest)) for digest in wanted}

    async def serve(self) -> None:
        """Sweeps now and then, for as long as the node serves."""
        while True:
            try:
                await in_thread(Pool.IMAGES, self.sweep)
            except OSError as error:
                _log.error("uploaded files are not swept", extra={"error": str(error)})
            await self._clock.sleep(SWEEP_S)

    def sweep(self) -> None:
        """Remove what no machine's config has named for an hour, and what is left of uploads that were cut short."""
        before = self._clock.now() - GRACE_S
        apps = [entry.name for entry in os.scandir(self._root)] if self._root.exists() else []
        named = self._named(self._store) if apps else {}
        for app_id in apps:
            blobs = self._blobs(app_id)
            for digest, about in list(blobs.all()):
                if digest not in named.get(app_id, ()) and about.st_mtime < before:
                    blobs.remove(digest)
            blobs.drop_partials(before, frozenset())

    def _named(self, reader: Reader) -> dict[str, set[str]]:
        """By the ids of apps; also what a machine would fall back to."""
        found: dict[str, set[str]] = {}
        for _, record in reader.scan(MACHINES):
            app = reader.get(APPS, record.app)
            versions = [record.config, *([record.previous.config] if record.previous else [])]
            if app is not None:
                found.setdefault(app.id, set()).update(*(uploads_of(config) for config in versions))
        return found

    def _make_room(self, app_id: str, digest: str, size: int) -> None:
        """Raises `TooLarge` when the app has its share already, `NoRoom` when the disk has none."""
        others = {each: bytes for each, bytes in self._stored(app_id).items() if each != digest}
        if len(others) >= MOST_FILES or sum(others.values()) + size > MOST_BYTES:
            raise TooLarge(
                f"an app may have {MOST_FILES} uploaded files of {MOST_BYTES} bytes in all, and has {len(others)} of"
                f" {sum(others.values())}; what no machine's config names goes after an hour"
            )
        self._check_disk(size)

    def _check_disk(self, size: int) -> None:
        missing = size - self._room()
        if missing > 0:
            raise no_room("taking in a file", missing)

    async def _keep(self, app_id: str, blob: Layer, data: AsyncIterator[bytes]) -> None:
        blobs = self._blobs(app_id)
        with disk_room("taking in a file"):
            await in_thread(Pool.IMAGES, blobs.open)
            part = PartialBlob(blobs, blob, "upload")
            try:
                part.restart()
                await _write(part, data)
                if not part.is_whole:
                    raise Unprocessable(f"{part.size} of {blob.size} bytes came")
                await in_thread(Pool.IMAGES, part.finish)
            except BadImage as error:
                raise Unprocessable(f"the upload is not {blob.digest} of {blob.size} bytes") from error
            finally:
                part.discard()  # nothing is there under this name once it is kept
                part.close()

    async def _fetch(self, app: FilesOfApp, blob: Layer) -> None:
        node = await self._holder(app, blob.digest)
        if node is None:
            raise NotFound(f"file {blob.digest} of app '{app.name}' is on no node that can be asked; upload it again")
        self._check_disk(blob.size)
        try:
            await self._keep(app.id, blob, self._pieces(node, app.id, blob))
        except Unprocessable as error:
            raise Unavailable(f"node {node}: {error}") from error

    async def _pieces(self, node: NodeId, app_id: str, blob: Layer) -> AsyncIterator[bytes]:
        assert self._neighbours is not None
        offset = 0
        while offset < blob.size:
            piece = await self._neighbours.piece(node, app_id, blob.digest, offset, blob.size - offset)
            if not piece:
                return
            yield piece
            offset += len(piece)

    async def _holder(self, app: FilesOfApp, digest: str) -> NodeId | None:
        """The first that has it. Raises `Unavailable` when only such as cannot be asked may have it."""
        silent: HawkerError | None = None
        for node in () if self._neighbours is None else self._neighbours.holders(app.name):
            try:
                if await self._neighbours.piece(node, app.id, Digest(digest), 0, 1):  # type: ignore[union-attr]  # not None: there are holders
                    return node
            except (NotFound, BadRequest):
                continue
            except HawkerError as error:
                silent = error
        if silent is not None:
            raise Unavailable(f"file {digest} may be on a node that cannot be asked: {silent}")
        return None

    def _stored(self, app_id: str) -> dict[Digest, int]:
        try:
            return {digest: about.st_size for digest, about in self._blobs(app_id).all()}
        except FileNotFoundError:
            return {}

    def _blobs(self, app_id: str) -> BlobStore:
        return BlobStore(self._root / app_id)


async def _write(part: PartialBlob, data: AsyncIterator[bytes]) -> None:
    batch = bytearray()
    async for chunk in data:
        batch += chunk
        if len(batch) >= _BATCH:
            await in_thread(Pool.IMAGES, part.write, bytes(batch))
            batch.clear()
    if batch:
        await in_thread(Pool.IMAGES, part.write, bytes(batch))


def _checked(digest: str) -> str:
    """Raises `Unprocessable`."""
    if not is_digest(digest):
        raise Unprocessable("digest: sha256: and 64 lowercase hex characters are wanted")
    return digest


def _blob(digest: str, size: int) -> Layer:
    return Layer(digest=Digest(digest), size=size, media_type="application/octet-stream")
