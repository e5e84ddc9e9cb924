"""The images of one node: from a name to a block image, each step repeatable, everything under one directory.

blobs/ (compressed, by digest, shared), partial/ (downloads under way), rootfs/ (one block image per image), images/ and
names/ (what is complete, and what it is called), staging/ (emptied at boot).

Invariant: a file under its final name is whole. A crash costs at most the step it interrupts.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence, Set
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from hawker.clock import Clock
from hawker.errors import NotFound, Unavailable
from hawker.failpoint import inside
from hawker.fair.sessions import SessionAtNeed
from hawker.fair.table import BUILDS
from hawker.fair.threads import Pool, in_thread, whose
from hawker.fair.turns import Turns
from hawker.guest import hello_path
from hawker.ids import Digest
from hawker.image.blobs import EVERYBODY, NODE, BlobReaders, BlobStore, ImageReader
from hawker.image.block_image import Blocks, Staging, area
from hawker.image.config import Image, Layer
from hawker.image.contents import ImageContents, Pins
from hawker.image.download import Arrivals, ImageFetcher
from hawker.image.early_build import EarlyBuilds
from hawker.image.failure import BadImage, disk_room
from hawker.image.image_index import ImageIndex, ImageName, ImageNames
from hawker.image.layout import archive_name, receive
from hawker.image.limits import ImageSettings
from hawker.image.manifest import Manifest, Resolved, find_manifest, host_platform, named
from hawker.image.neighbours import Neighbours, NoNeighbours
from hawker.image.progress import PullProgress, PullStage, Report, silent
from hawker.image.prune import Pruner, PruneReport
from hawker.image.reach import PullReach
from hawker.image.reference import DigestReference, HelloReference, Reference, RegistryReference, parse, pinned_by
from hawker.image.registry import Credentials
from hawker.image.source import ImageSource
from hawker.image.sources import ImageSources, Login
from hawker.image.transport import RegistryTransport, TryLater, new_session
from hawker.keyed_locks import KeyedLocks
from hawker.log import bind

_log = bind("hawker.image")
_BUILDER = "the node"  # which has no more builds at once than anybody


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
        self._readers = BlobReaders(root, self._blobs)
        self._fetcher = ImageFetcher(clock, settings.parallel_downloads)
        self._building: KeyedLocks[Digest] = KeyedLocks()
        self._builds = Turns(BUILDS)
        self._contents = ImageContents(self._blobs, settings.limits)
        self._early = EarlyBuilds(self._contents, self._blocks, self._building, self._builds, settings.early_bytes)
        self._naming = ImageNames(self._index)
        self._pins = Pins()
        self._reach = PullReach(settings.insecure_hosts, settings.private_hosts)
        self._session = SessionAtNeed(partial(new_session, self._reach))
        self._sample: Resolved | None = None
        self._neighbours: Neighbours = NoNeighbours()
        self._pruner = Pruner(
            blobs=self._blobs,
            readers=self._readers,
            blocks=self._blocks,
            index=self._index,
            building=self._building,
            fetching=self._fetcher.busy,
            pinned=self._pins.has,
            clock=clock,
        )

    async def open(self) -> None:
        """Repair what a crash left half made. Raises `CannotStart` when a tool is missing."""
        await in_thread(Pool.IMAGES, self._open_files)
        transport = RegistryTransport(self._session, self._reach)
        self._sources = ImageSources(self._settings, transport, self._clock, self._hello, self._staging.disk)
        await self._pruner.sweep(self._settings.partial_age_s)

    def _open_files(self) -> None:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._staging.clear()
        for part in (self._blobs, self._index, self._blocks, self._readers):
            part.open()

    async def aclose(self) -> None:
        await self._session.aclose()

    # From a name to a block image.

    async def pull(
        self,
        reference: Reference | str,
        credentials: Credentials | None = None,
        progress: Report | None = None,
        org: ImageReader = NODE,
    ) -> Image:
        """Resolve, fetch, build: for an organization, or for nobody. Raises `BadImage`, `Unavailable`, `NoRoom`,
        `NotServed`, `NotFound`."""
        report = progress or silent
        report(PullProgress(PullStage.RESOLVING))
        resolved = await self.resolve(reference, credentials, org)
        with self.pin(resolved.digest):
            await self.fetch(resolved, credentials, report, org)
            image = await self.build(resolved, report, org, credentials)
        report(PullProgress(PullStage.DONE, done_bytes=image.size_bytes, total_bytes=image.size_bytes))
        return image

    async def resolve(
        self, reference: Reference | str, credentials: Credentials | None = None, org: ImageReader = NODE
    ) -> Resolved:
        """The image that the reference means now; its manifest is kept. When its registry does not answer, what it
        meant last, if that is still here. What is here counts only for organizations that may have it: to others it is
        not."""
        wanted = parse(reference) if isinstance(reference, str) else reference
        imported = await self._imported(wanted, org)
        if imported is not None:
            return imported
        if isinstance(wanted, HelloReference):
            if (own := self._sample) and wanted.digest in (None, own.digest) and self._complete(own.digest):
                return own  # it comes with the program, and is the same for as long as this lives
            if wanted.digest and self._complete(wanted.digest):  # of an older version
                return self._resolved_here(wanted, org)
        try:
            login = await self._sources.login(wanted, credentials, org)
            async with self._sources.open(wanted, login.credentials) as source:
                return await self._resolve_from(source, wanted, login.reader)
        except Unavailable:
            if self._found_for(wanted, org) is None:
                raise
            return self._resolved_here(wanted, org)

    async def _imported(self, wanted: Reference, org: ImageReader) -> Resolved | None:
        """What no registry is asked about: a digest, or a name that was given to an upload that the organization may
        have, here or at a neighbour, and last of all. Raises `NotFound`, `Unavailable`."""
        if isinstance(wanted, DigestReference):
            known = self._found_for(wanted, org)
            handed = None if known else await self._resolve_at_neighbours(wanted, wanted.digest, 0.0, org)
            return handed or self._resolved_here(wanted, org)
        if not isinstance(wanted, RegistryReference):
            return None
        here, told = self._naming.imported(wanted), self._neighbours.imported(str(wanted))
        meanings = [(each.at, each.digest) for each in (here, told) if each is not None]
        for at, digest in sorted(meanings, key=lambda each: -each[0]):
            image = self._complete(digest)
            if image is not None and self._readers.may_read(org, image.blobs):
                resolved = named(wanted, digest, image.size_bytes, imported=True)
                await self._naming.resolved(resolved, at)
                return resolved
            handed = None if image is not None else await self._resolve_at_neighbours(wanted, digest, at, org)
            if handed is not None:
                return handed
        lost = [each for _, each in meanings if not self._complete(each) and not self._neighbours.holders(each)]
        if lost and told is not None:
            raise self._nowhere(wanted)
        return self._resolved_here(wanted, org) if lost else None

    async def _resolve_at_neighbours(
        self, wanted: Reference, digest: Digest, at: float, org: ImageReader
    ) -> Resolved | None:
        """None when nobody has it for this organization. Raises `Unavailable` when those that may have it do not hand
        it over."""
        reasons = []
        for node in self._neighbours.holders(digest):
            for reader in dict.fromkeys((EVERYBODY, org)):
                to = Arrivals(self._blobs, self._readers, org, reader)
                try:
                    await self._ensure_manifest(self._neighbours.source(node, reader), digest, to)
                except NotFound:
                    continue
                except (BadImage, TryLater, Unavailable) as error:
                    reasons.append(f"{node}: {error}")
                    break
                resolved = named(wanted, digest, self._contents.manifest(digest).size_bytes, imported=True)
                await self._naming.resolved(resolved, at)
                return resolved
        if reasons:
            raise self._nowhere(wanted, reasons)
        return None

    def _nowhere(self, wanted: Reference, reasons: Sequence[str] = ()) -> Unavailable:
        told = self._neighbours.imported(str(wanted))
        nodes = ", ".join(told.nodes) if told is not None else "a node"
        why = f": {'; '.join(reasons)}" if reasons else ""
        return Unavailable(
            f"image {wanted} was imported at {nodes}, which cannot hand it over now{why}; import it again, or push it"
            " to a registry"
        )

    def out_of_reach(self, reference: str) -> Unavailable | None:
        """The error for an image that was imported elsewhere, when no node that has it can be asked now; None when it
        is here, can be had, or is a registry's. For bids: asks nobody. Raises `BadImage`."""
        wanted = parse(reference)
        here = self._naming.imported(wanted)
        told = self._neighbours.imported(str(wanted)) if isinstance(wanted, RegistryReference) else None
        digests = {each.digest for each in (here, told) if each is not None}
        if not digests or any(self._complete(each) or self._neighbours.holders(each) for each in digests):
            return None
        return self._nowhere(wanted)

    def has_neighbour(self, reference: str) -> bool:
        """Whether a node that can be asked has what the name means. Raises `BadImage`."""
        wanted = parse(reference)
        told = self._neighbours.imported(str(wanted)) if isinstance(wanted, RegistryReference) else None
        digest = told.digest if told is not None else self._naming.lookup(wanted)
        return digest is not None and bool(self._neighbours.holders(digest))

    async def _resolve_from(
        self, source: ImageSource, wanted: Reference, reader: ImageReader, *, imported: bool = False, at: float = 0.0
    ) -> Resolved:
        content = await find_manifest(source, pinned_by(wanted), self._platform, self._settings.limits)
        digest = await self._keep_manifest(content, reader)
        resolved = named(wanted, digest, self._contents.manifest(digest).size_bytes, imported=imported)
        await self._naming.resolved(resolved, at)
        if isinstance(wanted, HelloReference) and wanted.digest is None:
            self._sample = resolved
        return resolved

    async def _keep_manifest(self, content: bytes, reader: ImageReader) -> Digest:
        with disk_room("keeping a manifest"):
            digest = await in_thread(Pool.IMAGES, self._blobs.put, content)
            await self._readers.add(reader, digest)
        return digest

    def _found_for(self, wanted: Reference, org: ImageReader) -> Image | None:
        image = self._find(wanted)
        return image if image is not None and self._readers.may_read(org, image.blobs) else None

    def _resolved_here(self, wanted: Reference, org: ImageReader) -> Resolved:
        image = self._found_for(wanted, org)
        if image is None:
            raise NotFound(f"image {wanted} is not on this node")
        imported = self._naming.imported(wanted) is not None
        return named(wanted, image.digest, image.size_bytes, imported=imported)

    async def fetch(
        self,
        resolved: Resolved,
        credentials: Credentials | None = None,
        progress: Report | None = None,
        org: ImageReader = NODE,
    ) -> None:
        """Have every blob of the image here for the organization; none is needed when the image is complete. Raises
        what a pull raises, and `NotFound`."""
        if self.is_here_for(resolved, org) or await self._fetch_from_neighbours(resolved, org, progress or silent):
            return
        if resolved.imported:
            text = f"image {resolved.reference} was imported, and no node that can be asked has it: import it again"
            raise NotFound(text)
        reference = parse(resolved.reference)
        login = await self._sources.login(reference, credentials, org)
        async with self._sources.open(reference, login.credentials) as source:
            await self._fetch_from(source, resolved, self._arrivals(org, login), progress or silent)

    async def _fetch_from_neighbours(self, resolved: Resolved, org: ImageReader, report: Report) -> bool:
        """Whether those that have the image handed all of it over: what is everybody's, and what the organization may
        have beside that. What came is kept, whoever goes on."""
        if not resolved.registry and not resolved.imported:
            return False  # it comes from this node's own files
        for node in self._neighbours.holders(resolved.digest):
            for reader in dict.fromkeys((EVERYBODY, org)):
                to = Arrivals(self._blobs, self._readers, org, reader)
                try:
                    await self._fetch_from(self._neighbours.source(node, reader), resolved, to, report)
                except NotFound:
                    continue
                except (BadImage, TryLater, Unavailable) as error:
                    _log.warning("neighbour does not hand over an image", extra={"node": node, "error": str(error)})
                    break
                return True
        return False

    def _arrivals(self, org: ImageReader, login: Login) -> Arrivals:
        return Arrivals(self._blobs, self._readers, org, login.reader)

    async def _fetch_from(self, source: ImageSource, resolved: Resolved, to: Arrivals, report: Report) -> None:
        await self._ensure_manifest(source, resolved.digest, to)
        manifest = self._contents.manifest(resolved.digest)
        present = max(0, manifest.size_bytes - self._contents.missing_bytes(manifest))
        report(PullProgress(PullStage.DOWNLOADING, done_bytes=present, total_bytes=manifest.size_bytes))
        with self.pin(resolved.digest, *manifest.blobs):
            await self._fetcher.fetch(source, [manifest.config], to, silent)
            self._contents.check_config(manifest, self._platform)
            async with self._early.during(resolved.digest, manifest, report) as arriving:
                await self._fetcher.fetch(source, manifest.layers, to, report, arriving)

    async def _ensure_manifest(self, source: ImageSource, digest: Digest, to: Arrivals) -> None:
        """It was kept when the reference was resolved, which may be long ago."""
        if not to.has(digest):
            content = await find_manifest(source, digest, self._platform, self._settings.limits)
            await self._keep_manifest(content, to.reader)

    async def build(
        self,
        resolved: Resolved,
        progress: Report | None = None,
        org: ImageReader = NODE,
        credentials: Credentials | None = None,
    ) -> Image:
        """Make the block image from the fetched blobs, and put the image in the index. Raises `BadLayer`. What was
        pruned since it was fetched is fetched again, before anybody waits for this build."""
        with self.pin(resolved.digest):
            while self._complete(resolved.digest) is None and not self._contents.is_whole(resolved.digest):
                await self.fetch(resolved, credentials, org=org)
            image = self._complete(resolved.digest) or await self._build(resolved, progress or silent)
            with disk_room("writing down an image's name"):
                await self._naming.complete(resolved)
            self._index.touch(image.digest, self._clock.now())
            return image

    async def _build(self, resolved: Resolved, report: Report) -> Image:
        manifest = self._contents.manifest(resolved.digest)
        with self.pin(*manifest.blobs):
            async with self._building.hold(resolved.digest):
                if (image := self._complete(resolved.digest)) is not None:
                    return image
                async with self._builds.hold(whose() or _BUILDER):
                    if self._blocks.wanted and self._blocks.find(resolved.digest) is None:
                        await self._blocks.make(resolved.digest, self._contents.layers(manifest), report)
                    image = self._described(self._naming.best(resolved), manifest)
                    with disk_room("writing down an image"):
                        await self._index.put_image(image)
                inside("shelved")
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

    async def import_archive(
        self, stream: AsyncIterator[bytes], name: str | None = None, reader: ImageReader = EVERYBODY
    ) -> Image:
        """Imports an image for an organization, or for everybody: an uploaded oci-archive or docker-archive, compressed
        or not. Without `name` it is called what it calls itself, or by its digest. Raises `TooLarge`, `BadImage`,
        `NoRoom`."""
        async with area(self._staging.disk) as directory:
            file = directory / "upload.tar"
            await receive(stream, file, self._settings.limits.max_import_bytes)
            async with self._sources.archive(file, "the archive", None) as found:
                wanted = archive_name(name, found.name) or DigestReference(found.source.root)
                resolved = await self._resolve_from(found.source, wanted, reader, imported=True, at=self._clock.now())
                with self.pin(resolved.digest):
                    await self._fetch_from(found.source, resolved, self._arrivals(reader, Login(None, reader)), silent)
                    return await self.build(resolved)

    async def check_login(self, registry: str, credentials: Credentials) -> None:
        """Ask the registry. Raises `BadImage`, `Unavailable`."""
        await self._sources.check_login(registry, credentials)

    async def push(
        self, reference: str, to: str | None, credentials: Credentials | None = None, progress: Report | None = None
    ) -> Image:
        """Send an image of this node to a registry. Raises `NotFound`, `BadImage`, `Unavailable`."""
        if (image := self.find(reference)) is None:
            raise NotFound(f"image {reference} is not on this node: see `hawker images list`")
        target = parse(to or reference)
        if not isinstance(target, RegistryReference) or target.digest or not target.tag:
            raise BadImage(f"an image is pushed to a name like registry.example/app:v1, not {to or reference!r:.200}")
        with self.pin(image.digest, *image.blobs):
            sent = await in_thread(Pool.IMAGES, self._contents.pushed, image.digest)
            await self._sources.target(target, credentials).push(sent, progress or silent)
        return image

    # What other nodes have, and are given.

    def meet(self, neighbours: Neighbours) -> None:
        """Has images come from other nodes, too, from now on."""
        self._neighbours = neighbours

    def listen(self, changed: Callable[[], None]) -> None:
        """Called in the event loop's thread when there is an image or a name more or less."""
        self._index.listen(changed)

    def imported_names(self) -> list[ImageName]:
        """The names that were given to uploads, of complete images."""
        return [name for name in self._index.names() if name.imported and self._index.image(name.digest)]

    async def blob_piece(self, digest: Digest, offset: int, count: int, org: ImageReader = NODE) -> bytes:
        """A piece of a manifest, config or layer, compressed; empty at its end. Raises `NotFound`, also for what is not
        for the organization."""
        if not self._readers.may_read(org, (digest,)):
            raise NotFound(f"blob {digest} is not on this node")
        try:
            return await in_thread(Pool.IMAGES, self._blobs.piece, digest, offset, count)
        except FileNotFoundError as error:
            raise NotFound(f"blob {digest} is not on this node") from error

    # What is here.

    def find(self, reference_or_digest: str) -> Image | None:
        """The complete image with this digest, or what this name last resolved to. Asks nobody."""
        return self._find(parse(reference_or_digest))

    def _find(self, wanted: Reference) -> Image | None:
        digest = self._naming.lookup(wanted)
        return self._complete(digest) if digest else None

    def is_here_for(self, resolved: Resolved, org: ImageReader) -> bool:
        """Whether the image is complete, and the organization may have all of it."""
        image = self._complete(resolved.digest)
        return image is not None and self._readers.may_read(org, image.blobs)

    def list(self) -> list[Image]:
        """The images that are here, oldest first."""
        return self._index.images()

    def names_of(self, digest: Digest) -> tuple[str, ...]:
        """The references that lead to the image."""
        return self._index.names_of(digest)

    def used_at(self, digest: Digest) -> float:
        """The time at which the image was last pulled or marked as used; Unix seconds."""
        return self._index.used_at(digest)

    def mark_used(self, digest: Digest) -> None:
        """Marks the image as used, for pruning by age: a machine of this image starts."""
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
        """The filesystem of the block image: `erofs` or `ext4`."""
        return self.block_path(digest).suffix[1:]

    def disk_bytes(self) -> int:
        return self._blobs.disk_bytes() + self._blocks.disk_bytes()

    def missing_bytes(self, resolved: Resolved) -> int:
        """The bytes that a pull would download, for bids."""
        if self._complete(resolved.digest):
            return 0
        return self._contents.missing_bytes(self._contents.manifest(resolved.digest))

    def missing_of(self, layers: Iterable[Layer]) -> int:
        """The bytes of these layers that are not here: of an image that may never have been here."""
        return sum(layer.size for layer in layers if not self._blobs.has(layer.digest))

    def pin(self, *digests: Digest) -> AbstractContextManager[None]:
        """Keep these images or blobs from being pruned while the block runs."""
        return self._pins.hold(*digests)

    async def prune(
        self, in_use: Callable[[], Set[Digest]], unused_for_s: float = 0.0, only: Set[Digest] | None = None
    ) -> PruneReport:
        """Remove images, and blobs that no image needs, as `Pruner.prune` says."""
        return await self._pruner.prune(in_use, unused_for_s, only)

    def _complete(self, digest: Digest) -> Image | None:
        image = self._index.image(digest)
        if image and self._blocks.wanted and self._blocks.find(digest) is None:
            return None
        return image
