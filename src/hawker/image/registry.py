"""One image in a registry: its manifests and blobs, by the OCI distribution specification."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.ids import Digest
from hawker.image.config import Layer
from hawker.image.failure import BadImage, manifest_failure
from hawker.image.manifest import ACCEPTED
from hawker.image.reference import DEFAULT_REGISTRY, RegistryReference
from hawker.image.registry_auth import Authorizer, Credentials
from hawker.image.source import Piece, Stored
from hawker.image.transport import RegistryRefused, RegistryTransport, TryLater, persist

if TYPE_CHECKING:
    import aiohttp

_HUB = "registry-1.docker.io"
_MANIFEST_S = 30.0  # all tries together: a client waits for it
_CHUNK = 1 << 18


class RegistrySource:
    """A `Source`. Manifests are retried here, blobs by whoever downloads them."""

    def __init__(
        self,
        transport: RegistryTransport,
        reference: RegistryReference,
        credentials: Credentials | None,
        clock: Clock,
        max_manifest_bytes: int,
    ) -> None:
        host = registry_host(reference.registry)
        self._reference = reference
        self._transport = transport
        self._clock = clock
        self._max_manifest_bytes = max_manifest_bytes
        self._host = host
        self._base = f"{transport.reach.scheme(host)}://{host}/v2/{reference.repository}"
        self._authorizer = Authorizer(transport, host, reference.repository, credentials)

    async def manifest(self, digest: Digest | None) -> Stored:
        """Raises `BadImage` with the text that clients know, or `Unavailable`."""
        wanted = digest or self._reference.digest or self._reference.tag
        doing = f"failed to get manifest {self._reference}"
        try:
            with anyio.fail_after(_MANIFEST_S):
                return await persist(self._clock, doing, lambda: self._get_manifest(f"{self._base}/manifests/{wanted}"))
        except TimeoutError as error:
            raise Unavailable(f"{doing}: no answer within {_MANIFEST_S:.0f} s") from error
        except RegistryRefused as error:
            code = "MANIFEST_UNKNOWN" if error.status == 404 else error.code
            raise manifest_failure(str(self._reference), code, str(error)) from error

    async def _get_manifest(self, url: str) -> Stored:
        async with self._get(url, {"Accept": ", ".join(ACCEPTED)}) as response:
            content = await self._read_limited(response)
            return Stored(content, response.headers.get("Content-Type", ""))

    async def _read_limited(self, response: "aiohttp.ClientResponse") -> bytes:
        content = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            content += chunk
            if len(content) > self._max_manifest_bytes:
                raise BadImage(f"the manifest of {self._reference} is over {self._max_manifest_bytes} bytes")
        return bytes(content)

    @asynccontextmanager
    async def blob(self, blob: Layer, offset: int) -> AsyncIterator[Piece]:
        """The blob from `offset` on, or all of it. Raises `BadImage` when the registry refuses, `TryLater`."""
        try:
            async with AsyncExitStack() as stack:
                response = await self._open_blob(stack, f"{self._base}/blobs/{blob.digest}", offset)
                yield Piece(
                    _offset_of(response), _paced(response.content.iter_chunked(_CHUNK), self._reference.registry)
                )
        except RegistryRefused as error:
            raise BadImage(f"failed to get layer {blob.digest} of {self._reference}: {error.code}: {error}") from error

    async def _open_blob(self, stack: AsyncExitStack, url: str, offset: int) -> "aiohttp.ClientResponse":
        """From `offset` on, or all of it when the registry refuses ranges."""
        if not offset:
            return await stack.enter_async_context(self._get(url, {}))
        try:
            return await stack.enter_async_context(self._get(url, {"Range": f"bytes={offset}-"}))
        except RegistryRefused as error:
            if error.status != 416:
                raise
            return await stack.enter_async_context(self._get(url, {}))

    @asynccontextmanager
    async def _get(self, url: str, headers: dict[str, str]) -> "AsyncIterator[aiohttp.ClientResponse]":
        async with _authorized(self._transport, self._authorizer, url, headers, self._host) as response:
            yield response


def registry_host(registry: str) -> str:
    return _HUB if registry == DEFAULT_REGISTRY else registry


@asynccontextmanager
async def _authorized(
    transport: RegistryTransport, authorizer: Authorizer, url: str, headers: dict[str, str], host: str
) -> "AsyncIterator[aiohttp.ClientResponse]":
    """With authorization, which is asked for once when the registry wants it, and once more when it has expired."""
    for _ in range(3):
        authorization = authorizer.headers()
        async with transport.get(url, {**headers, **authorization}, host) as response:
            if response.status != 401:
                yield response
                return
            challenges = response.headers.getall("WWW-Authenticate", [])
        await authorizer.answer(challenges, authorization)
    raise RegistryRefused(401, "UNAUTHORIZED", "the registry refuses the token that its own token server gave")


async def check_login(transport: RegistryTransport, registry: str, credentials: Credentials, clock: Clock) -> None:
    """Raises `BadImage` when the registry does not take them, `Unavailable` when it does not answer."""
    host, doing = registry_host(registry), f"cannot log in at {registry}"
    authorizer = Authorizer(transport, host, "", credentials)

    async def ask() -> None:
        async with _authorized(transport, authorizer, f"{transport.reach.scheme(host)}://{host}/v2/", {}, host):
            return

    try:
        with anyio.fail_after(_MANIFEST_S):
            await persist(clock, doing, ask)
    except TimeoutError as error:
        raise Unavailable(f"{doing}: no answer within {_MANIFEST_S:.0f} s") from error
    except RegistryRefused as error:
        raise BadImage(f"{doing}: {error.code}: {error}") from error


LEAST_RATE, RATE_OVER_S = 32 * 1024, 30.0  # bytes a second, and over how long


async def _paced(chunks: AsyncIterator[bytes], registry: str) -> AsyncIterator[bytes]:
    """The chunks. Raises `Unavailable` when fewer than `LEAST_RATE` bytes a second come in `RATE_OVER_S` seconds of
    waiting: a registry that drips would keep a place among the downloads for as long as it likes."""
    waited_s, came = 0.0, 0
    while True:
        asked = anyio.current_time()
        with anyio.move_on_after(RATE_OVER_S - waited_s) as patience:
            chunk = await anext(chunks, None)
        if patience.cancelled_caught:
            raise Unavailable(f"{registry} sends fewer than {LEAST_RATE} bytes a second")
        if chunk is None:
            return
        waited_s, came = waited_s + anyio.current_time() - asked, came + len(chunk)
        if came >= LEAST_RATE * RATE_OVER_S:
            waited_s, came = 0.0, 0
        yield chunk


def _offset_of(response: "aiohttp.ClientResponse") -> int:
    """Where the body begins: a server may answer a request for a range with everything."""
    if response.status != 206:
        return 0
    unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
    start = rest.partition("-")[0]
    if unit != "bytes" or not start.isdigit():
        raise TryLater("the registry's Content-Range cannot be read")
    return int(start)
