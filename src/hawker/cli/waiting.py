"""Waiting for machines: short waits in a row, so that a longer one has its own deadline and can be looked into."""

from collections.abc import Sequence
from contextlib import suppress

from hawker.api.caller import Caller
from hawker.api.contract.machine import GET_MACHINE, Machine, MachineParams, WaitAnswer, WaitState
from hawker.api.contract.machine_operation import WAIT_MACHINE, WaitQuery
from hawker.cli import outcome
from hawker.cli.exits import Failure
from hawker.clock import Clock
from hawker.errors import DeadlineExceeded
from hawker.machine import SETTLED, State

LONGEST_S = 60.0  # what one call may wait
AT_REST = (WaitState.STOPPED, WaitState.SUSPENDED, WaitState.FAILED, WaitState.DESTROYED)
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


async def started(caller: Caller, params: MachineParams, version: str, clock: Clock, within_s: float) -> Machine:
    """The machine once it has started; it may have ended well since. Raises `Failure` saying why it did not start."""
    deadline = clock.monotonic() + within_s
    while True:
        machine = await _glance(caller, params, version, clock, min(GLANCE_S, deadline - clock.monotonic()))
        if machine.version != version and machine.state in SETTLED:
            raise Failure(f"machine {machine.id} kept its version {machine.version}: {outcome.failure(machine)}")
        if why := outcome.never_executed(machine):
            raise Failure(f"machine {machine.id} does not start: {why}{_what_now(machine)}")
        if machine.state is State.STARTED or outcome.ended_well(machine):
            return machine
        if machine.state in (State.STOPPED, State.FAILED, State.DESTROYED):
            raise Failure(f"machine {machine.id} did not start: {outcome.failure(machine)}{_what_now(machine)}")
        if clock.monotonic() >= deadline:
            raise Failure(f"machine {machine.id} is still {machine.state} after {within_s:g} s{_what_now(machine)}")


async def _glance(caller: Caller, params: MachineParams, version: str, clock: Clock, for_s: float) -> Machine:
    """The machine when it rests, or as it is after `for_s`."""
    with suppress(DeadlineExceeded):
        await reach(caller, params, (WaitState.STARTED, *AT_REST), clock, max(1.0, for_s), version=version)
    return await caller.call(GET_MACHINE, params=params)


def _what_now(machine: Machine) -> str:
    if machine.state is State.DESTROYED:
        return ""
    return f"; see `hawker machine status {machine.id}` and `hawker machine logs {machine.id}`"
