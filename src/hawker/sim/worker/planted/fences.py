"""Fences that are not as the records have them."""

from collections.abc import Collection, Sequence

from hawker.host.fences import Fence
from hawker.ids import MachineId
from hawker.store.contract import Store
from hawker.worker.fences import Fences, HostFences


class Remembers(Fences):
    """Works out once in a daemon's life what policies say, and does not look at the records again."""

    def __init__(self, store: Store, host: HostFences | None) -> None:
        super().__init__(store, host)
        self._remembered: Sequence[Fence] | None = None

    async def _wanted(self, without: Collection[MachineId]) -> Sequence[Fence]:
        if self._remembered is None:
            self._remembered = await super()._wanted(without)
        return self._remembered
