"""HTTP as registries need it: one request with deadlines, its failures sorted into "refused" and "try later".

Redirects are followed here, so that credentials stay with the host they are for and `reach` judges every hop. What a
server says is for the log; callers are told its code. No content is kept. What fails for now is tried again: capped,
jittered, and as late as the registry asks for.
"""

import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import anyio
import msgspec

from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.errors import Unavailable
from hawker.fair.sessions import begin_of, kept_session
from hawker.image.reach import InsideAddress, PullReach, is_loopback
from hawker.log import bind

if TYPE_CHECKING:
    import aiohttp

    from hawker.image import resolver
else:
    aiohttp = deferred("aiohttp")
    resolver = deferred("hawker.image.resolver")

T = TypeVar("T")

_log = bind("hawker.image")
_TRIES = 5
_FIRST_S = 0.3
_LONGEST_S = 15.0

_CONNECT_S = 10.0
_SILENCE_S = 30.0
_ANSWER_S = 60.0  # from a request to the head of its last answer
_REDIRECTS = 5
_ERROR_LIMIT = 64 << 10
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
_CHANGED = frozenset({201, 202, 204})
_REDIRECTED = frozenset({301, 302, 303, 307, 308})


class TryLater(Exception):
    """The registry or the way to it failed for now. `progressed`: some of the content came, so count anew."""

    def __init__(self, reason: str, *, after_s: float | None = None, progressed: bool = False) -> None:
        super().__init__(reason)
        self.after_s = after_s
        self.progressed = progressed


async def persist(clock: Clock, doing: str, call: Callable[[], Awaitable[T]]) -> T:
    """The call's answer. Raises `Unavailable` with the last reason after five tries in a row without progress."""
    failed = 0
    while True:
        try:
            return await call()
        except TryLater as error:
            failed = 1 if error.progressed else failed + 1
            if failed >= _TRIES:
                raise Unavailable(f"{doing}: {error}") from error
            await clock.sleep(_wait_s(failed, error.after_s, clock.random()))


def _wait_s(failed: int, asked_s: float | None, jitter: float) -> float:
    own: float = _FIRST_S * 2 ** (failed - 1)
    return min(_LONGEST_S, max(own, asked_s or 0.0)) * (0.75 + jitter / 4)


class RegistryRefused(Exception):
    """The server's answer is no. `code` is the registry's own word for it, like MANIFEST_UNKNOWN."""

    def __init__(self, status: int, code: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    code: str = ""
    message: str = ""


class _Errors(msgspec.Struct, frozen=True, kw_only=True):
    errors: tuple[_Error, ...] = ()


_WORDS = {
    "BLOB_UNKNOWN": "blob unknown to registry",
    "DENIED": "requested access to the resource is denied",
    "MANIFEST_INVALID": "manifest invalid",
    "MANIFEST_UNKNOWN": "manifest unknown",
    "NAME_INVALID": "invalid repository name",
    "NAME_UNKNOWN": "repository name not known to registry",
    "TOOMANYREQUESTS": "too many requests",
    "UNAUTHORIZED": "authentication required",
    "UNSUPPORTED": "the operation is unsupported",
}
"""The codes of the OCI distribution specification that a pull can meet, with its words. What else a server says could
be of any service that we were led to."""


def new_session(reach: PullReach) -> "aiohttp.ClientSession":
    """Bodies come as they are sent: a blob is hashed before anything unpacks it."""
    proxies = frozenset(urlsplit(proxy).hostname or "" for proxy in getproxies().values())
    return kept_session(
        resolver=resolver.PublicResolver(reach, proxies),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENCE_S),
        headers={"User-Agent": "hawker", "Accept-Encoding": "identity"},
    )


