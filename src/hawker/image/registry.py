"""One image in a registry: its manifests and blobs, by the OCI distribution specification, and authentication there:
credentials given with the pull or from a file in the format of Docker's config.json, the WWW-Authenticate header
(RFC 9110, section 11), and the answer to it, basic or a bearer token.

Invariant: a password goes only to the registry itself and to a token server of its own domain, or to the one that the
credentials name, over a way that is as safe as the one to the registry.
"""

import base64
import binascii
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import anyio
import msgspec

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.ids import Digest
from hawker.image.config import Layer
from hawker.image.failure import BadImage, manifest_failure
from hawker.image.manifest import ACCEPTED
from hawker.image.reference import DEFAULT_REGISTRY, RegistryReference
from hawker.image.source import Piece, Stored
from hawker.image.transport import RegistryRefused, RegistryTransport, TryLater, persist
from hawker.log import Secret
from hawker.value_object import ValueObject

if TYPE_CHECKING:
    import aiohttp

_DOCKER_HUB = ("https://index.docker.io/v1/", "index.docker.io", "registry-1.docker.io")

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_SCHEME = re.compile(rf"\s*(?:,\s*)?({_TOKEN})(?:\s+(?=[^\s=,]+\s*=)|\s*(?=,|$))")
_PARAMETER = re.compile(rf'\s*(?:,\s*)?({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_TOKEN}))')
_LENGTH_LIMIT = 8192

_TOKEN_LIMIT = 256 << 10
_WRONG = "wrong user name or password"


class Credentials(ValueObject, frozen=True):
    """A user name and a password or access token. `realm` is a host that may have them too, as token server."""

    username: str
    """The name of the user; empty for a token that is the password alone."""
    password: Secret
    realm: str = ""

    def basic(self) -> str:
        """The value of an Authorization header."""
        pair = f"{self.username}:{self.password.reveal()}"
        return "Basic " + base64.b64encode(pair.encode()).decode()


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    auth: str = ""
    username: str = ""
    password: str = ""
    realm: str = ""


class _AuthFile(msgspec.Struct, frozen=True, kw_only=True):
    auths: dict[str, _Entry] = {}


def find_credentials(file: Path | None, registry: str) -> Credentials | None:
    """The file's entry for a registry. It is read at each pull, so that a login counts at once. Raises
    `Unavailable` for a file that cannot be read."""
    if file is None:
        return None
    try:
        found = msgspec.json.decode(file.read_bytes(), type=_AuthFile)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise Unavailable(f"the registry credentials in {file} cannot be read: {error}") from error
    for key in _keys(registry):
        if key in found.auths:
            return _credentials(found.auths[key])
    return None


def _keys(registry: str) -> tuple[str, ...]:
    names = (
        registry,
        f"https://{registry}",
        f"http://{registry}",
        f"https://{registry}/v1/",
        f"https://{registry}/v2/",
    )
    return names + _DOCKER_HUB if registry == DEFAULT_REGISTRY else names


