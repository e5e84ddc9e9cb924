"""The inventory of a host, for the reconciler: which machines it has, what they have lost, and orphaned pilots."""

from collections.abc import Collection

import anyio
import anyio.lowlevel

from hawker.fair.threads import Pool, in_thread
from hawker.ids import MachineId
from hawker.runtime.driver import LostPart
from hawker.runtime.pilot.link import PilotLink
from hawker.runtime.pilot.orphans import end_orphans, find_orphans
from hawker.runtime.pilot.rundir import MachineFiles
from hawker.runtime.pilot.technology import Technology

_AT_ONCE = 100  # locks looked at before others have a turn


class Inventory:
    """Keeps `HostView`."""

    def __init__(self, technology: Technology, files: MachineFiles, link: PilotLink) -> None:
        self._technology = technology
        self._files = files
        self._link = link

    async def list(self) -> list[MachineId]:
        orphans = await self.orphans() if self._files.machines.is_dir() else frozenset()
        with_runs = {MachineId(name) for name in self._files.names() if self._files.run(MachineId(name)).exists()}
        return sorted({*with_runs, *orphans, *self._technology.remnants()})

    async def running(self) -> frozenset[MachineId]:
        """In this thread, a few at a time: a look at a journal's lock from another one could come between a launch and
        the lock that it takes."""
        found: set[MachineId] = set()
        for count, name in enumerate(self._files.names()):
            if count % _AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
            if self._files.run(MachineId(name)).lives():
                found.add(MachineId(name))
        return frozenset(found)

    async def suspended(self) -> frozenset[MachineId]:
        running = await self.running()
        return frozenset(each for each in running if self._technology.is_suspended(self._files.run(each)))

    async def orphans(self) -> frozenset[MachineId]:
        return frozenset(await in_thread(Pool.HOST, find_orphans, self._files.machines))

    async def end_orphans(self, machine_id: MachineId) -> None:
        self._technology.thaw(machine_id)
        await end_orphans(self._files.machines, machine_id)

    async def lost(self, machine_ids: Collection[MachineId]) -> dict[MachineId, frozenset[LostPart]]:
        lost = await in_thread(Pool.HOST, self._find_lost, tuple(machine_ids))
        return {each: parts for each, parts in lost.items() if self._files.run(each).alive()}

    def _find_lost(self, machine_ids: tuple[MachineId, ...]) -> dict[MachineId, frozenset[LostPart]]:
        lost = {each: self._technology.lost(self._files.run(each)) for each in machine_ids}
        return {each: parts for each, parts in lost.items() if parts}

    async def mend(self, machine_id: MachineId) -> None:
        run = self._link.running(machine_id)
        spec, pid = run.spec(), await self._link.pid(run)
        if spec is not None and pid is not None:
            await in_thread(Pool.HOST, self._technology.mend, spec, pid)
