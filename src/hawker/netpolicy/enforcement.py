"""Keeps in force what the network policies in the store say: worked out anew each time, compared with what the host
has, and replaced whole where that differs. Nothing is remembered in between.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

import anyio
from anyio.lowlevel import checkpoint

from hawker.errors import HawkerError
from hawker.host.network_policy import PacketFilter
from hawker.ids import MachineId
from hawker.log import bind
from hawker.netpolicy.policies import fences
from hawker.record.network_policy import POLICIES
from hawker.store.contract import Reader, Store

_log = bind("hawker.fences")

_PAGE = 200


class HostFences(Protocol):
    """Fences on the host; they outlive the daemon."""

    async def install_filters(self, wanted: Sequence[PacketFilter]) -> None:
        """These and no others, in one go; nothing is touched where they stand. Raises `HawkerError` or `OSError`."""

    async def in_force(self, wanted: Sequence[PacketFilter]) -> bool:
        """Whether these stand, and no others."""

    async def lack_of_filters(self) -> str:
        """Why this host cannot have any, in a sentence; empty when it can."""


class Fences:
    """`host` is None for drivers whose machines have no network of their own."""

    def __init__(self, store: Store, host: HostFences | None) -> None:
        self._store = store
        self._host = host
        self._change = anyio.Lock()

    async def refusal(self) -> str:
        if self._host is None:
            return "this node's driver, whose machines use the host's network"
        return await self._host.lack_of_filters()

    async def renew(self, *, without: Collection[MachineId] = ()) -> None:
        """As the newest records have it. `without` are machines on their way out. Raises `HawkerError` or `OSError`;
        the reconciler comes back to it."""
        if self._host is None:
            return
        async with self._change:
            await self._host.install_filters(await self._wanted(without))

    async def renew_for(self, app: str, *, without: Collection[MachineId] = ()) -> None:
        """The same after a change of one app, and nothing at all where it has no policy."""
        if next(self._store.scan(POLICIES, f"{app}/", limit=1), None) is not None:
            await self.renew(without=without)

    async def renew_soon(self, app: str, *, without: Collection[MachineId] = ()) -> None:
        """After what is done whatever becomes of this: now, or, if the host refuses, when the reconciler comes by."""
        try:
            await self.renew_for(app, without=without)
        except (HawkerError, OSError) as error:
            _log.error("network policies are not in force yet", extra={"reason": str(error)})

    async def stand(self) -> bool:
        if self._host is None:
            return True
        async with self._change:
            return await self._host.in_force(await self._wanted(()))

    async def _wanted(self, without: Collection[MachineId]) -> Sequence[PacketFilter]:
        """In pages, so that others are answered while thousands of machines are looked at."""
        found: list[PacketFilter] = []
        with self._store.snapshot() as reader:
            for number, fence in enumerate(fences(reader), 1):
                if fence.machine_id not in without:
                    found.append(fence)
                if number % _PAGE == 0:
                    await checkpoint()
        return _in_order(found)


def wanted(reader: Reader) -> Sequence[PacketFilter]:
    """What is to be in force when nothing is under way."""
    return _in_order(fences(reader))


def _in_order(found: Iterable[PacketFilter]) -> Sequence[PacketFilter]:
    return sorted(found, key=lambda fence: fence.machine_id)
