"""The driver's calls about one process of a machine: its runs, and its part in the machine's end."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio

from hawker.errors import NotFound, Unavailable, WrongState
from hawker.ids import MachineId
from hawker.runtime.driver import ProcessState
from hawker.runtime.pilot import messages, processes
from hawker.runtime.pilot.connection import Connection
from hawker.runtime.pilot.journal import JournalState, read_journal, sanitized
from hawker.runtime.pilot.processes import FIRST_VERSION, ProcessWatch, recorded_states
from hawker.runtime.pilot.reach import ANSWER_TIMEOUT_S, START_TIMEOUT_S, Reach
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import InstanceSpec
from hawker.runtime.spec_rules import process_of

_FAREWELL_S = 2.0
_KILL_GRACE_S = 5.0  # beyond a stop's own timeout, for the pilot to kill and bury


class _Over(Exception):
    """The machine ended while its pilot was asked, or just before."""


class Runs(Reach):
    """Asks the pilot while it lives; what an older one does not tell, and a dead one, is read from the journal."""

    async def process_states(self, machine_id: MachineId) -> tuple[ProcessState, ...]:
        run = self._existing(machine_id)
        with suppress(_Over):
            async with self._asking(run, ANSWER_TIMEOUT_S) as pilot:
                if pilot.version >= FIRST_VERSION:
                    return await ProcessWatch(pilot, spec_of(run)).begin()
        return self._recorded(run)

    async def await_process_change(
        self, machine_id: MachineId, seen: tuple[ProcessState, ...]
    ) -> tuple[ProcessState, ...]:
        run = self._existing(machine_id)
        with suppress(_Over):
            async with self._asking(run, math.inf) as pilot:
                if pilot.version >= FIRST_VERSION:
                    return await _changed(ProcessWatch(pilot, spec_of(run)), seen)
            await self._gone(run)
        return self._recorded(run)

    async def start_process(self, machine_id: MachineId, index: int, run: int) -> ProcessState:
        """An answer that the end of the machine cut off is read from the journal: a run may be that end itself."""
        here = self._running(machine_id)
        spec = spec_of(here)
        process_of(spec, index)
        with suppress(_Over):
            async with self._asking(here, START_TIMEOUT_S) as pilot:
                return await processes.begin_run(ProcessWatch(pilot, spec), spec, index, run)
        state = self._recorded(here)[index]
        if state.run < run:
            raise WrongState(f"machine {machine_id} is not running")
        return state

    async def stop_process(self, machine_id: MachineId, index: int, signal: str, timeout_s: float) -> ProcessState:
        number = messages.signal_number(signal)
        run = self._existing(machine_id)
        spec = spec_of(run)
        process_of(spec, index)
        with suppress(_Over):
            async with self._asking(run, timeout_s + _KILL_GRACE_S) as pilot:
                return await processes.end_run(ProcessWatch(pilot, spec), index, number, timeout_s)
        return self._recorded(run)[index]

    async def _ask_to_conclude(self, run: RunDir, index: int) -> None:
        spec = spec_of(run)
        with suppress(_Over):
            async with self._asking(run, ANSWER_TIMEOUT_S) as pilot:
                await processes.conclude(ProcessWatch(pilot, spec), spec, index)

    @asynccontextmanager
    async def _asking(self, run: RunDir, within_s: float) -> AsyncIterator[Connection]:
        """Raises `_Over` when there is, or soon will be, no pilot to ask, and `Unavailable` when it does not answer."""
        if not run.lives():
            raise _Over
        try:
            async with await self._greeted(run) as pilot:
                with anyio.fail_after(within_s):
                    yield pilot
        except TimeoutError as error:
            raise Unavailable("the machine's pilot does not answer") from error
        except Unavailable:
            with anyio.move_on_after(_FAREWELL_S):  # its last word comes before it lets go of its lock
                await self._gone(run)
            if run.lives():
                raise
            raise _Over from None

    def _story(self, run: RunDir) -> JournalState:
        story = read_journal(run.journal)
        spec = run.spec() if self.features.kernel else None
        return story if spec is None else sanitized(story, len(spec.processes), self._clock.now())

    def _recorded(self, run: RunDir) -> tuple[ProcessState, ...]:
        story = self._story(run)
        over = None if run.lives() else run.exit() or story.final_exit or story.first_exit
        return recorded_states(spec_of(run), story, over)


def spec_of(run: RunDir) -> InstanceSpec:
    spec = run.spec()
    if spec is None:
        raise NotFound("the machine's instance has just been removed")
    return spec


async def _changed(watch: ProcessWatch, seen: tuple[ProcessState, ...]) -> tuple[ProcessState, ...]:
    with anyio.fail_after(ANSWER_TIMEOUT_S):
        states = await watch.begin()
    while states == seen:
        states = await watch.next()
    return states
