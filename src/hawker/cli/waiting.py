"""Waiting for machines: short waits in a row, so that a longer one has its own deadline and can be looked into."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import takewhile

from hawker.api.caller import Caller
from hawker.api.contract.machine import (
    GET_MACHINE,
    ExitEvent,
    Machine,
    MachineEvent,
    MachineParams,
    WaitAnswer,
    WaitState,
)
from hawker.api.contract.machine_operation import WAIT_MACHINE, WaitQuery
from hawker.cli.exits import Failure
from hawker.cli.output import familiar
from hawker.clock import Clock
from hawker.errors import DeadlineExceeded, plain
from hawker.machine import GONE, OFF, SETTLED, State


def last_exit(machine: Machine) -> ExitEvent | None:
    return next((found for event in machine.events if (found := exit_of(event)) is not None), None)


def exit_of(event: MachineEvent) -> ExitEvent | None:
    return event.request.exit_event if event.request is not None else None


def since_order(machine: Machine) -> tuple[MachineEvent, ...]:
    """What happened by itself since the user's last word, newest first: not what an earlier instance went through,
    nor how that one was ended."""
    news = takewhile(lambda event: event.source != "user", machine.events)
    return tuple(event for event in news if (found := exit_of(event)) is None or not found.requested_stop)


def never_executed(machine: Machine) -> str | None:
    """Why the command was never executed, if that is so."""
    endings = (exit_of(event) for event in since_order(machine))
    return next((found.reason for found in endings if found is not None and found.reason), None)


def ended_well(machine: Machine) -> bool:
    """It is off, because its command came to a good end."""
    endings = (exit_of(event) for event in since_order(machine))
    found = next((found for found in endings if found is not None), None)
    return machine.state in GONE | OFF and found is not None and found.exit_code == 0


def failure(machine: Machine) -> str:
    """Why a machine is not running, in one line, by the newest event that says so."""
    for event in since_order(machine):
        text = reason(event)
        if text is not None:
            return text
    return f"it is {machine.state}, and its events do not say why"


def reason(event: MachineEvent) -> str | None:
    """What an event says about why; None when it says nothing."""
    found = exit_of(event)
    if found is not None:
        return "; ".join(text for text in (ending(found), plain(event.error)) if text)
    return plain(event.error) or None


def ending(found: ExitEvent) -> str:
    if found.reason:
        return f"its command could not be executed: {found.reason}"
    if found.fault:
        return f"a platform fault ended it: {found.fault}"
    if found.oom_killed:
        return "it ran out of memory"
    if found.guest_signal > 0:
        return f"it was ended by signal {found.guest_signal}"
    return f"it exited with status {found.exit_code}"


# Reading a machine's events: did it run, how did it end, and why not. Pure.

LONGEST_S = 60.0  # what one call may wait
AT_REST = (WaitState.STOPPED, WaitState.SUSPENDED, WaitState.FAILED, WaitState.DESTROYED)
QUIET_S = 3.0  # in which most machines start
GLANCE_S = 2.0  # how soon a machine that cannot run is noticed


async def reach(
    caller: Caller,
    params: MachineParams,
    states: Sequence[WaitState],
    clock: Clock,
    within_s: float,
    *,
    version: str | None = None,
) -> WaitAnswer:
    """Any of `states`. Raises `DeadlineExceeded` when `within_s` have passed."""
    deadline = clock.monotonic() + within_s
    while True:
        left_s = max(1.0, min(LONGEST_S, deadline - clock.monotonic()))
        query = WaitQuery(state=tuple(states), timeout=left_s, version=version)
        try:
            return await caller.call(WAIT_MACHINE, params=params, query=query)
        except DeadlineExceeded:
            if clock.monotonic() >= deadline:
                raise


async def started(
    caller: Caller,
    params: MachineParams,
    version: str,
    clock: Clock,
    within_s: float,
    *,
    tell: Callable[[str], None] | None = None,
) -> Machine:
    """The machine once it has started; it may have ended well since. Of a longer wait `tell` hears what for, once for
    each state. Raises `Failure` saying why it did not start."""
    deadline = clock.monotonic() + within_s
    told: State | None = None
    while True:
        machine = await _glance(caller, params, version, clock, min(GLANCE_S, deadline - clock.monotonic()))
        if machine.version != version and machine.state in SETTLED:
            raise Failure(f"machine {machine.id} kept its version {machine.version}: {failure(machine)}")
        if why := never_executed(machine):
            raise Failure(f"machine {machine.id} does not start: {why}{_what_now(machine)}")
        if machine.state is State.STARTED or ended_well(machine):
            return machine
        if machine.state in (State.STOPPED, State.FAILED, State.DESTROYED):
            raise Failure(f"machine {machine.id} did not start: {failure(machine)}{_what_now(machine)}")
        if clock.monotonic() >= deadline:
            raise Failure(f"machine {machine.id} is still {machine.state} after {within_s:g} s{_what_now(machine)}")
        if tell is not None and told is not machine.state and clock.monotonic() >= deadline - within_s + QUIET_S:
            told = machine.state
            tell(f"waiting: {_state_of(machine)}")


def _state_of(machine: Machine) -> str:
    """An order that was filled is `created` until its image is there."""
    where = f" on node {machine.host}" if machine.host else " on its node"
    image = machine.config.image if machine.config is not None else None
    pulls = f", which pulls {familiar(image)} unless it has it" if machine.state is State.CREATED and image else ""
    return f"machine {machine.id} is {machine.state}{where}{pulls}"


async def _glance(caller: Caller, params: MachineParams, version: str, clock: Clock, for_s: float) -> Machine:
    """The machine when it rests, or as it is after `for_s`."""
    with suppress(DeadlineExceeded):
        await reach(caller, params, (WaitState.STARTED, *AT_REST), clock, max(1.0, for_s), version=version)
    return await caller.call(GET_MACHINE, params=params)


def _what_now(machine: Machine) -> str:
    if machine.state is State.DESTROYED:
        return ""
    return f"; see `hawker machine status {machine.id}` and `hawker machine logs {machine.id}`"
