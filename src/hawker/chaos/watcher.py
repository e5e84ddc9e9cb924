"""A client that looks all the time while a daemon recovers: it asks for the list, for each machine and for its events,
and notes what can never be seen.
"""

from contextlib import suppress

import msgspec

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
from hawker.chaos.daemon import Daemon
from hawker.clock import Clock
from hawker.errors import HawkerError, NotFound
from hawker.proof.sight import impossible, unknown, vanished
from hawker.proof.violation import Violation

_EVERY_S = 0.02
_EVENTS = 50


class Watcher:
    """Of one app. `looks` counts complete looks, `found` is what was wrong in them, each once."""

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
        """Once at everything. Raises `HawkerError` when the node does not answer."""
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
