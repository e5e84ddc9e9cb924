"""HTTP as registries need it: one GET with deadlines, its failures sorted into "refused" and "try later".

Redirects are followed here, so that credentials stay with the host they are for and nobody is led from TLS to plain
HTTP. No content is kept. What fails for now is tried again: capped, jittered, and as late as the registry asks for.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import TypeVar
from urllib.parse import SplitResult, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec

from hawker.clock import Clock
from hawker.errors import Unavailable

T = TypeVar("T")

_TRIES = 5
_FIRST_S = 0.3
_LONGEST_S = 15.0

_CONNECT_S = 10.0
_SILENCE_S = 30.0
_REDIRECTS = 5
_ERROR_LIMIT = 64 << 10
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
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


def new_session() -> aiohttp.ClientSession:
    """Bodies come as they are sent: a blob is hashed before anything unpacks it."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=64),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENCE_S),
        headers={"User-Agent": "hawker", "Accept-Encoding": "identity"},
    )


class RegistryTransport:
    """`plain_hosts` may be spoken to without TLS, beside loopback."""

    def __init__(self, session: aiohttp.ClientSession, plain_hosts: frozenset[str]) -> None:
        self.session = session
        self._plain_hosts = plain_hosts

    def scheme(self, host: str) -> str:
        """How to speak to `host` (with its port, if it has one)."""
        return "http" if self._may_be_plain(urlsplit(f"//{host}")) else "https"

    @asynccontextmanager
    async def get(self, url: str, headers: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful answer, or one of 401, whose challenge the caller reads. Raises `RegistryRefused`, `TryLater`.
        What breaks while the caller reads the body is `TryLater` as well."""
        host = urlsplit(url).netloc
        try:
            response = await self._follow(url, dict(headers))
            try:
                await _judge(response)
                yield response
            finally:
                response.close()
        except aiohttp.ClientConnectorCertificateError as error:
            raise RegistryRefused(0, "CERTIFICATE", f"the certificate of {host} cannot be trusted: {error}") from error
        except aiohttp.ClientConnectorSSLError as error:
            hint = "if it speaks plain HTTP, list it in insecure_registries"
            raise RegistryRefused(0, "TLS", f"{host} does not speak TLS; {hint}") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TryLater(f"cannot reach {host}: {_cause(error)}") from error

    async def _follow(self, url: str, headers: dict[str, str]) -> aiohttp.ClientResponse:
        for _ in range(_REDIRECTS + 1):
            self._check_way(url)
            response = await self.session.get(url, headers=headers, allow_redirects=False, proxy=self._proxy(url))
            target = response.headers.get("Location")
            if response.status not in _REDIRECTED or not target:
                return response
            response.close()
            onward = urljoin(url, target)
            if _origin(onward) != _origin(url):
                headers.pop("Authorization", None)
            url = onward
        raise RegistryRefused(0, "REDIRECTS", f"{urlsplit(url).netloc} redirects in circles")

    def _check_way(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme == "https" or (parts.scheme == "http" and self._may_be_plain(parts)):
            return
        raise RegistryRefused(0, "INSECURE", f"refusing to speak {parts.scheme or 'nothing known'} to {parts.netloc}")

    def _may_be_plain(self, parts: SplitResult) -> bool:
        return parts.netloc in self._plain_hosts or parts.hostname in self._plain_hosts or is_loopback(parts.hostname)

    def _proxy(self, url: str) -> str | None:
        """The proxy that the environment names; never for loopback. aiohttp's own way would send passwords of .netrc as
        well."""
        parts = urlsplit(url)
        if not parts.hostname or is_loopback(parts.hostname) or proxy_bypass(parts.hostname):
            return None
        return getproxies().get(parts.scheme)


def is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


async def _judge(response: aiohttp.ClientResponse) -> None:
    status = response.status
    if status in (200, 206, 401):
        return
    code, message = read_error(await response.content.read(_ERROR_LIMIT))
    reason = message or response.reason or "no reason given"
    if status in _LATER:
        raise TryLater(f"{response.url.host} answered {status}: {reason}", after_s=_retry_after(response))
    raise RegistryRefused(status, code or str(status), reason)


def read_error(body: bytes) -> tuple[str, str]:
    """Code and message of a registry's error body; empty for a body of another kind."""
    try:
        found = msgspec.json.decode(body, type=_Errors).errors
    except msgspec.DecodeError:
        return "", ""
    return (found[0].code[:100], found[0].message[:300]) if found else ("", "")


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else None


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _cause(error: Exception) -> str:
    return str(error) or type(error).__name__
