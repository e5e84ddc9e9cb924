"""From a reference to the source that its content comes from."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import anyio.from_thread

from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.errors import NotFound, NotServed
from hawker.fair.threads import Pool, in_thread
from hawker.image.blobs import EVERYBODY, ImageReader
from hawker.image.block_image import area
from hawker.image.failure import disk_room
from hawker.image.layout import INDEX, DirectoryBundle, LocalImage, open_archive, open_docker, open_layout
from hawker.image.limits import ImageSettings
from hawker.image.manifest import host_platform
from hawker.image.push import RegistryTarget
from hawker.image.reach import host_of, is_inside
from hawker.image.reference import (
    HELLO,
    ArchiveKind,
    ArchiveReference,
    DigestReference,
    HelloReference,
    LayoutReference,
    Reference,
    RegistryReference,
)
from hawker.image.registry import Credentials, RegistrySource, check_login, find_credentials
from hawker.image.source import ImageSource, LocalSource
from hawker.image.transport import RegistryTransport
from hawker.value_object import ValueObject

if TYPE_CHECKING:
    from hawker.image import hello
else:
    hello = deferred("hawker.image.hello")


class Login(ValueObject, frozen=True):
    """The login with which a source is asked, and the reader of the blobs that it gives for that."""

    credentials: Credentials | None
    reader: ImageReader


class ImageSources:
    """`scratch` is a directory for what must be unpacked to be read; `hello` finds the sample image's program."""

    def __init__(
        self,
        settings: ImageSettings,
        transport: RegistryTransport,
        clock: Clock,
        hello: Callable[[], Path],
        scratch: Path,
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._clock = clock
        self._hello = hello
        self._scratch = scratch
        self._made: tuple[tuple[int, int, int], LocalSource] | None = None

    async def login(self, reference: Reference, given: Credentials | None, org: ImageReader) -> Login:
        """`given` came with the call, and is the organization's. What a registry shows without a login is everybody's,
        and so is what the node's own login shows, which all organizations use; files of the node and registries that
        only some may name are not. Raises `Unavailable` when the node's logins cannot be read."""
        if given is not None or not isinstance(reference, RegistryReference):
            return Login(given, EVERYBODY if isinstance(reference, HelloReference) else org)
        settings, registry = self._settings, reference.registry
        known = await in_thread(Pool.IMAGES, find_credentials, settings.auth_file, registry)
        listed = registry in settings.insecure_hosts | settings.private_hosts
        return Login(known, EVERYBODY if listed or not is_inside(host_of(registry)) else org)

    @asynccontextmanager
    async def open(self, reference: Reference, credentials: Credentials | None) -> AsyncIterator[ImageSource]:
        """The source of a reference's image. Raises `NotServed` for local forms where they are not allowed, `NotFound`
        for a digest that is not here."""
        limits = self._settings.limits
        match reference:
            case RegistryReference():
                most = limits.max_manifest_bytes
                yield RegistrySource(self._transport, reference, credentials, self._clock, most)
            case HelloReference():
                sample = await self._sample()
                if reference.digest not in (None, sample.root):
                    raise NotFound(f"the sample image of this version is {HELLO}@{sample.root}: order {HELLO}")
                yield sample
            case LayoutReference():
                self._check_local()
                bundle = DirectoryBundle(Path(reference.path))
                yield (await in_thread(Pool.IMAGES, open_layout, bundle, reference.tag, host_platform(), limits)).source
            case ArchiveReference():
                self._check_local()
                async with self.archive(Path(reference.path), reference.path, reference.kind) as found:
                    yield found.source
            case DigestReference():
                raise NotFound(f"image {reference} is not on this node")
            case _:
                assert_never(reference)

    @asynccontextmanager
    async def archive(self, file: Path, label: str, kind: ArchiveKind | None) -> AsyncIterator[LocalImage]:
        """The image in an archive; of either kind when `kind` is None."""
        async with area(self._scratch) as directory:
            with disk_room(f"reading {label}"):
                found = await in_thread(Pool.IMAGES, self._open_archive, file, label, kind, directory / "plain.tar")
            yield found

    def _open_archive(self, file: Path, label: str, kind: ArchiveKind | None, scratch: Path) -> LocalImage:
        check, limits = anyio.from_thread.check_cancelled, self._settings.limits
        bundle = open_archive(file, label, scratch, limits, check)
        is_oci = kind is ArchiveKind.OCI or (kind is None and bundle.find(INDEX) is not None)
        return open_layout(bundle, None, host_platform(), limits) if is_oci else open_docker(bundle, limits, check)

    def target(self, reference: RegistryReference, credentials: Credentials | None) -> RegistryTarget:
        """The place to which an image is pushed; unless told, with the login of the node's own file."""
        known = credentials or find_credentials(self._settings.auth_file, reference.registry)
        return RegistryTarget(self._transport, reference, known, self._clock)

    async def check_login(self, registry: str, credentials: Credentials) -> None:
        """Checks a login at a registry. Raises `BadImage`, `Unavailable`."""
        await check_login(self._transport, registry, credentials, self._clock)

    async def _sample(self) -> LocalSource:
        """Made once for each program: every order of the sample image asks for it."""
        program = self._hello()
        found = program.stat()
        version = found.st_ino, found.st_size, found.st_mtime_ns  # not when it was read last, which each making changes
        if self._made is None or self._made[0] != version:
            most = self._settings.limits.max_manifest_bytes
            self._made = version, await in_thread(Pool.IMAGES, hello.hello_source, program, most)
        return self._made[1]

    def _check_local(self) -> None:
        if not self._settings.allow_local:
            raise NotServed("images from this node's files are switched off; upload with `hawker images import`")
