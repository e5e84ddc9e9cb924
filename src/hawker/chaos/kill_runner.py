"""Plays a kill scenario on one node: its daemon dies where it was told to, another one takes over, and what came of it
is compared with what was promised. Meanwhile a watcher looks at the records that clients see.
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from signal import SIGKILL

import anyio
import msgspec
from anyio.to_thread import run_sync

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import (
    GET_MACHINE,
    LIST_EVENTS,
    LIST_MACHINES,
    ListEventsQuery,
    Machine,
    MachineEvent,
    MachineParams,
)
from hawker.api.contract.run import LIST_RUNS, ListRunsQuery, RunState
from hawker.chaos.daemon import Daemon
from hawker.chaos.inspect import violations_at_rest
from hawker.chaos.scenario_context import APP, SampleMachines, ScenarioClient, ScenarioContext
from hawker.chaos.scenarios import Scenario
from hawker.chaos.verdict import ScenarioMachine, check
from hawker.clock import Clock
from hawker.errors import Fault, HawkerError, NotFound, Unavailable
from hawker.failpoint import LISTING
from hawker.proof.promises import Promises, impossible, unknown, vanished
from hawker.proof.violation import Violation
from hawker.value_object import ValueObject

_EVERY_S = 0.02
_EVENTS = 50


class StateWatcher:
    """Watches the machines of one app. `looks` counts complete looks, `found` is what was wrong in them, each once."""

    def __init__(self, clock: Clock, app: str) -> None:
        self._clock = clock
        self._app = app
        self._last: dict[str, Machine] = {}
        self.looks = 0
        self.found: dict[Violation, None] = {}

    async def watch(self, daemon: Daemon) -> None:
        """Until cancelled; from the first moment at which this life of the daemon answers."""
        while not daemon.ready:
            await self._clock.sleep(_EVERY_S)
        async with daemon.client() as client:
            while True:
                with suppress(HawkerError):  # it may be dying again
                    await self.look(client)
                await self._clock.sleep(_EVERY_S)

    async def look(self, caller: Caller) -> None:
        """Looks at everything once. Raises `HawkerError` when the node does not answer."""
        listed = (await caller.call(LIST_MACHINES, params=AppParams(app_name=self._app))).items
        for machine in listed:
            self._see(machine)
        missing = [machine.id for machine in listed if not await self._is_there(caller, machine.id)]
        self._note(unknown(listed, missing))
        self.looks += 1

    async def _is_there(self, caller: Caller, machine_id: str) -> bool:
        params = MachineParams(app_name=self._app, machine_id=machine_id)
        try:
            seen = await caller.call(GET_MACHINE, params=params)
            self._see(seen)
            events = await caller.call(LIST_EVENTS, params=params, query=ListEventsQuery(limit=_EVENTS))
        except NotFound:
            return False
        self._note(vanished(seen, _with(seen, events)))
        return True

    def _see(self, machine: Machine) -> None:
        self._note(impossible(machine))
        if machine.id in self._last:
            self._note(vanished(self._last[machine.id], machine))
        self._last[machine.id] = machine

    def _note(self, violations: list[Violation]) -> None:
        self.found.update(dict.fromkeys(violations))


def _with(machine: Machine, events: tuple[MachineEvent, ...]) -> Machine:
    """The machine as its events, asked for a moment later, tell of it."""
    return msgspec.structs.replace(machine, events=events)


SETTLES_WITHIN_S = 90.0
DEATHS_IN_A_STEP = 4  # a run at whose step daemon after daemon ends is parked, and rightly so
_LOOK_EVERY_S = 0.01
_OPEN = (RunState.QUEUED, RunState.ACTIVE, RunState.STUCK)
_ENDS_MACHINES = ("destroy.", "instance.")


class KillOutcome(ValueObject, frozen=True):
    """What a node made of one death or several: of `places`, those at which it died. `recovered_ms`: from the start of
    the next daemon to the end of the operation; None when it did not come to that."""

    places: tuple[str, ...]
    recovered_ms: float | None
    findings: tuple[str, ...]
    """What must not be, for people; none is good."""


class KillRunner:
    """Plays scenarios on one node, whose daemon is not there between two calls: at rest it is killed as well."""

    def __init__(self, daemon: Daemon, samples: SampleMachines, clock: Clock) -> None:
        self.promises = Promises()
        self._daemon = daemon
        self._samples = samples
        self._clock = clock
        self._orders = 0
        self._launched_at = 0.0
        self._behind = False

    @property
    def driver(self) -> str:
        return self._daemon.driver

    async def rehearse(self, scenario: Scenario) -> KillOutcome:
        """The scenario without a death: `places` are those that it is about and comes by, in their order."""
        try:
            return await self._rehearse(scenario)
        except HawkerError as error:
            return KillOutcome((), None, await self._not_set(error))

    async def _rehearse(self, scenario: Scenario) -> KillOutcome:
        await self._launch(scenario, LISTING)
        async with self._customer() as customer:
            context = self._context(customer, self._next_key())
            await context.clear()
            machine_id, passed = await scenario.before(context), len(self._daemon.reached())
            subject = ScenarioMachine(
                context.key, await scenario.act(context, machine_id), promised=True, acknowledged=True
            )
            await self._settled(customer.client)
        places = self._daemon.reached()[passed:]
        ended = await self._end(scenario, subject, StateWatcher(self._clock, APP))
        about = tuple(dict.fromkeys(place for place in places if scenario.is_about(place)))
        return KillOutcome(about, None, ended.findings)

    async def strike(self, scenario: Scenario, place: str) -> KillOutcome:
        """The daemon dies once, and the next one is left alone."""
        try:
            subject = await self._order(scenario, place)
        except HawkerError as error:
            return KillOutcome((place,), None, await self._not_set(error))
        died = await self._dies()
        outcome = await self._recover(scenario, subject)
        missed = () if died else (f"did not die at {place}",)
        return KillOutcome((place,), outcome.recovered_ms, (*missed, *outcome.findings))

    async def strike_in_a_row(self, scenario: Scenario, places: Sequence[str]) -> KillOutcome:
        """The daemon that takes over dies too, at the next place that it comes by, and so on. Places that the recovery
        has no need to come by again are left out, but the first one must be met."""
        try:
            subject, met = await self._order(scenario, places[0]), [places[0]]
        except HawkerError as error:
            return KillOutcome((places[0],), None, await self._not_set(error))
        if not await self._dies():
            outcome = await self._recover(scenario, subject)
            return KillOutcome((places[0],), None, (f"did not die at {places[0]}", *outcome.findings))
        deaths = Counter([_step_of(places[0])])
        for place in places[1:]:
            if deaths[_step_of(place)] >= DEATHS_IN_A_STEP:
                continue
            if not await self._dies_again(scenario, subject, place):
                break
            met.append(place)
            deaths[_step_of(place)] += 1
        outcome = await self._recover(scenario, subject)
        return KillOutcome(tuple(met), outcome.recovered_ms, outcome.findings)

    # Death.

    async def _order(self, scenario: Scenario, place: str) -> ScenarioMachine:
        """A life that is to die at `place`, and the order that brings it there. What an archive lacks of earlier
        scenarios is brought to it before."""
        if scenario.archives and self._behind:
            await self._catch_up(scenario)
        await self._launch(scenario, place)
        async with self._customer() as customer:
            context = self._context(customer, self._next_key())
            if not any(place.startswith(_ENDS_MACHINES) for place in scenario.covers):
                await context.clear()
            before = await scenario.before(context)
            subject = ScenarioMachine(context.key, before, promised=not _is_before_promise(place), acknowledged=False)
            with suppress(HawkerError):  # it may be dead before it can answer
                return subject.answered(await scenario.act(context, before))
        return subject

    async def _catch_up(self, scenario: Scenario) -> None:
        await self._begin(scenario)
        await run_sync(self._daemon.wait_ready)
        async with self._customer() as customer:
            context = self._context(customer, self._next_key())
            await context.clear()
            await context.until(partial(context.is_archived, frozenset(self.promises.told)))
            await self._settled(customer.client)
        await run_sync(self._daemon.kill)
        self._behind = False

    async def _not_set(self, error: HawkerError) -> tuple[str, ...]:
        """It did not come to the order: an earlier death may have hurt the node for good."""
        if self._daemon.alive:
            await run_sync(self._daemon.kill)
        return (f"the scenario cannot be set: {type(error).__name__}: {error}",)

    async def _dies_again(self, scenario: Scenario, subject: ScenarioMachine, place: str) -> bool:
        """Whether the life that takes over dies at this place, or the operation comes to its end without that."""
        await self._begin(scenario, place)
        if not subject.promised:
            await run_sync(self._daemon.wait_ready)
            async with self._customer() as customer:
                with suppress(HawkerError):
                    await scenario.act(self._context(customer, subject.key), subject.machine_id)
            subject.promised = True
        return await self._dies()

    async def _dies(self) -> bool:
        """Wait until it is dead, or nothing is left for it to do."""
        with anyio.move_on_after(SETTLES_WITHIN_S):
            while self._daemon.alive:
                with suppress(HawkerError):
                    if self._daemon.ready and await self._is_quiet():
                        break
                await self._clock.sleep(_LOOK_EVERY_S)
        return not self._daemon.alive and self._daemon.ended() == -SIGKILL

    async def _is_quiet(self) -> bool:
        async with self._daemon.client() as client:
            return not await _open_runs(client)

    # Recovery.

    async def _recover(self, scenario: Scenario, subject: ScenarioMachine) -> KillOutcome:
        watcher = StateWatcher(self._clock, APP)
        if not self._daemon.alive:
            await self._begin(scenario)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watcher.watch, self._daemon)
            outcome = await self._end_or_say(scenario, subject, watcher)
            tasks.cancel_scope.cancel()
        return outcome

    async def _end_or_say(self, scenario: Scenario, subject: ScenarioMachine, watcher: StateWatcher) -> KillOutcome:
        try:
            return await self._end(scenario, subject, watcher)
        except HawkerError as error:
            if self._daemon.alive:
                await run_sync(self._daemon.kill)
            return KillOutcome((), None, (f"{type(error).__name__}: {error}",))

    async def _end(self, scenario: Scenario, subject: ScenarioMachine, watcher: StateWatcher) -> KillOutcome:
        """Raises `HawkerError` when the node cannot be asked."""
        await run_sync(self._daemon.wait_ready)
        ready_at = self._clock.now()
        async with self._customer() as customer:
            stuck = await self._settled(customer.client)
            ended_at = await subject.ended_at(customer)
            recovered_s = (ended_at if ended_at > self._launched_at else ready_at) - self._launched_at
            found = [*stuck, *await subject.take_up(scenario, self._context(customer, subject.key))]
            found += await self._settled(customer.client)
            found += await check(scenario, subject, customer, self._samples)
            found += map(str, watcher.found)
        await run_sync(self._daemon.kill)
        found += map(str, await violations_at_rest(self._daemon, self._clock, self.promises))
        return KillOutcome((), recovered_s * 1000, tuple(found))

    async def _settled(self, client: Caller) -> list[str]:
        """Waits until nothing is under way; gives the runs that never end."""
        with anyio.move_on_after(SETTLES_WITHIN_S):
            while runs := await _open_runs(client):
                if RunState.STUCK in runs.values():
                    break
                await self._clock.sleep(_LOOK_EVERY_S)
            return [f"{name} is stuck" for name in runs]
        return [f"{name} is still {state}" for name, state in (await _open_runs(client)).items()]

    # Lives.

    async def _launch(self, scenario: Scenario, failpoint: str) -> None:
        """Raises `Unavailable`."""
        await self._begin(scenario, failpoint)
        await run_sync(self._daemon.wait_ready)

    async def _begin(self, scenario: Scenario, failpoint: str | None = None) -> None:
        archive = ("--archive", str(self._samples.archive)) if scenario.archives else ()
        often = ("--reconcile-every-s", "1") if scenario.archives or scenario.sweeps else ()
        backups = await run_sync(self._samples.backup_flags) if scenario.backs_up else ()
        self._behind = self._behind or not scenario.archives
        self._launched_at = self._clock.now()
        await run_sync(partial(self._daemon.launch, *archive, *backups, *often, failpoint=failpoint))

    @asynccontextmanager
    async def _customer(self) -> AsyncIterator[ScenarioClient]:
        async with self._daemon.client() as client:
            customer = ScenarioClient(client, APP)
            with suppress(Unavailable, Fault):  # it may die by itself, of what it begins at boot
                await customer.open()
            yield customer

    def _context(self, customer: ScenarioClient, key: str) -> ScenarioContext:
        return ScenarioContext(customer, self._samples, self.promises, key, self._clock)

    def _next_key(self) -> str:
        self._orders += 1
        return f"order {self._orders}"


async def _open_runs(client: Caller) -> dict[str, RunState]:
    found = (await client.call(LIST_RUNS, query=ListRunsQuery(state=_OPEN))).runs
    return {f"{run.flow} of {run.resource_kind} {run.resource_id} at {run.step}": run.state for run in found}


def _is_before_promise(place: str) -> bool:
    return place.endswith(".accept.before")


def _step_of(place: str) -> str:
    return ".".join(place.split(".")[:2])
