"""Fences that are not as the records have them."""

from collections.abc import Collection, Sequence

from hawker.host.network_policy import PacketFilter
from hawker.ids import MachineId
from hawker.netpolicy.enforcement import Fences, HostFences
from hawker.store.contract import Store


class Remembers(Fences):
    """Works out once in a daemon's life what policies say, and does not look at the records again."""

    def __init__(self, store: Store, host: HostFences | None) -> None:
        super().__init__(store, host)
        self._remembered: Sequence[PacketFilter] | None = None

    async def _wanted(self, without: Collection[MachineId]) -> Sequence[PacketFilter]:
        if self._remembered is None:
            self._remembered = await super()._wanted(without)
        return self._remembered
