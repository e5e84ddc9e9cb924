"""Addresses that are at one host of a region at a time: which of its public edges has which, and the task that puts
this node's at its interface. All nodes come to the same by themselves; where two do not agree for a moment both have an
address, which costs connections and nothing else, since edges keep no truth.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Protocol

import anyio

from hawker.catalog.contract import Statement
from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.fair.threads import Pool, in_thread
from hawker.fleet.failover import CatalogQueries
from hawker.ids import NodeId
from hawker.log import bind

START_S, EVERY_S = 5.0, 0.5
"""A node that begins looks who is there before it takes anything."""
_TOLD = 3
"""The times that neighbours are told of an address, once in `EVERY_S`: what tells them may be lost."""
_QUERY_S, _END_S = 5.0, 5.0
_ADDRESSES = "SELECT DISTINCT ip FROM app_ips ORDER BY ip LIMIT 10000"
_DRAINING = "SELECT node FROM nodes WHERE draining = 1"
_log = bind("hawker.floating")


class AddressDevice(Protocol):
    """This host's interface; for worker threads. Each raises `OSError`."""

    def held(self) -> frozenset[str]: ...

    def take(self, address: str) -> None: ...

    def drop(self, address: str) -> None: ...

    def tell(self, address: str) -> None: ...


def holder_of(address: str, edges: Collection[NodeId]) -> NodeId | None:
    """The node of `edges` that has the address; None when there are no edges. When a node goes, only its own addresses
    move (rendezvous hashing)."""
    return max(
        edges, key=lambda node: (blake2b(f"{node}/{address}".encode(), digest_size=8).digest(), node), default=None
    )


class FloatingAddresses:
    """`edges` are this region's public edges that take part and live, this node included."""

    def __init__(
        self,
        me: NodeId,
        networks: Iterable[IPv4Network | IPv6Network],
        catalog: CatalogQueries,
        edges: Callable[[], Collection[NodeId]],
        device: AddressDevice,
        clock: Clock,
    ) -> None:
        self._me = me
        self._networks = tuple(networks)
        self._catalog = catalog
        self._edges = edges
        self._device = device
        self._clock = clock
        self._to_tell: dict[str, int] = {}
        self._refused: dict[str, str] = {}

    async def serve(self) -> None:
        """Takes and gives up addresses every `EVERY_S`, until cancelled; then this host gives up all of them."""
        try:
            await self._clock.sleep(START_S)
            while True:
                await self.settle()
                await self._clock.sleep(EVERY_S)
        finally:
            with anyio.move_on_after(_END_S, shield=True):
                for address in await self._held():
                    await self._do(self._device.drop, address)

    async def settle(self) -> None:
        """This host has what it is to have, no more and no less. What cannot be read leaves it as it is."""
        try:
            wanted = await self.wanted()
        except HawkerError as error:
            _log.warning("floating addresses cannot be read", extra={"error": str(error)})
            return
        held = await self._held()
        for address in held - wanted:
            await self._do(self._device.drop, address)
        for address in wanted - held:
            if await self._do(self._device.take, address):
                self._to_tell[address] = _TOLD - 1
                _log.info("an address is at this host", extra={"address": address})
        for address in held & self._to_tell.keys():
            if address in wanted and self._to_tell[address]:
                await self._do(self._device.tell, address)
                self._to_tell[address] -= 1
            else:
                del self._to_tell[address]

    async def wanted(self) -> frozenset[str]:
        """The addresses that are to be at this host. Raises what a query raises."""
        leaving = {NodeId(str(node)) for (node,) in await self._rows(_DRAINING)}
        edges = [node for node in self._edges() if node not in leaving] or list(self._edges())
        there = [str(ip) for (ip,) in await self._rows(_ADDRESSES)]
        return frozenset(ip for ip in there if self._floats(ip) and holder_of(ip, edges) == self._me)

    def _floats(self, text: str) -> bool:
        try:
            address = ip_address(text)
        except ValueError:
            return False
        return any(address in network for network in self._networks)

    async def _held(self) -> frozenset[str]:
        try:
            return await in_thread(Pool.HOST, self._device.held)
        except (OSError, ValueError) as error:
            _log.error("what floating addresses are here is not known", extra={"error": str(error)})
            return frozenset()

    async def _do(self, work: Callable[[str], None], address: str) -> bool:
        try:
            await in_thread(Pool.HOST, work, address)
        except OSError as error:
            if self._refused.get(address) != str(error):
                self._refused[address] = str(error)
                _log.error("a floating address is refused", extra={"address": address, "error": str(error)})
            return False
        self._refused.pop(address, None)
        return True

    async def _rows(self, query: str) -> Sequence[tuple[object, ...]]:
        return (await self._catalog.query(Statement(query=query, params=()), timeout_s=_QUERY_S)).rows
