"""The played host's fences: what network policies have put in force. They outlive the daemon, and not the host."""

from collections.abc import Sequence

from hawker.errors import Fault
from hawker.host.fences import Fence
from hawker.sim.node.crash_points import CrashPoints


class FakePolicies:
    """Keeps `worker.fences.HostFences` in memory. `refusal` is why there can be none; `broken` makes the next ones
    fail."""

    def __init__(self, fuse: CrashPoints) -> None:
        self._fuse = fuse
        self.standing: tuple[Fence, ...] = ()
        self.refusal = ""
        self.broken = 0
        self.raised = 0

    async def raise_fences(self, wanted: Sequence[Fence]) -> None:
        if self.broken:
            self.broken -= 1
            raise Fault("nft refused the rules")
        if self.standing == tuple(wanted):
            return
        await self._fuse.pass_edge()
        self.standing = tuple(wanted)
        self.raised += 1
        await self._fuse.pass_edge()

    async def fenced(self, wanted: Sequence[Fence]) -> bool:
        return self.standing == tuple(wanted)

    async def no_fences_because(self) -> str:
        return self.refusal
