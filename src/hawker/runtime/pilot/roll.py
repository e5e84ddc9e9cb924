"""Which machines a node has, what they have lost, and the pilots that nobody can reach any more: for the reconciler."""

import os
from collections.abc import Collection
from pathlib import Path

import anyio.lowlevel
import anyio.to_thread

from hawker.ids import MachineId
from hawker.runtime.driver import LostPart
from hawker.runtime.pilot.orphans import end_orphans, find_orphans
from hawker.runtime.pilot.reach import Reach

_AT_ONCE = 100  # locks looked at before others have a turn


class Roll(Reach):
    """The part of `Driver` that is about all machines."""

    async def list(self) -> list[MachineId]:
        if not self._machines.is_dir():
            return []
        loose = await self.loose()
        with_runs = (MachineId(path.name) for path in self._machines.iterdir() if (path / "run").is_dir())
        return sorted({*with_runs, *loose})

    async def running(self) -> frozenset[MachineId]:
        """In this thread, a few at a time: a look at a journal's lock from another one could come between a launch and
        the lock that it takes."""
        found: set[MachineId] = set()
        for count, name in enumerate(_names(self._machines)):
            if count % _AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
            if self._run(MachineId(name)).lives():
                found.add(MachineId(name))
        return frozenset(found)

    async def suspended(self) -> frozenset[MachineId]:
        return frozenset(each for each in await self.running() if self._technology.is_suspended(self._run(each)))

    async def loose(self) -> frozenset[MachineId]:
        return frozenset(await anyio.to_thread.run_sync(find_orphans, self._machines))

    async def end_loose(self, machine_id: MachineId) -> None:
        self._technology.thaw(machine_id)
        await end_orphans(self._machines, machine_id)

    async def lost(self, machine_ids: Collection[MachineId]) -> dict[MachineId, frozenset[LostPart]]:
        lost = await anyio.to_thread.run_sync(self._find_lost, tuple(machine_ids))
        return {each: parts for each, parts in lost.items() if self._run(each).alive()}

    def _find_lost(self, machine_ids: tuple[MachineId, ...]) -> dict[MachineId, frozenset[LostPart]]:
        lost = {each: self._technology.lost(each) for each in machine_ids}
        return {each: parts for each, parts in lost.items() if parts}

    async def mend(self, machine_id: MachineId) -> None:
        run = self._running(machine_id)
        spec, pid = run.spec(), await self._pid(run)
        if spec is not None and pid is not None:
            await anyio.to_thread.run_sync(self._technology.mend, spec, pid)


def _names(directory: Path) -> list[str]:
    return os.listdir(directory) if directory.is_dir() else []
