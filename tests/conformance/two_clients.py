"""Two clients of one worker, over its HTTP plumbing and without a socket, in virtual time.

The server, its codecs, its handlers and the worker are the real ones; the host below is played. A call returns when it
is answered and what it set off has come to rest, so that a model of resting states can say what the next one answers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hawker.api.grant import Everything, Grant
from hawker.api.routes import ROUTES
from hawker.api.server import Server
from hawker.errors import Unauthorized
from hawker.sim.harness.loop import VirtualTimeLoop
from hawker.sim.node.kit import SOUND, WorkerKit
from hawker.sim.node.sim_worker import SimWorker, handlers_of_one
from hawker.sim.node.world import MemoryWorld

T = TypeVar("T")
CLIENTS = ("ann", "bob")
APP = "shop"


@dataclass(frozen=True, slots=True)
class Heard:
    status: int
    body: Any

    @property
    def text(self) -> str:
        return str(self.body.get("error", "")) if isinstance(self.body, dict) else ""


async def _authenticate(authorization: str | None, source: str) -> Grant:
    name = (authorization or "").removeprefix("Bearer ")
    if name not in CLIENTS:
        raise Unauthorized("no such token")
    return Everything(name)


class Both:
    """A worker that lives until `close`; what it is made of may have a bug."""

    def __init__(self, directory: Path, kit: WorkerKit = SOUND) -> None:
        self._runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
        self._stall = MemoryWorld(directory, kit=kit)
        self._runner.run(self._begin())

    def call(
        self, client: str, method: str, path: str, body: Any = None, *, nonce: str | None = None, **headers: str
    ) -> Heard:
        given = {"authorization": f"Bearer {client}", **headers}
        if nonce is not None:
            given["fly-machine-lease-nonce"] = nonce
        return self._runner.run(self._called(method, path, body, given))

    def wait(self, seconds: float) -> None:
        self._runner.run(self._stall.clock.sleep(seconds))

    def now(self) -> float:
        return self._runner.run(_value(self._stall.clock.now))

    def close(self) -> None:
        self._runner.run(self._end())
        self._runner.close()

    async def _begin(self) -> None:
        self._over, ready = asyncio.Event(), asyncio.Event()
        self._life = asyncio.ensure_future(self._live(ready))
        await asyncio.wait({self._life, asyncio.ensure_future(ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
        if self._life.done():
            self._life.result()

    async def _live(self, ready: asyncio.Event) -> None:
        async with self._stall.open() as worker:
            self._worker: SimWorker = worker
            handlers = handlers_of_one(worker.parts)
            served = [route for route in ROUTES if not handlers.missing((route,))]
            self._server = Server(handlers, _authenticate, self._stall.clock, routes=served)
            ready.set()
            await self._over.wait()

    async def _end(self) -> None:
        self._over.set()
        await self._life

    async def _called(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Heard:
        heard = await _ask(self._server, method, path, body, headers.items())
        await self._worker.at_rest()
        return heard


async def _value(of: Callable[[], T]) -> T:
    return of()


async def _ask(server: Server, method: str, path: str, body: Any, headers: Iterable[tuple[str, str]]) -> Heard:
    """One request as ASGI has it."""
    data = b"" if body is None else msgspec.json.encode(body)
    where, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": where,
        "raw_path": where.encode(),
        "query_string": query.encode(),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers],
        "client": ("127.0.0.1", 1),
    }
    status, answered = 0, bytearray()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            answered.extend(message.get("body", b""))

    told: Awaitable[None] = server(scope, receive, send)
    await told
    return Heard(status, msgspec.json.decode(bytes(answered)) if answered else None)
