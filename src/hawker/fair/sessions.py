"""Sessions of aiohttp. One without a bound of our own has 100 connections for everybody, and whoever keeps them busy
keeps the others waiting: here, whoever opens a session says how it is bounded.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hawker.deferred import deferred

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver
else:
    aiohttp = deferred("aiohttp")


def kept_session(
    connections: int = 0, *, resolver: "AbstractResolver | None" = None, **options: Any
) -> "aiohttp.ClientSession":
    """A session for one party at the other end, which shares with nobody. At most `connections` at once; 0: as many as
    are asked for, so their number is bounded where the calls begin."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections, resolver=resolver), **options)


def fleeting_session() -> "aiohttp.ClientSession":
    """A session for many parties that nobody trusts: each request has a connection of its own, which ends with it. The
    number of connections is bounded by the shares of the callers."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


async def begin_of(answer: "aiohttp.ClientResponse", most_bytes: int) -> bytes:
    """The body, or its first `most_bytes`. One `read` of the library gives what has come so far, however little.
    How long it may take is for the caller to say: the other end may send a byte now and then."""
    found = b""
    while len(found) < most_bytes and (more := await answer.content.read(most_bytes - len(found))):
        found += more
    return found


class SessionAtNeed:
    """A session that is made at its first use: the library takes longer to import than a boot may."""

    def __init__(self, make: "Callable[[], aiohttp.ClientSession]") -> None:
        self._make = make
        self._made: aiohttp.ClientSession | None = None

    def __call__(self) -> "aiohttp.ClientSession":
        if self._made is None:
            self._made = self._make()
        return self._made

    async def aclose(self) -> None:
        if self._made is not None:
            await self._made.close()
