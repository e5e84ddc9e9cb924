"""Connections to machines that requests use one after the other: those of this host rest here, those of another host at
its gate. A request finds here what it may use, and gives back what the next one may.
"""

from collections.abc import Callable
from functools import partial

from hawker.edge.app_figures import AppFigures
from hawker.edge.head import IDEMPOTENT, RequestHead
from hawker.edge.hops import HopDialer
from hawker.edge.machine_connection import MachineConnection, MachinePool
from hawker.edge.machine_http2 import connection_with
from hawker.edge.routes import ServiceTarget
from hawker.edge.visits import Visit


class KeptMachines:
    """Finds and keeps connections to machines, for one event loop. `now` is its clock."""

    def __init__(
        self, pool: MachinePool[MachineConnection], hops: HopDialer, figures: AppFigures, now: Callable[[], float]
    ) -> None:
        self._pool = pool
        self._hops = hops
        self._figures = figures
        self._now = now

    def make(self, target: ServiceTarget) -> MachineConnection:
        """A new connection to the target's machine."""
        return connection_with(self._now, target)

    def take(self, head: RequestHead | None, visit: Visit) -> MachineConnection | None:
        """A connection that was used before; None without one. With a `head` the request may ask the gate of another
        host itself, which may have such a connection: it must be a request that may be repeated."""
        target = visit.target
        if target.is_near:
            return self._pool.take(target)
        if head is None or head.has_body or head.upgrade or head.method not in IDEMPOTENT:
            return None
        connection = self.make(target)
        told = partial(self._figures.verdict, target.machine.app)
        return connection if connection.bare and self._hops.ask_first(visit, connection, told) else None

    def may_keep(self, connection: MachineConnection, target: ServiceTarget) -> bool:
        """Whether requests of the target's service share connections, and this connection can be shared."""
        given = target.service.concurrency
        shared = given is not None and given.type == "requests"
        return shared and (target.is_near or connection.keeps_afar)

    def keep(self, connection: MachineConnection, target: ServiceTarget) -> None:
        if target.is_near:
            self._pool.keep(target, connection)
        else:
            connection.rest_afar()