def _credentials(entry: _Entry) -> Credentials | None:
    if entry.username:
        return Credentials(entry.username, Secret(entry.password), entry.realm)
    try:
        username, colon, password = base64.b64decode(entry.auth, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return Credentials(username, Secret(password.rstrip("\0")), entry.realm) if colon else None


class AuthChallenge(ValueObject, frozen=True):
    """A challenge of a registry: one way in. `scheme` is in lower case; names of parameters too."""

    scheme: str
    parameters: tuple[tuple[str, str], ...] = ()
    """Names and values in the registry's order, `realm` and `service` say."""

    def get(self, name: str) -> str | None:
        return next((value for key, value in self.parameters if key == name), None)


def parse_challenges(headers: Iterable[str]) -> list[AuthChallenge]:
    """Every challenge, in order. What cannot be read ends the header it is in."""
    return [challenge for header in headers for challenge in _parse(header[:_LENGTH_LIMIT])]


def _parse(header: str) -> list[AuthChallenge]:
    found: list[AuthChallenge] = []
    position = 0
    while scheme := _SCHEME.match(header, position):
        position = scheme.end()
        parameters: list[tuple[str, str]] = []
        while parameter := _PARAMETER.match(header, position):
            quoted = re.sub(r"\\(.)", r"\1", parameter[2] or "")
            parameters.append((parameter[1].lower(), quoted or parameter[3] or ""))
            position = parameter.end()
        found.append(AuthChallenge(scheme[1].lower(), tuple(parameters)))
    return found


class _Token(msgspec.Struct, frozen=True, kw_only=True):
    token: str = ""
    access_token: str = ""


class Authorizer:
    """The authorization for one repository, or none: a login alone. Shared by requests in flight: whoever meets the
    challenge first answers it for all."""

    def __init__(
        self, transport: RegistryTransport, registry: str, repository: str, credentials: Credentials | None
    ) -> None:
        self._transport = transport
        self._registry = registry
        self._repository = repository
        self._credentials = credentials
        self._lock = anyio.Lock()
        self._header: str | None = None

    def headers(self) -> dict[str, str]:
        return {"Authorization": self._header} if self._header else {}

    async def answer(self, challenges: list[str], tried: dict[str, str]) -> None:
        """Find what to send. `tried` are the headers that were refused. Raises `RegistryRefused` when there is nothing
        else."""
        async with self._lock:
            if self.headers() != tried:
                return  # another request has found it
            if tried and self._header and self._header.startswith("Basic "):
                raise self._denied(_WRONG)
            self._header = await self._find(parse_challenges(challenges))

    async def _find(self, challenges: list[AuthChallenge]) -> str:
        for challenge in challenges:
            if challenge.scheme == "bearer" and challenge.get("realm"):
                return "Bearer " + await self._token(challenge)
        if any(challenge.scheme == "basic" for challenge in challenges) and self._credentials:
            return self._credentials.basic()
        raise self._denied("authentication required")

    async def _token(self, challenge: AuthChallenge) -> str:
        """The distribution project's token specification: GET realm with service and scope."""
        realm = challenge.get("realm") or ""
        try:
            parts = urlsplit(realm)
        except ValueError as error:
            raise RegistryRefused(0, "REALM", "the registry names a token server whose URL cannot be read") from error
        scope = challenge.get("scope") or (f"repository:{self._repository}:pull" if self._repository else "")
        query = {"service": challenge.get("service") or "", "scope": scope}
        if self._credentials:
            self._check_realm(parts.hostname or "", self._credentials)
            query["account"] = self._credentials.username
        url = realm + ("&" if parts.query else "?") + urlencode({k: v for k, v in query.items() if v})
        headers = {"Authorization": self._credentials.basic()} if self._credentials else {}
        own = f"{self._transport.reach.scheme(self._registry)}://{self._registry}"
        async with self._transport.get(url, headers, self._registry, before=own) as response:
            if response.status != 200:
                raise self._denied(_WRONG if self._credentials else "authentication required")
            return _read_token(await self._transport.begin(response, _TOKEN_LIMIT))

    def _check_realm(self, host: str, credentials: Credentials) -> None:
        """Raises `RegistryRefused` for a token server that is none of the registry's."""
        if host != credentials.realm and _site(host) != _site(urlsplit(f"//{self._registry}").hostname or ""):
            raise RegistryRefused(
                401,
                "REALM",
                f"the registry names a token server of another domain, {host[:200]}; allow it with `hawker registry"
                f" login {self._registry} --realm {host[:200]}`, or with `realm` in --registry-auth-file",
            )

    def _denied(self, reason: str) -> RegistryRefused:
        """With what to do next."""
        login = f"`hawker registry login {self._registry}`"
        unknown = f"the image does not exist, or needs credentials: {login}"
        hint = f"log in again with {login}" if self._credentials else unknown
        return RegistryRefused(401, "UNAUTHORIZED", f"{reason}; {hint}")


def _site(host: str) -> str:
    """The last two parts of a name; an address is its own."""
    return host if host.replace(".", "").isdigit() or ":" in host else ".".join(host.lower().split(".")[-2:])


def _read_token(body: bytes) -> str:
    try:
        found = msgspec.json.decode(body, type=_Token)
    except msgspec.DecodeError as error:
        raise RegistryRefused(0, "TOKEN", f"the token server's answer cannot be read: {error}") from error
    token = found.token or found.access_token
    if not token or not token.isascii() or not token.isprintable():
        raise RegistryRefused(0, "TOKEN", "the token server gave no token")
    return token


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
        """The manifest of `digest`, else of the reference. Raises `BadImage` with the text that clients know, or
        `Unavailable`."""
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
    """Checks a login at a registry. Raises `BadImage` when the registry does not take it, `Unavailable` when it does
    not answer."""
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
    if unit != "bytes" or not (start.isascii() and start.isdigit()):
        raise TryLater("the registry's Content-Range cannot be read")
    return int(start)
