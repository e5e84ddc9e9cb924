"""From a request to a connection with a machine that has room for it. What a machine refuses may go to another one: not
a byte has reached it.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from msgspec.structs import replace

from hawker.clock import Clock
from hawker.edge.app_figures import AppFigures
from hawker.edge.gates import Gate
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.routes import ServiceTarget
from hawker.edge.steering import Aim
from hawker.edge.visits import WAKE_TIMEOUT_S, Visit, Visits
from hawker.host.local_socket import connect_to
from hawker.value_object import ValueObject

P = TypeVar("P", bound=asyncio.BaseProtocol)

CONNECT_TIMEOUT_S = 1.0
LET_IN = "go"
"""The name under which a gate's verdict is counted when it lets a request in."""
_RECEIVED_BYTES, _CROWD, _RECEIVED_IN_CROWD = 64 << 10, 32, 16 << 10
"""Bytes of one connection to a machine that wait in the kernel to be read (it takes twice as much for what it keeps
beside them); visits above which a machine has a crowd; and the bytes in a crowd: all of its requests may have something
to be read in one turn of the event loop."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05


class Joined(ValueObject, Generic[P], frozen=True):
    """A connection to a machine, and the visit that it is counted by."""

    visit: Visit
    protocol: P


class Hops(Protocol):
    """The way to machines of other hosts."""

    async def dial(self, visit: Visit, began: float, make: Callable[[], P], *, lasting: bool) -> P:
        """A connection through the gate of the visit's machine; `make` makes its protocol. Raises `ProxyError`."""


class Dialer:
    """Connects requests with machines, for one event loop."""

    def __init__(self, visits: Visits, clock: Clock, hops: Hops, figures: AppFigures) -> None:
        self._visits = visits
        self._hops = hops
        self._figures = figures
        self._clock = clock
        self._now = clock.monotonic

    async def reach(
        self,
        aim: Aim,
        began: float,
        make: Callable[[ServiceTarget], P],
        *,
        rested: Callable[[Visit], P | None] = lambda visit: None,
        lasting: bool = False,
        cause: ProxyError | None = None,
        visit: Visit | None = None,
    ) -> Joined[P]:
        """Find a machine and connect with it. The caller calls `Visits.end` with its visit in the end. `rested` gives a
        connection that can be used again; a `lasting` connection has no end of its own. `cause` is why the last machine
        did not take the request. `visit` has begun already, and found no connection to use again. Raises
        `ProxyError`."""
        while True:
            if visit is None:
                visit = await self._visits.begin(aim, began, cause)
                again = rested(visit)
                if again is not None:
                    return Joined(visit, again)
            try:
                return Joined(visit, await self.dial(visit, began, make, lasting=lasting))
            except ProxyError as error:
                cause = error
                self._visits.end(visit)
                if visit.target.machine.region and error.code in (Code.PR01, Code.PR02):  # nobody there can take it
                    aim = replace(aim, steering=aim.steering.without(visit.target.machine.id))
                visit = None
            except BaseException:
                self._visits.end(visit)
                raise

    async def dial(self, visit: Visit, began: float, make: Callable[[ServiceTarget], P], *, lasting: bool = False) -> P:
        """Connect with the visit's machine. A machine that took no connection yet is given time to begin, unless
        another one has room; a machine that took one before is not asked twice. Raises `ProxyError`."""
        if not visit.target.is_near:
            return await self._hop(visit, began, partial(make, visit.target), lasting=lasting)
        target, gate, pause_s, asked_at = visit.target, visit.gate, _FIRST_PAUSE_S, self._now()
        while True:
            beginning = target.number not in gate.proven and not visit.trial
            try:
                protocol = await _connect(gate, target, partial(make, target))
            except OSError as error:
                late = self._now() > began + WAKE_TIMEOUT_S
                if not beginning or late or not gate.is_open:
                    gate.failed(target.number, self._now())
                    raise _refused(gate, target, error) from error
            else:
                gate.answered(target.number)
                self._figures.machine_dialled(target.machine, self._now() - asked_at)
                return protocol
            await self._clock.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)

    async def _hop(self, visit: Visit, began: float, make: Callable[[], P], *, lasting: bool) -> P:
        """Raises `ProxyError`."""
        try:
            protocol = await self._hops.dial(visit, began, make, lasting=lasting)
        except ProxyError as error:
            self._figures.verdict(visit.target.machine.app, error.code.name)
            raise
        self._figures.verdict(visit.target.machine.app, LET_IN)
        return protocol


async def _connect(gate: Gate, target: ServiceTarget, make: Callable[[], P]) -> P:
    """Raises `OSError` of the last of the machine's addresses."""
    port, failure = target.service.internal_port or 0, OSError("it has no address")
    for host in gate.route.hosts:
        try:
            transport, protocol = await asyncio.wait_for(_opened(make, host, port), CONNECT_TIMEOUT_S)
            _read_little(transport, _RECEIVED_IN_CROWD if gate.total > _CROWD else _RECEIVED_BYTES)
        except OSError as error:  # a timeout, too
            failure = error
        else:
            return protocol
    raise failure


def _opened(make: Callable[[], P], host: str, port: int) -> Awaitable[tuple[asyncio.BaseTransport, P]]:
    """`host` is an address, or the path of a socket from the edge's folder on. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    if "/" in host:
        return loop.create_unix_connection(make, sock=connect_to(Path(host)))
    return loop.create_connection(make, host, port)


def _read_little(transport: asyncio.BaseTransport, most_bytes: int) -> None:
    """A machine is near, so a small window costs it nothing; and hundreds that pour at once are read in short turns."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, most_bytes)


def _refused(gate: Gate, target: ServiceTarget, error: OSError) -> ProxyError:
    port = target.service.internal_port
    known = f"machine {gate.route.id} takes no connection on port {port} ({error}): does the app listen on 0.0.0.0?"
    return ProxyError(Code.PC01, known=known)
