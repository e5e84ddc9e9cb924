"""Who asks for something by HTTP, and what all requests of a process share. How a client frames its messages is its own
matter; `exchange` serves it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import anyio

from hawker import log
from hawker.clock import Clock
from hawker.edge.app_figures import AppFigures
from hawker.edge.body import Trailer
from hawker.edge.dialing import Dialer
from hawker.edge.head import Field, ResponseHead
from hawker.edge.kept_machines import KeptMachines
from hawker.edge.replay_cache import ReplayRoutes
from hawker.edge.routes import Door, Routes
from hawker.edge.visits import Counters, Spawn, Visits
from hawker.edge.writing import OwnAnswer
from hawker.fair.connections import ConnectionTable
from hawker.fair.occupancy import Occupancy
from hawker.fair.round_robin import RoundRobin
from hawker.feed import EdgeLogLine
from hawker.ids import AppName, new_request_id
from hawker.value_object import ValueObject

_log = log.bind("hawker.edge")
_CANCEL_AGAIN_S = 1.0


class HttpServices(ValueObject, frozen=True, kw_only=True):
    """The objects that all requests of a process share. `kept` counts bytes of bodies that may be sent again. `say`
    tells the app's log what could not be done; `claimer` gives the app that a host name is of; `challenge` answers a
    certificate authority that asks for this token at this host, at this door."""

    routes: Routes
    visits: Visits
    dialer: Dialer
    machines: KeptMachines
    replays: ReplayRoutes
    kept: Occupancy
    table: ConnectionTable
    entrance: RoundRobin
    clock: Clock
    counters: Counters
    figures: AppFigures
    spawn: Spawn
    say: Callable[[EdgeLogLine], None]
    claimer: Callable[[str], AppName | None]
    challenge: Callable[[Door, str, str], str | None]
    region: Callable[[], str]

    def new_request_id(self) -> bytes:
        return new_request_id(self.clock, self.region())


class RequestTasks:
    """The tasks of connections and requests. They are the event loop's own: those of a task group took a fifth of a
    short request's processor time. A mistake of ours costs the connection that met it, and no other."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(work, arguments))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def serve(self) -> None:
        """Wait until cancelled. Then the tasks are cancelled, too, and have ended when this returns."""
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                while self._running:
                    for task in self._running:
                        task.cancel()
                    await asyncio.wait(self._running, timeout=_CANCEL_AGAIN_S)

    async def _guarded(self, work: Callable[..., Coroutine[Any, Any, None]], arguments: tuple[Any, ...]) -> None:
        try:
            await work(*arguments)
        except Exception:  # noqa: BLE001 - logged, with where it was
            self._counters.add("mistakes")
            _log.exception("a connection ended by a mistake of ours")


class Requester(Protocol):
    """The client's side of a request."""

    @property
    def gone(self) -> bool:
        """Whether the client is gone, so that nobody hears an answer."""

    @property
    def leaving(self) -> bool:
        """Whether the client has said its last. One that waits for a machine all the same has left, most likely."""

    @property
    def choked(self) -> bool:
        """Whether the client takes no more of the answer for the moment. When that changes, it tells its exchange."""

    def begin_body(self) -> None:
        """Pass the body, the bytes that have come and those that come, to `HttpExchange.take`: there is a machine."""

    def proceed(self) -> None:
        """Say that the body may come, to a client that waits for that."""

    def may_read(self, *, reading: bool) -> None:
        """Note whether the machine takes more of the body now."""

    def interim(self, answer: ResponseHead, fields: list[Field]) -> None: ...

    def answer(self, answer: ResponseHead, fields: list[Field]) -> None: ...

    def write(self, content: bytes) -> None: ...

    def finish(self, trailers: tuple[Trailer, ...]) -> None:
        """End the answer: it is whole."""

    def say(self, answer: OwnAnswer) -> None: ...

    def break_off(self) -> None:
        """End the connection or stream so that the client sees that the answer that was begun has no end."""

    def hand_over(self, answer: ResponseHead, fields: list[Field]) -> tuple[asyncio.Transport, bytes] | None:
        """Hand the connection over, for bytes both ways from now on, with the bytes that have come already; None when
        the client has left."""