class RegistryTransport:
    """`session` gives one of `new_session`. The head of an answer comes within `answer_s` seconds of the request,
    redirects included, or of the last byte of what is sent, and what is read of a small body within as many: silence
    alone does not end one that drips."""

    def __init__(
        self, session: "Callable[[], aiohttp.ClientSession]", reach: PullReach, answer_s: float = _ANSWER_S
    ) -> None:
        self.session = session
        self.reach = reach
        self._answer_s = answer_s

    @asynccontextmanager
    async def get(
        self, url: str, headers: Mapping[str, str], registry: str, before: str | None = None
    ) -> "AsyncIterator[aiohttp.ClientResponse]":
        """The answer to a request of a pull of `registry`, which was led here from the URL `before`: a successful
        answer, or one of 401, whose challenge the caller reads. Raises `RegistryRefused`, `TryLater`. What breaks while
        the caller reads the body is `TryLater` as well."""
        with _failures(urlsplit(url).netloc):
            with self._deadline(url):
                response = await self._follow(url, dict(headers), registry, before)
            try:
                await self._judge(response)
                yield response
            finally:
                response.close()

    @asynccontextmanager
    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        registry: str,
        data: AsyncIterator[bytes] | bytes | None = None,
        before: str | None = None,
    ) -> "AsyncIterator[aiohttp.ClientResponse]":
        """The answer as of `get`, to a request that may change something: one that is redirected is refused, and "not
        there" (404) is an answer."""
        with _failures(urlsplit(url).netloc):
            if refusal := self.reach.refusal(url, registry, before):
                raise RegistryRefused(0, "INSECURE", refusal)
            with self._deadline(url) as deadline:
                body = data if data is None or isinstance(data, bytes) else self._told(data, deadline)
                response = await self.session().request(
                    method, url, headers=headers, data=body, allow_redirects=False, proxy=self._proxy(url)
                )
            try:
                if response.status not in (*_CHANGED, 404):
                    await self._judge(response)
                yield response
            finally:
                response.close()

    async def begin(self, response: "aiohttp.ClientResponse", most_bytes: int) -> bytes:
        """The body of an answer, or its first `most_bytes`. Raises `TryLater`."""
        with self._deadline(str(response.url)):
            return await begin_of(response, most_bytes)

    async def _judge(self, response: "aiohttp.ClientResponse") -> None:
        """By its status alone, if what the error says is long in coming."""
        status = response.status
        if status in (200, 206, 401):
            return
        body = b""
        with anyio.move_on_after(self._answer_s):
            body = await begin_of(response, _ERROR_LIMIT)
        code, message = read_error(body)
        words = _WORDS.get(code)
        _log.info("registry refused", extra={"host": response.url.host, "http": status, "code": code, "said": message})
        if status in _LATER:
            raise TryLater(f"{response.url.host} answered {status}", after_s=_retry_after(response))
        raise RegistryRefused(status, code if words else str(status), words or f"the registry answered {status}")

    @contextmanager
    def _deadline(self, url: str) -> Iterator[anyio.CancelScope]:
        with anyio.move_on_after(self._answer_s) as scope:
            yield scope
        if scope.cancelled_caught:
            raise TryLater(f"{urlsplit(url).netloc} does not answer within {self._answer_s:.0f} s")

    async def _told(self, data: AsyncIterator[bytes], deadline: anyio.CancelScope) -> AsyncIterator[bytes]:
        deadline.deadline = math.inf
        async for chunk in data:
            yield chunk
        deadline.deadline = anyio.current_time() + self._answer_s

    async def _follow(
        self, url: str, headers: dict[str, str], registry: str, before: str | None
    ) -> "aiohttp.ClientResponse":
        for _ in range(_REDIRECTS + 1):
            if refusal := self.reach.refusal(url, registry, before):
                raise RegistryRefused(0, "INSECURE", refusal)
            response = await self.session().get(url, headers=headers, allow_redirects=False, proxy=self._proxy(url))
            target = response.headers.get("Location")
            if response.status not in _REDIRECTED or not target:
                return response
            response.close()
            onward = _joined(url, target)
            if _origin(onward) != _origin(url):
                headers.pop("Authorization", None)
            before, url = url, onward
        raise RegistryRefused(0, "REDIRECTS", f"{urlsplit(url).netloc} redirects in circles")

    def _proxy(self, url: str) -> str | None:
        """The proxy that the environment names; never for loopback. aiohttp's own way would send passwords of .netrc as
        well."""
        parts = urlsplit(url)
        if not parts.hostname or is_loopback(parts.hostname) or proxy_bypass(parts.hostname):
            return None
        return getproxies().get(parts.scheme)


@contextmanager
def _failures(host: str) -> Iterator[None]:
    """Says in the words of this module what went wrong on the way."""
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise RegistryRefused(0, "CERTIFICATE", f"the certificate of {host} cannot be trusted: {error}") from error
    except aiohttp.ClientConnectorSSLError as error:
        hint = "if it speaks plain HTTP, list it in insecure_registries"
        raise RegistryRefused(0, "TLS", f"{host} does not speak TLS; {hint}") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        if isinstance(error.__cause__, InsideAddress):
            raise RegistryRefused(0, "PRIVATE", str(error.__cause__)) from error
        raise TryLater(f"cannot reach {host}: {_cause(error)}") from error


def read_error(body: bytes) -> tuple[str, str]:
    """Code and message of a registry's error body; empty for a body of another kind."""
    try:
        found = msgspec.json.decode(body, type=_Errors).errors
    except msgspec.DecodeError:
        return "", ""
    return (found[0].code[:100], found[0].message[:300]) if found else ("", "")


def _retry_after(response: "aiohttp.ClientResponse") -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else None


def _joined(url: str, target: str) -> str:
    try:
        return urljoin(url, target)
    except ValueError as error:
        raise RegistryRefused(0, "REDIRECTS", "the registry redirects to what is no URL") from error


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _cause(error: Exception) -> str:
    """The system's own words where there are some: aiohttp's repeat the host, with its settings."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return str(error) or type(error).__name__
    system = error.os_error
    known = isinstance(system, OSError) and system.errno is not None and system.errno > 0
    text = os.strerror(system.errno or 0) if known else system.strerror or str(system)
    proxied = isinstance(error, aiohttp.ClientProxyConnectionError)
    return f"its proxy, which the environment names: {text}" if proxied else text
