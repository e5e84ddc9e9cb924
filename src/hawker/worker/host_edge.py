"""The edge of this host, as the daemon sees it: nothing, until a machine needs it or an earlier daemon's is there."""

from collections.abc import Mapping
from typing import Protocol

import anyio

from hawker.clock import Clock
from hawker.host.process_guard import ProcessGuard
from hawker.log import bind
from hawker.worker.edge_door import EdgeDoor

_ADDRESSES_EVERY_S = 1.0
_log = bind("hawker.edge")


class PrivateAddresses(Protocol):
    """Keeps addresses on the bridges of private networks."""

    async def serve_at(self, addresses: Mapping[int, frozenset[str]]) -> None: ...


class HostEdge:
    """The edge of this host, as the daemon sees it: nothing, until a machine needs it or an earlier daemon's is
    there."""

    def __init__(self, door: EdgeDoor, guard: ProcessGuard, networks: PrivateAddresses | None, clock: Clock) -> None:
        self.door = door
        self._guard = guard
        self._networks = networks
        self._clock = clock

    async def serve(self) -> None:
        """Keeps the edge of this host, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.door.watch_addresses)
            tasks.start_soon(self._keep_addresses)
            if not self._guard.is_there:
                await self.door.needed()
            self._guard.prepare()
            self.door.give_keys()
            self.door.order_processes()
            tasks.start_soon(self._guard.serve)
            tasks.start_soon(self.door.serve)
            tasks.start_soon(self.door.keep_keys)

    async def _keep_addresses(self) -> None:
        """Those of apps in private networks are the host's, on the bridge of each network. Until cancelled."""
        told: Mapping[int, frozenset[str]] = {}
        while self._networks is not None:
            wanted = self.door.private_addresses
            if wanted != told:
                try:
                    await self._networks.serve_at(wanted)
                    told = wanted
                except OSError as error:
                    _log.warning("private addresses of apps are not served", extra={"reason": error.strerror})
            await self._clock.sleep(_ADDRESSES_EVERY_S)

    async def end(self) -> None:
        await self._guard.end()
