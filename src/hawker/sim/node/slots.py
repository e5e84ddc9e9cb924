"""The simulated host's PCI devices. They outlive the daemon; every call is an edge where it may die."""

from collections.abc import Sequence

from hawker.errors import Unavailable
from hawker.sim.node.crash_points import CrashPoints
from hawker.sim.node.fake_host import FakeHostPart, SimHost


class FakeGpus(FakeHostPart):
    """Keeps `deps.gpus`. `broken` devices cannot be taken; `torn` were reset while a running instance had them."""

    def __init__(self, fuse: CrashPoints, host: SimHost) -> None:
        super().__init__(fuse)
        self._host = host
        self.broken: set[str] = set()
        self.ready: set[str] = set()
        self.torn: set[str] = set()

    async def take(self, addresses: Sequence[str]) -> None:
        await self._edge("take_gpus")
        for address in addresses:
            if address in self.broken:
                raise Unavailable(f"device {address} cannot be given to a machine: it is broken")
            if any(address in held for held in self._host.gpus().values()):
                self.torn.add(address)
            self.ready.add(address)
        await self._edge("take_gpus", after=True)
