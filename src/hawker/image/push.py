"""An image of this node goes to a registry, by the OCI distribution specification: the blobs that are not there yet,
each in one request, then the manifest under its name. What broke off is sent again whole; nothing is ever removed.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urljoin, urlsplit

import anyio

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.ids import Digest
from hawker.image.config import Layer
from hawker.image.failure import BadImage
from hawker.image.manifest import Manifest
from hawker.image.progress import PullProgress, PullStage, Report
from hawker.image.reference import RegistryReference
from hawker.image.registry import Authorizer, Credentials, registry_host
from hawker.image.transport import RegistryRefused, RegistryTransport, TryLater, persist
from hawker.value_object import ValueObject

if TYPE_CHECKING:
    import aiohttp

_CHUNK = 1 << 20
_MANIFEST_S = 60.0


class PushedImage(ValueObject, frozen=True, kw_only=True):
    """The image that is sent. `blob` gives the file of a blob that is here."""

    digest: Digest
    manifest: Manifest
    content: bytes
    """The manifest, byte for byte: `digest` is of these bytes."""
    media_type: str
    """The media type of the manifest, told to the registry."""
    blob: Callable[[Digest], Path]


class RegistryTarget:
    """A name in a registry that an image is to get."""

    def __init__(
        self, transport: RegistryTransport, reference: RegistryReference, credentials: Credentials | None, clock: Clock
    ) -> None:
        host = registry_host(reference.registry)
        self._transport = transport
        self._reference = reference
        self._clock = clock
        self._host = host
        self._base = f"{transport.reach.scheme(host)}://{host}/v2/{reference.repository}"
        self._authorizer = Authorizer(transport, host, reference.repository, credentials)

    async def push(self, image: PushedImage, report: Report) -> None:
        """Sends an image to the registry. Raises `BadImage` when the registry refuses, `Unavailable` when it does not
        answer."""
        doing = f"failed to push {self._reference}"
        try:
            for blob in {each.digest: each for each in (image.manifest.config, *image.manifest.layers)}.values():
                await persist(self._clock, doing, lambda blob=blob: self._blob(blob, image.blob(blob.digest), report))  # type: ignore[misc]
            with anyio.fail_after(_MANIFEST_S):
                await persist(self._clock, doing, lambda: self._manifest(image))
        except TimeoutError as error:
            raise Unavailable(f"{doing}: the registry does not answer") from error
        except RegistryRefused as error:
            raise BadImage(f"{doing}: {error.code}: {error}") from error

    async def _blob(self, blob: Layer, file: Path, report: Report) -> None:
        """No effect when it is there."""
        async with self._sent("HEAD", f"{self._base}/blobs/{blob.digest}") as response:
            if response.status == 200:
                return report(PullProgress(PullStage.UPLOADING, blob.digest, blob.size, blob.size))
        async with self._sent("POST", f"{self._base}/blobs/uploads/") as response:
            begun = response.headers.get("Location", "")
        if response.status != 202 or not begun:
            raise RegistryRefused(response.status, "UNSUPPORTED", "the registry takes no uploads")
        url = urljoin(f"{self._base}/blobs/uploads/", begun)
        url += ("&" if urlsplit(url).query else "?") + urlencode({"digest": blob.digest})
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
        own = self._authorizer.headers() if urlsplit(url).netloc == self._host else {}
        data = _read(file, blob, report)
        async with self._transport.send("PUT", url, {**headers, **own}, self._host, data, before=self._base) as stored:
            if stored.status == 401:
                raise TryLater("the registry's token has expired meanwhile")
            if stored.status != 201:
                raise RegistryRefused(stored.status, str(stored.status), f"the registry did not keep {blob.digest}")

    async def _manifest(self, image: PushedImage) -> None:
        url = f"{self._base}/manifests/{self._reference.tag}"
        async with self._sent("PUT", url, {"Content-Type": image.media_type}, image.content) as response:
            if response.status != 201:
                raise RegistryRefused(response.status, str(response.status), "the registry did not keep the manifest")

    @asynccontextmanager
    async def _sent(
        self, method: str, url: str, headers: dict[str, str] | None = None, data: bytes | None = None
    ) -> "AsyncIterator[aiohttp.ClientResponse]":
        """With authorization, which is asked for when the registry wants it: once to look, and once to write."""
        for _ in range(4):
            authorization = self._authorizer.headers()
            both = {**(headers or {}), **authorization}
            async with self._transport.send(method, url, both, self._host, data) as response:
                if response.status != 401:
                    yield response
                    return
                challenges = response.headers.getall("WWW-Authenticate", [])
            await self._authorizer.answer(challenges, authorization)
        raise RegistryRefused(401, "DENIED", "the login may not push to this repository")


async def _read(file: Path, blob: Layer, report: Report) -> AsyncIterator[bytes]:
    """Raises `TryLater` when the file is not what it was."""
    sent = 0
    with await in_thread(Pool.IMAGES, file.open, "rb") as source:
        while data := await in_thread(Pool.IMAGES, source.read, _CHUNK):
            yield data
            sent += len(data)
            report(PullProgress(PullStage.UPLOADING, blob.digest, sent, blob.size))
