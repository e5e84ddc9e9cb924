"""How an instance ends: waiting for it, asking for it, forcing it, and the exit that is made of what was recorded."""

from contextlib import suppress
from pathlib import Path

import anyio
import msgspec

from hawker.clock import Clock
from hawker.errors import NotFound, SnapshotLost, Unavailable
from hawker.failpoint import inside, reach
from hawker.ids import MachineId
from hawker.runtime.driver import Exit
from hawker.runtime.pilot import messages, requests
from hawker.runtime.pilot.journal import JournalState
from hawker.runtime.pilot.roll import Roll
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.runs import Runs, spec_of
from hawker.runtime.pilot.technology import Technology
from hawker.runtime.spec import Ends, InstanceSpec
from hawker.runtime.spec_rules import process_of

REST_S = 2.0  # what a pilot gives the processes that are left when its machine ends
STOP_GRACE_S = 5.0  # beyond the stop's own timeout, for the pilot to bury and record

_SIGKILL = 9
_TOO_EARLY = "it was killed before its command was known to run"


class Endings(Runs, Roll):
    """The part of `Driver` that is about an instance's end."""

    def __init__(
        self, technology: Technology, machines: Path, clock: Clock, *, stop_grace_s: float = STOP_GRACE_S
    ) -> None:
        super().__init__(technology, machines, clock)
        self._stop_grace_s = stop_grace_s

    async def wait(self, machine_id: MachineId) -> Exit:
        run = self._existing(machine_id)
        await self._gone(run)
        return await self._settle(machine_id, run)

    async def stop(self, machine_id: MachineId, signal: str, timeout_s: float) -> Exit:
        number = messages.signal_number(signal)
        run = self._existing(machine_id)
        try:
            await self._technology.resume(run)
        except (SnapshotLost, Unavailable):  # nobody is there to be asked
            await self._technology.kill(machine_id, run, run.pid())
        with suppress(Unavailable):
            async with self._channel.connect(run) as pilot:
                requests.request_stop(pilot, number, timeout_s)
                inside("asked")
        with anyio.move_on_after(timeout_s + self._stop_grace_s):
            return await self.wait(machine_id)
        await self._technology.kill(machine_id, run, run.pid())
        return await self.wait(machine_id)

    async def conclude(self, machine_id: MachineId, index: int) -> Exit:
        run = self._existing(machine_id)
        process_of(spec_of(run), index)
        if run.lives():
            await self._ask_to_conclude(run, index)
            with anyio.move_on_after(REST_S + self._stop_grace_s):
                return await self.wait(machine_id)
            await self._technology.kill(machine_id, run, run.pid())
        return await self.wait(machine_id)

    async def destroy(self, machine_id: MachineId) -> None:
        await self._give_back(machine_id, loose=True)

    async def _give_back(self, machine_id: MachineId, *, loose: bool) -> None:
        """`loose`: look among all processes of the host for pilots that lost their journal, which takes a while. A run
        directory that has one was made when there was none."""
        run = self._run(machine_id)
        pid = await self._pid(run) if run.alive() else None
        await self._technology.kill(machine_id, run, pid)
        inside("killed")
        if loose:
            await self.end_loose(machine_id)
        await self._technology.clear(machine_id, run)
        inside("cleared")
        run.remove()
        with suppress(OSError):
            run.path.parent.rmdir()  # others keep files there too; the last one takes the directory away

    def _has_ended(self, run: RunDir, story: JournalState) -> bool:
        """Of one that nobody runs: whether it did, or could not. Else nothing that was done to it means anything, and
        it may be launched."""
        return workload_began(story) or run.exit() is not None or self._technology.failed_to_boot(run)

    async def _settle(self, machine_id: MachineId, run: RunDir) -> Exit:
        """The pilot is dead: the exit that it recorded, or what its silence means. Decided once, and kept; what
        else the host holds of the instance is given back now, so that the next start need not."""
        settled = run.exit()
        if settled is not None:
            return settled
        story = self._story(run)
        if not self._has_ended(run, story):
            raise NotFound(f"machine {machine_id} has no instance that was started")
        await self._technology.kill(machine_id, run, run.pid())
        recorded = story.final_exit or story.first_exit
        if recorded is not None and _is_told(run.spec()):  # judged by the pilot, run by run
            return await self._keep(machine_id, run, recorded)
        exit = self._technology.complete(run, recorded, self._killed())
        if story.ready_at is None and not exit.reason and not exit.fault:
            exit = msgspec.structs.replace(exit, reason=_TOO_EARLY)
        return await self._keep(machine_id, run, exit)

    async def _give_up(self, machine_id: MachineId, run: RunDir, fault: str) -> Exit:
        """End what cannot go on; its exit says why, and what was last heard of it."""
        words = self._technology.last_words(run)
        await self._technology.kill(machine_id, run, run.pid())
        fault = f"{fault}; its kernel's last words: {words}" if words else fault
        return await self._keep(machine_id, run, msgspec.structs.replace(self._killed(), fault=fault))

    async def _keep(self, machine_id: MachineId, run: RunDir, exit: Exit) -> Exit:
        reach("instance.exit.ended")
        run.write_exit(exit)
        reach("instance.exit.settled")
        await self._technology.clear(machine_id, run)
        return exit

    def _killed(self) -> Exit:
        return Exit(exit_code=128 + _SIGKILL, signal=_SIGKILL, exited_at=self._clock.now())


def workload_began(story: JournalState) -> bool:
    return story.instance_id is not None or story.final_exit is not None


def _is_told(spec: InstanceSpec | None) -> bool:
    return spec is not None and spec.ends is Ends.TOLD
