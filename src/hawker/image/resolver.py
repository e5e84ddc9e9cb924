"""The addresses of a registry's name, and of what it leads to: looked up once, judged by `reach.py`, and then used."""

import socket
from collections.abc import Container
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from hawker.fair.threads import Pool, in_thread
from hawker.image.reach import InsideAddress, PullReach, is_inside, not_public


class PublicResolver(AbstractResolver):
    """Addresses of a name, those of the inside only when it is listed, or the proxy that the environment names.
    `localhost` was judged as it is written, by `PullReach.refusal`."""

    def __init__(self, reach: PullReach, proxies: Container[str] = frozenset()) -> None:
        self._reach = reach
        self._proxies = proxies

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host that a pull may reach. Raises `InsideAddress` when there is none but inside ones,
        `OSError` when there is none at all."""
        found = await in_thread(Pool.NAMES, _look_up, host, port, family)
        free = host in self._proxies or is_inside(host) or self._reach.is_listed(host, port)
        public = found if free else [each for each in found if not is_inside(each["host"])]
        if not public:
            raise InsideAddress(not_public(host))
        return public

    async def close(self) -> None:
        return None


def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    infos: list[Any] = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return [
        ResolveResult(hostname=host, host=where[0], port=where[1], family=kind, proto=proto, flags=flags)
        for kind, _, proto, _, where in infos
    ]
