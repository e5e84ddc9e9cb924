"""Answers a registry's challenge: basic, or a bearer token from the server that the challenge names.

Invariant: a password goes only to the registry itself and to the token server that this registry names over a way that
is as safe as the one to the registry.
"""

from urllib.parse import urlencode, urlsplit

import anyio
import msgspec

from hawker.image.challenge import Challenge, parse_challenges
from hawker.image.credentials import Credentials
from hawker.image.transport import Refused, Transport

_TOKEN_LIMIT = 256 << 10


class _Token(msgspec.Struct, frozen=True, kw_only=True):
    token: str = ""
    access_token: str = ""


class Authorizer:
    """For one repository. Shared by requests in flight: whoever meets the challenge first answers it for all."""

    def __init__(self, transport: Transport, repository: str, credentials: Credentials | None) -> None:
        self._transport = transport
        self._repository = repository
        self._credentials = credentials
        self._lock = anyio.Lock()
        self._header: str | None = None

    def headers(self) -> dict[str, str]:
        return {"Authorization": self._header} if self._header else {}

    async def answer(self, challenges: list[str], tried: dict[str, str]) -> None:
        """Find what to send. `tried` are the headers that were refused. Raises `Refused` when there is nothing else."""
        async with self._lock:
            if self.headers() != tried:
                return  # another request has found it
            if tried and self._header and self._header.startswith("Basic "):
                raise self._denied("wrong user name or password")
            self._header = await self._find(parse_challenges(challenges))

    async def _find(self, challenges: list[Challenge]) -> str:
        for challenge in challenges:
            if challenge.scheme == "bearer" and challenge.get("realm"):
                return "Bearer " + await self._token(challenge)
        if any(challenge.scheme == "basic" for challenge in challenges) and self._credentials:
            return self._credentials.basic()
        raise self._denied("authentication required")

    async def _token(self, challenge: Challenge) -> str:
        """The distribution project's token specification: GET realm with service and scope."""
        realm = challenge.get("realm") or ""
        scope = challenge.get("scope") or f"repository:{self._repository}:pull"
        query = {"service": challenge.get("service") or "", "scope": scope}
        if self._credentials:
            query["account"] = self._credentials.username
        url = realm + ("&" if urlsplit(realm).query else "?") + urlencode({k: v for k, v in query.items() if v})
        headers = {"Authorization": self._credentials.basic()} if self._credentials else {}
        async with self._transport.get(url, headers) as response:
            if response.status != 200:
                raise self._denied("wrong user name or password" if self._credentials else "authentication required")
            return _read_token(await response.content.read(_TOKEN_LIMIT))

    def _denied(self, reason: str) -> Refused:
        hint = "" if self._credentials else "; the image does not exist, or needs credentials"
        return Refused(401, "UNAUTHORIZED", reason + hint)


def _read_token(body: bytes) -> str:
    try:
        found = msgspec.json.decode(body, type=_Token)
    except msgspec.DecodeError as error:
        raise Refused(0, "TOKEN", f"the token server's answer cannot be read: {error}") from error
    token = found.token or found.access_token
    if not token or not token.isascii() or not token.isprintable():
        raise Refused(0, "TOKEN", "the token server gave no token")
    return token
