"""The images of one node: from a name to a block image, each step repeatable, everything under one directory.

blobs/ (compressed, by digest, shared), partial/ (downloads under way), rootfs/ (one block image per image), images/ and
names/ (what is complete, and what it is called), staging/ (emptied at boot).

Invariant: a file under its final name is whole. A crash costs at most the step it interrupts.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import aiohttp
from anyio.to_thread import run_sync

from hawker.clock import Clock
from hawker.errors import NotFound, TooLarge, Unavailable
from hawker.failpoint import inside
from hawker.guest import hello_path
from hawker.ids import Digest
from hawker.image.blobs import BlobStore
from hawker.image.blocks import Blocks
from hawker.image.config import Image, Layer, ReadConfig, read_config
from hawker.image.download import ImageFetcher
from hawker.image.failure import BadImage, disk_room
from hawker.image.image_index import ImageIndex, ImageNames
from hawker.image.limits import ImageLimits, ImageSettings
from hawker.image.locks import KeyedLocks
from hawker.image.manifest import Manifest, Platform, compression_of, read_manifest
from hawker.image.platform import check_platform, host_platform
from hawker.image.progress import PullProgress, PullStage, Report, silent
from hawker.image.prune import Pruner, PruneReport
from hawker.image.reference import DigestReference, HelloReference, Reference, RegistryReference, parse
from hawker.image.registry_auth import Credentials
from hawker.image.resolve import Resolved, find_manifest, named
from hawker.image.source import ImageSource
from hawker.image.sources import ImageSources
from hawker.image.staging import Staging, area
from hawker.image.transport import RegistryTransport, new_session
from hawker.image.unpack import LayerBlob

_BATCH = 1 << 20


class ImageContents:
    """What the blob store has of an image: its manifest, its config, and how much is missing. Blocking, but quick."""

    def __init__(self, blobs: BlobStore, limits: ImageLimits) -> None:
        self._blobs = blobs
        self._limits = limits

    def manifest(self, digest: Digest) -> Manifest:
        """Raises `Unavailable` when it is gone."""
        try:
            found = read_manifest(self._blobs.read(digest), self._limits)
        except FileNotFoundError as error:
            raise Unavailable(f"the manifest {digest} is not here any more; resolve it again") from error
        assert isinstance(found, Manifest), "only manifests of images are kept"
        return found

    def config(self, manifest: Manifest) -> ReadConfig:
        return read_config(self.raw_config(manifest))

    def raw_config(self, manifest: Manifest) -> bytes:
        return self._blobs.read(manifest.config.digest)

    def check_config(self, manifest: Manifest, platform: Platform) -> None:
        """Before the layers are fetched for nothing. Raises `BadImage`."""
        config = self.config(manifest)
        check_platform(config.os, config.architecture, platform)
        if len(config.diff_ids) != len(manifest.layers):
            raise BadImage(f"the image has {len(manifest.layers)} layers, its config lists {len(config.diff_ids)}")

    def missing_bytes(self, manifest: Manifest) -> int:
        """Packed; a layer that the image has twice counts once."""
        blobs = {blob.digest: blob for blob in (manifest.config, *manifest.layers)}.values()
        return sum(blob.size for blob in blobs if not self._blobs.has(blob.digest))

    def layers(self, manifest: Manifest) -> list[LayerBlob]:
        return [
            LayerBlob(layer.digest, self._blobs.path(layer.digest), compression_of(layer)) for layer in manifest.layers
        ]


class Pins:
    """Digests that somebody needs now and that no pruning may take."""

    def __init__(self) -> None:
        self._counts: dict[Digest, int] = {}

    def has(self, digest: Digest) -> bool:
        return digest in self._counts

    @contextmanager
    def hold(self, *digests: Digest) -> Iterator[None]:
        for digest in digests:
            self._counts[digest] = self._counts.get(digest, 0) + 1
        try:
            yield
        finally:
            for digest in digests:
                self._counts[digest] -= 1
                if not self._counts[digest]:
                    del self._counts[digest]


async def receive(stream: AsyncIterator[bytes], file: Path, most: int) -> None:
    """Take in an archive that a client uploads, up to `most` bytes. Raises `TooLarge` and `NoRoom`; the caller removes
    the file."""
    received = 0
    batch = bytearray()
    with disk_room("taking in an upload"), file.open("wb") as sink:
        async for chunk in stream:
            received += len(chunk)
            if received > most:
                raise TooLarge(f"the archive is over {most} bytes")
            batch += chunk
            if len(batch) >= _BATCH:
                await run_sync(sink.write, bytes(batch))
                batch.clear()
        await run_sync(sink.write, bytes(batch))


def archive_name(given: str | None, own: str) -> RegistryReference | None:
    """What to call an imported image: the name given, else its own if that is one. Raises `BadImage` for a bad name."""
    if given:
        reference = parse(given)
        if not isinstance(reference, RegistryReference) or reference.digest:
            raise BadImage(f"an imported image needs a name like app:v1, not {given[:200]!r}")
        return reference
    try:
        found = parse(own) if own else None
    except BadImage:
        return None
    return found if isinstance(found, RegistryReference) and not found.digest else None


class ImageCache:
    """`tmp` is a tmpfs to stage in; without it the host's shared memory is used, if it is one."""

    def __init__(
        self,
        root: Path,
        settings: ImageSettings,
        clock: Clock,
        tmp: Path | None = None,
        hello: Callable[[], Path] = hello_path,
    ) -> None:
        self.root = root
        self._settings = settings
        self._clock = clock
        self._hello = hello
        self._platform = host_platform()
        self._staging = Staging(root / "staging", tmp)
        self._blobs = BlobStore(root)
        self._blocks = Blocks(root, settings.block, self._staging, settings.limits)
        self._index = ImageIndex(root)
        self._fetcher = ImageFetcher(self._blobs, clock, settings.parallel_downloads)
        self._building: KeyedLocks[Digest] = KeyedLocks()
        self._contents = ImageContents(self._blobs, settings.limits)
        self._naming = ImageNames(self._index)
        self._pins = Pins()
        self._session: aiohttp.ClientSession | None = None
        self._sample: Resolved | None = None
        self._pruner = Pruner(
            blobs=self._blobs,
            blocks=self._blocks,
            index=self._index,
            building=self._building,
            fetching=self._fetcher.locks,
            pinned=self._pins.has,
            clock=clock,
        )

    async def open(self) -> None:
        """Repair what a crash left half made. Raises `CannotStart` when a tool is missing."""
        await run_sync(self._open_files)
        self._session = new_session()
        transport = RegistryTransport(self._session, self._settings.insecure_hosts)
        self._sources = ImageSources(self._settings, transport, self._clock, self._hello, self._staging.disk)
        await self._pruner.sweep(self._settings.partial_age_s)

    def _open_files(self) -> None:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._staging.clear()
        for part in (self._blobs, self._index, self._blocks):
            part.open()

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    # From a name to a block image.

    async def pull(
        self, reference: Reference | str, credentials: Credentials | None = None, progress: Report | None = None
    ) -> Image:
        """Resolve, fetch, build. Raises `BadImage`, `Unavailable`, `NoRoom`, `NotServed`, `NotFound`."""
        report = progress or silent
        report(PullProgress(PullStage.RESOLVING))
        resolved = await self.resolve(reference, credentials)
        with self.pin(resolved.digest):
            await self.fetch(resolved, credentials, report)
            image = await self.build(resolved, report)
        report(PullProgress(PullStage.DONE, done_bytes=image.size_bytes, total_bytes=image.size_bytes))
        return image

    async def resolve(self, reference: Reference | str, credentials: Credentials | None = None) -> Resolved:
        """What the reference means now; its manifest is kept. When its registry does not answer, what it meant last,
        if that is still here."""
        wanted = parse(reference) if isinstance(reference, str) else reference
        if isinstance(wanted, DigestReference) or self._naming.is_imported(wanted):
            return self._resolved_here(wanted)
        if isinstance(wanted, HelloReference) and self._sample is not None and self._complete(self._sample.digest):
            return self._sample  # it comes with the program, and is the same for as long as this lives
        try:
            async with self._sources.open(wanted, credentials) as source:
                return await self._resolve_from(source, wanted)
        except Unavailable:
            if self._find(wanted) is None:
                raise
            return self._resolved_here(wanted)

    async def _resolve_from(self, source: ImageSource, wanted: Reference, *, imported: bool = False) -> Resolved:
        pinned = wanted.digest if isinstance(wanted, RegistryReference) else None
        content = await find_manifest(source, pinned, self._platform, self._settings.limits)
        with disk_room("keeping a manifest"):
            digest = await run_sync(self._blobs.put, content)
        resolved = named(wanted, digest, self._contents.manifest(digest).size_bytes, imported=imported)
        await self._naming.resolved(resolved)
        if isinstance(wanted, HelloReference):
            self._sample = resolved
        return resolved

    def _resolved_here(self, wanted: Reference) -> Resolved:
        image = self._find(wanted)
        if image is None:
            raise NotFound(f"image {wanted} is not on this node")
        return named(wanted, image.digest, image.size_bytes, imported=self._naming.is_imported(wanted))

    async def fetch(
        self, resolved: Resolved, credentials: Credentials | None = None, progress: Report | None = None
    ) -> None:
        """Have every blob of the image here; none is needed when the image is complete. Raises what a pull raises, and
        `NotFound`."""
        if self._complete(resolved.digest):
            return
        if resolved.imported:
            raise NotFound(f"image {resolved.reference} was uploaded and is not here any more; import it again")
        async with self._sources.open(parse(resolved.reference), credentials) as source:
            await self._fetch_from(source, resolved, progress or silent)

    async def _fetch_from(self, source: ImageSource, resolved: Resolved, report: Report) -> None:
        await self._ensure_manifest(source, resolved.digest)
        manifest = self._contents.manifest(resolved.digest)
        present = max(0, manifest.size_bytes - self._contents.missing_bytes(manifest))
        report(PullProgress(PullStage.DOWNLOADING, done_bytes=present, total_bytes=manifest.size_bytes))
        with self.pin(resolved.digest, *manifest.blobs):
            await self._fetcher.fetch(source, [manifest.config], silent)
            self._contents.check_config(manifest, self._platform)
            await self._fetcher.fetch(source, manifest.layers, report)

    async def _ensure_manifest(self, source: ImageSource, digest: Digest) -> None:
        """It was kept when the reference was resolved, which may be long ago."""
        if not self._blobs.has(digest):
            content = await find_manifest(source, digest, self._platform, self._settings.limits)
            with disk_room("keeping a manifest"):
                await run_sync(self._blobs.put, content)

    async def build(self, resolved: Resolved, progress: Report | None = None) -> Image:
        """Make the block image from the fetched blobs, and put the image in the index. Raises `BadLayer`. What was
        pruned since it was fetched is fetched again."""
        async with self._building.hold(resolved.digest):
            image = self._complete(resolved.digest)
            if image is None:
                (progress or silent)(PullProgress(PullStage.UNPACKING, total_bytes=resolved.size_bytes))
                image = await self._build(resolved)
                inside("shelved")
            with disk_room("writing down an image's name"):
                await self._naming.complete(resolved)
            self._index.touch(image.digest, self._clock.now())
            return image

    async def _build(self, resolved: Resolved) -> Image:
        if not self._blobs.has(resolved.digest):
            await self.fetch(resolved)
        manifest = self._contents.manifest(resolved.digest)
        with self.pin(resolved.digest, *manifest.blobs):
            if self._contents.missing_bytes(manifest):
                await self.fetch(resolved)
            if self._blocks.wanted and self._blocks.find(resolved.digest) is None:
                await self._blocks.make(resolved.digest, self._contents.layers(manifest))
            image = self._described(self._naming.best(resolved), manifest)
            with disk_room("writing down an image"):
                await self._index.put_image(image)
            return image

    def _described(self, resolved: Resolved, manifest: Manifest) -> Image:
        block = self._blocks.find(resolved.digest)
        return Image(
            digest=resolved.digest,
            reference=resolved.reference,
            registry=resolved.registry,
            repository=resolved.repository,
            tag=resolved.tag,
            config=self._contents.config(manifest).run,
            config_digest=manifest.config.digest,
            layers=manifest.layers,
            size_bytes=manifest.size_bytes,
            rootfs_bytes=block.stat().st_size if block else 0,
            rootfs_type=block.suffix[1:] if block else "",
            created_at=self._clock.now(),
        )

    async def import_archive(self, stream: AsyncIterator[bytes], name: str | None = None) -> Image:
        """An uploaded oci-archive or docker-archive, compressed or not. Without `name` it is called what it calls
        itself, or by its digest. Raises `TooLarge`, `BadImage`, `NoRoom`."""
        async with area(self._staging.disk) as directory:
            file = directory / "upload.tar"
            await receive(stream, file, self._settings.limits.max_import_bytes)
            async with self._sources.archive(file, "the archive", None) as found:
                wanted = archive_name(name, found.name) or DigestReference(found.source.root)
                resolved = await self._resolve_from(found.source, wanted, imported=True)
                with self.pin(resolved.digest):
                    await self._fetch_from(found.source, resolved, silent)
                    return await self.build(resolved)

    # What is here.

    def find(self, reference_or_digest: str) -> Image | None:
        """The complete image with this digest, or what this name last resolved to. Asks nobody."""
        return self._find(parse(reference_or_digest))

    def _find(self, wanted: Reference) -> Image | None:
        digest = self._naming.lookup(wanted)
        return self._complete(digest) if digest else None

    def list(self) -> list[Image]:
        """Oldest first."""
        return self._index.images()

    def names_of(self, digest: Digest) -> tuple[str, ...]:
        """The references that lead to the image."""
        return self._index.names_of(digest)

    def used_at(self, digest: Digest) -> float:
        """When the image was last pulled or marked as used; Unix seconds."""
        return self._index.used_at(digest)

    def mark_used(self, digest: Digest) -> None:
        """For pruning by age: a machine of this image starts."""
        if self._index.image(digest):
            self._index.touch(digest, self._clock.now())

    def raw_config(self, digest: Digest) -> bytes:
        """The config of an image that is here, as its makers wrote it. Raises `Unavailable` when it is not."""
        return self._contents.raw_config(self._contents.manifest(digest))

    def block_path(self, digest: Digest) -> Path:
        """The block image. Raises `NotFound`."""
        found = self._blocks.find(digest)
        if found is None:
            raise NotFound(f"image {digest} has no block image on this node; pull it again")
        return found

    def block_type(self, digest: Digest) -> str:
        """`erofs` or `ext4`."""
        return self.block_path(digest).suffix[1:]

    def disk_bytes(self) -> int:
        return self._blobs.disk_bytes() + self._blocks.disk_bytes()

    def missing_bytes(self, resolved: Resolved) -> int:
        """What a pull would download, for bids."""
        if self._complete(resolved.digest):
            return 0
        return self._contents.missing_bytes(self._contents.manifest(resolved.digest))

    def missing_of(self, layers: Iterable[Layer]) -> int:
        """What of these is not here, in bytes: of an image that may never have been here."""
        return sum(layer.size for layer in layers if not self._blobs.has(layer.digest))

    def pin(self, *digests: Digest) -> AbstractContextManager[None]:
        """Keep these images or blobs from being pruned while the block runs."""
        return self._pins.hold(*digests)

    async def prune(self, in_use: Callable[[], Set[Digest]], unused_for_s: float | None = None) -> PruneReport:
        """Remove images that are not in use, and blobs that no image needs. `unused_for_s` spares what was used since.
        `in_use` is asked right before each removal. An image in the middle of a pull is never removed."""
        return await self._pruner.prune(in_use, unused_for_s or 0.0)

    def _complete(self, digest: Digest) -> Image | None:
        image = self._index.image(digest)
        if image and self._blocks.wanted and self._blocks.find(digest) is None:
            return None
        return image
