"""The memory of a machine with a kernel of its own: what the guest says of it, and the balloon that changes it.

The control group bounds VMM and guest together, whatever the guest says: a balloon that a guest does not fill, or
empties by itself, is its own loss.
"""

from contextlib import suppress

import anyio

from hawker.errors import Unavailable, WrongState
from hawker.fair.threads import Pool, in_thread
from hawker.host import cgroup_memory
from hawker.host.cgroup import Cgroups
from hawker.runtime.driver import Memory
from hawker.runtime.microvm_launch import read_plan
from hawker.runtime.pilot import requests
from hawker.runtime.pilot.channel import PilotChannel
from hawker.runtime.pilot.link import ANSWER_TIMEOUT_S
from hawker.runtime.pilot.requests import GuestMemory
from hawker.runtime.pilot.rundir import RunDir, spec_of
from hawker.runtime.spec import InstanceLimits
from hawker.runtime.vmm.contract import Vmm

_MIB = 1 << 20
_SPARE_MIB = 16  # without which a kernel has no room to move, and ends a process for the next page


class MicroVMMemory:
    """Reads and changes the memory of machines whose VMM runs. Remembers nothing."""

    def __init__(self, vmm: Vmm, channel: PilotChannel, cgroups: Cgroups, overhead_mib: int) -> None:
        self._vmm = vmm
        self._channel = channel
        self._cgroups = cgroups
        self._overhead_mib = overhead_mib

    async def read(self, run: RunDir) -> Memory:
        limit_mib = spec_of(run).limits.memory_mib
        return Memory(limit_mib=limit_mib, available_mib=min(limit_mib, (await self.ask(run)).available // _MIB))

    async def ask(self, run: RunDir) -> GuestMemory:
        """The memory as the guest says it. Raises `Unavailable` when the guest does not answer."""
        try:
            with anyio.fail_after(ANSWER_TIMEOUT_S):
                async with self._channel.connect(run, kept=True) as pilot:
                    await pilot.hello()
                    return await requests.memory(pilot)
        except TimeoutError as error:
            raise Unavailable("the machine does not answer") from error

    async def limit(self, run: RunDir, limits: InstanceLimits) -> None:
        """Set the memory limit. Raising the limit: raise the control group's, then deflate the balloon. Lowering:
        inflate it first, so that the guest never exceeds its control group; memory that the balloon took from within
        huge pages is the host's only once it looks for memory. Raises `WrongState` above the memory that the machine
        was started for, and when more is in use."""
        before_mib, wanted_mib = spec_of(run).limits.memory_mib, limits.memory_mib
        most_mib = read_plan(run).vm.max_memory_mib
        if wanted_mib > most_mib:
            raise WrongState(f"machine {run.machine_id} was started for at most {most_mib} MB of memory: restart it")
        if wanted_mib >= before_mib:
            await self._bound(run, wanted_mib)
            await self._vmm.inflate(run, wanted_mib)
            return
        await self._refuse_used(run, before_mib, wanted_mib)
        group = self._cgroups.group("memory", run.machine_id)
        try:
            await self._vmm.inflate(run, wanted_mib)
            await in_thread(Pool.HOST, cgroup_memory.reclaim, group, (before_mib - wanted_mib) * _MIB)
            await self._bound(run, wanted_mib)
        except BaseException:
            with anyio.CancelScope(shield=True), suppress(Unavailable):
                await self._vmm.inflate(run, before_mib)
            raise

    async def reclaim(self, run: RunDir, amount_mib: int) -> int:
        """Have up to `amount_mib` MiB given back. First the pages that the host caches for the machine's disks. Then
        the guest: it gives up its free memory and as much of its caches as is missing, and may take the room again when
        it needs it. Returns how many MiB fewer are used now."""
        if amount_mib <= 0:
            return 0
        group = self._cgroups.group("memory", run.machine_id)
        before = cgroup_memory.read_use(group).used
        await in_thread(Pool.HOST, cgroup_memory.reclaim, group, amount_mib * _MIB)
        missing_mib = amount_mib - (before - cgroup_memory.read_use(group).used) // _MIB
        if missing_mib > 0:
            await self._squeeze(run, missing_mib)
        return max(0, before - cgroup_memory.read_use(group).used) // _MIB

    async def _squeeze(self, run: RunDir, amount_mib: int) -> None:
        limit_mib, guest = spec_of(run).limits.memory_mib, await self.ask(run)
        taken_mib = min(guest.free // _MIB + amount_mib, guest.available // _MIB - _SPARE_MIB)
        if taken_mib <= 0:
            return
        try:
            with suppress(Unavailable):  # it gives less than was asked for
                await self._vmm.inflate(run, limit_mib - taken_mib)
        finally:
            with anyio.CancelScope(shield=True):
                await self._vmm.inflate(run, limit_mib)

    async def _refuse_used(self, run: RunDir, before_mib: int, wanted_mib: int) -> None:
        least_mib = before_mib - (await self.ask(run)).available // _MIB + _SPARE_MIB
        if wanted_mib < least_mib:
            raise WrongState(
                f"the machine uses memory that it cannot give back: the limit must be at least {least_mib} MB"
            )

    async def _bound(self, run: RunDir, guest_mib: int) -> None:
        group = self._cgroups.group("memory", run.machine_id)
        await in_thread(Pool.HOST, cgroup_memory.set_limit, group, (guest_mib + self._overhead_mib) * _MIB, 0)
