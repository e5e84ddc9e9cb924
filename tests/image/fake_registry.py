"""A registry in this process that can be told to misbehave, and remembers what it was asked."""

import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.abc
from aiohttp import web
from aiohttp.test_utils import TestServer
from anyio.lowlevel import checkpoint

from hawker.clock import SystemClock
from tests.fixtures.parts import OCI_MANIFEST, ImageParts, sha256
from tests.waiting import eventually

USER, PASSWORD = "alice", "correct horse"
_BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
_CHUNK = 16_384


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    path: str
    authorization: str | None
    range: str | None


@dataclass(slots=True)
class FakeRegistry:
    """Behaviour is set by assigning. `cuts` are after how many bytes the next blob answers break off; `refusals` are
    statuses that the next requests get, `retry_after` with them."""

    guard: str = ""  # "", "basic" or "token"
    public: bool = False  # whether the token server gives tokens to anyone
    ranges: str = "served"  # or "ignored", "refused"
    redirect_to: str = ""
    retry_after: str = ""
    cuts: list[int] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    torn: bool = False  # whether the token server's answer comes in two pieces
    expired: int = 0  # tokens up to this number are not accepted any more
    manifests: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    tokens: int = 0
    together: int = 0  # blobs are sent once so many are asked for at the same time
    in_flight: int = 0
    most_in_flight: int = 0
    host: str = ""

    def add(self, repository: str, tag: str, image: ImageParts) -> str:
        """Gives the reference."""
        self.put_manifest(repository, tag, image.manifest)
        self.blobs |= image.blobs
        return f"{self.host}/{repository}:{tag}"

    def put_manifest(self, repository: str, tag: str, content: bytes, media_type: str = OCI_MANIFEST) -> None:
        for name in (tag, sha256(content)):
            self.manifests[f"{repository}/manifests/{name}"] = (content, media_type)

    def times(self, part: str) -> int:
        return sum(part in asked.path for asked in self.asked)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = request.headers
        self.asked.append(Asked(request.path, headers.get("Authorization"), headers.get("Range")))
        if self.refusals:
            later = {"Retry-After": self.retry_after} if self.retry_after else {}
            return web.json_response(_error("BUSY", "come back"), status=self.refusals.pop(0), headers=later)
        if request.path == "/token":
            return await self._token(request)
        if (refused := self._refused(request)) is not None:
            return refused
        if request.path == "/v2/":
            return web.json_response({})
        path = request.path.removeprefix("/v2/")
        if "/manifests/" in path:
            return self._manifest(path)
        return await self._blob(request, path.rpartition("/")[2])

    def _refused(self, request: web.Request) -> web.Response | None:
        given = request.headers.get("Authorization")
        match self.guard:
            case "basic" if given != _BASIC:
                return _unauthorized('Basic realm="test"')
            case "token" if not (given or "").startswith("Bearer t") or int((given or "")[8:]) <= self.expired:
                return _unauthorized(
                    f'Bearer realm="http://{self.host}/token",service="fake",scope="repository:x:pull"'
                )
        return None

    async def _token(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != _BASIC and not self.public:
            return web.json_response(_error("UNAUTHORIZED", "who are you"), status=401)
        self.tokens += 1
        told = {"token": f"t{self.tokens}", "expires_in": 60}
        return await _in_two_pieces(request, json.dumps(told).encode()) if self.torn else web.json_response(told)

    def _manifest(self, path: str) -> web.Response:
        if path not in self.manifests:
            return web.json_response(_error("MANIFEST_UNKNOWN", "manifest unknown"), status=404)
        content, media_type = self.manifests[path]
        return web.Response(body=content, content_type=media_type)

    async def _blob(self, request: web.Request, digest: str) -> web.StreamResponse:
        if self.redirect_to:
            return web.Response(status=307, headers={"Location": f"{self.redirect_to}{request.path}"})
        if digest not in self.blobs:
            return web.json_response(_error("BLOB_UNKNOWN", "blob unknown"), status=404)
        offset = self._offset(request)
        if offset is None:
            return web.Response(status=416)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await eventually(lambda: self.most_in_flight >= self.together)
            return await self._send(request, self.blobs[digest], offset)
        finally:
            self.in_flight -= 1

    def _offset(self, request: web.Request) -> int | None:
        asked = request.headers.get("Range")
        if not asked or self.ranges == "ignored":
            return 0
        return None if self.ranges == "refused" else int(asked.removeprefix("bytes=").rstrip("-"))

    async def _send(self, request: web.Request, blob: bytes, offset: int) -> web.StreamResponse:
        headers = {"Content-Range": f"bytes {offset}-{len(blob) - 1}/{len(blob)}"} if offset else {}
        response = web.StreamResponse(status=206 if offset else 200, headers=headers)
        response.content_length = len(blob) - offset
        await response.prepare(request)
        cut = self.cuts.pop(0) if self.cuts else None
        for chunk in _chunks(blob[offset:][:cut]):
            await response.write(chunk)
        if cut is not None and request.transport is not None:
            request.transport.close()
        return response


def _chunks(content: bytes) -> Iterator[bytes]:
    return (content[at : at + _CHUNK] for at in range(0, len(content), _CHUNK))


def _error(code: str, message: str) -> dict[str, list[dict[str, str]]]:
    return {"errors": [{"code": code, "message": message}]}


def _unauthorized(challenge: str) -> web.Response:
    return web.json_response(_error("UNAUTHORIZED", "no"), status=401, headers={"WWW-Authenticate": challenge})


@asynccontextmanager
async def fake_registry() -> AsyncIterator[FakeRegistry]:
    """Runs on a free loopback port until the block ends."""
    registry = FakeRegistry()
    app = web.Application()
    app.router.add_get("/{path:.*}", registry.handle)
    server = TestServer(app)
    await server.start_server()
    registry.host = f"127.0.0.1:{server.port}"
    try:
        yield registry
    finally:
        await server.close()


__all__ = ["PASSWORD", "USER", "Asked", "FakeRegistry", "dripping_registry", "fake_registry"]


async def _in_two_pieces(request: web.Request, body: bytes) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    await answer.write(body[:5])
    for _ in range(10):
        await checkpoint()  # its reader is in this loop, and reads the first piece meanwhile
    await answer.write(body[5:])
    return answer


@asynccontextmanager
async def dripping_registry(begin: bytes = b"HTTP/1.1 200 OK\r\nX: ") -> AsyncIterator[str]:
    """Begins an answer and never comes to its end, here that of its head; reads what comes. Gives its host."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:

        async def answer(client: anyio.abc.SocketStream) -> None:
            async with client, anyio.create_task_group() as both:
                both.start_soon(drip, client)
                async for _ in client:
                    pass
                both.cancel_scope.cancel()

        async def drip(client: anyio.abc.SocketStream) -> None:
            await client.send(begin)
            while True:
                await client.send(b"x")
                await SystemClock().sleep(0.02)

        group.start_soon(listener.serve, answer)
        yield f"127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        group.cancel_scope.cancel()
