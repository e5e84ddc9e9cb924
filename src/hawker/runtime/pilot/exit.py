"""The exit of an instance: what its journal recorded, or what the silence of a dead pilot means.

An exit is decided once and kept in the run directory. The journal of a machine with a kernel of its own is written by
its guest: nothing in it is believed that cannot be.
"""

import anyio
import msgspec

from hawker.clock import Clock
from hawker.errors import NotFound
from hawker.failpoint import reach
from hawker.runtime.driver import Exit
from hawker.runtime.pilot.journal import JournalState, read_journal, sanitized
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.technology import Technology
from hawker.runtime.spec import Ends, InstanceSpec

_SIGKILL = 9
_CANNOT_EXECUTE = 126  # as shells say it
_TOO_EARLY = "it was killed before its command was known to run"


class ExitJournal:
    """Reads what pilots recorded, and settles the exits of those that are dead."""

    def __init__(self, technology: Technology, clock: Clock) -> None:
        self._technology = technology
        self._clock = clock
        self._settling: dict[RunDir, anyio.Lock] = {}

    def read(self, run: RunDir) -> JournalState:
        """What the machine's journal tells; of a guest's, as much as can be believed."""
        state = read_journal(run.journal)
        spec = run.spec() if self._technology.features.kernel else None
        return state if spec is None else sanitized(state, len(spec.processes), self._clock.now())

    def has_ended(self, run: RunDir, state: JournalState) -> bool:
        """Whether an instance that nobody runs has ended, or could not begin. If not, nothing that was done to it means
        anything, and it may be launched."""
        return workload_began(state) or run.exit() is not None or self._technology.failed_to_boot(run)

    async def settle(self, run: RunDir) -> Exit:
        """The exit of an instance whose pilot is dead: as it was recorded, or what its silence means. Decided once, and
        kept; what else the host holds of the instance is given back now, so that the next start need not. Raises
        `NotFound` when it never began. Who stops a machine and who watches it come at the same time: one does it, the
        other waits for that."""
        lock = self._settling.setdefault(run, anyio.Lock())
        try:
            async with lock:
                return await self._settle(run)
        finally:
            if not lock.statistics().tasks_waiting and not lock.locked():
                self._settling.pop(run, None)

    async def _settle(self, run: RunDir) -> Exit:
        settled = run.exit()
        if settled is not None:
            return settled
        state = self.read(run)
        if not self.has_ended(run, state):
            raise NotFound(f"machine {run.machine_id} has no instance that was started")
        await self._technology.kill(run.machine_id, run, run.pid())
        recorded = state.final_exit or state.first_exit
        if recorded is not None and _is_told(run.spec()):  # judged by the pilot, run by run
            return await self._keep(run, recorded)
        exit = self._technology.complete(run, recorded, self._killed())
        if state.ready_at is None and not exit.reason and not exit.fault:
            exit = msgspec.structs.replace(exit, reason=_TOO_EARLY)
        return await self._keep(run, exit)

    async def give_up(self, run: RunDir, fault: str) -> Exit:
        """End an instance that cannot go on; its exit says why, and what was last heard of it."""
        words = self._technology.last_words(run)
        await self._technology.kill(run.machine_id, run, run.pid())
        fault = f"{fault}; its kernel's last words: {words}" if words else fault
        return await self._keep(run, msgspec.structs.replace(self._killed(), fault=fault))

    async def refuse(self, run: RunDir, reason: str) -> Exit:
        """End an instance whose command cannot be begun; its exit says why, as if there were no such command."""
        await self._technology.kill(run.machine_id, run, run.pid())
        return await self._keep(run, Exit(exit_code=_CANNOT_EXECUTE, exited_at=self._clock.now(), reason=reason))

    async def _keep(self, run: RunDir, exit: Exit) -> Exit:
        reach("instance.exit.ended")
        run.write_exit(exit)
        reach("instance.exit.settled")
        await self._technology.clear(run.machine_id, run)
        return exit

    def _killed(self) -> Exit:
        return Exit(exit_code=128 + _SIGKILL, signal=_SIGKILL, exited_at=self._clock.now())


def workload_began(state: JournalState) -> bool:
    """Whether the pilot took its spec, or recorded an exit all the same."""
    return state.instance_id is not None or state.final_exit is not None


def _is_told(spec: InstanceSpec | None) -> bool:
    return spec is not None and spec.ends is Ends.TOLD
