"""Flow `stop`: end the instance, give back its writable layer, rest. Its steps also begin restart, update, destroy."""

from contextlib import suppress

import anyio
import msgspec
from msgspec.structs import replace

from hawker.config import stop_config
from hawker.config.effective import container_stop
from hawker.config.process_rules import LONGEST_STOP_S
from hawker.errors import HawkerError, NotFound, SnapshotLost, WrongState
from hawker.fsm.contract import Backoff, Done, Flow, Outcome, Step
from hawker.ids import MachineId
from hawker.machine import GONE, State
from hawker.record.machine import MACHINES, MachineRecord, machine_id_of
from hawker.runtime.driver import Driver, Exit, Phase, ProcessPhase
from hawker.store.contract import Tx
from hawker.worker.capacity import at_rest, kept_layer
from hawker.worker.exits import record_exit
from hawker.worker.lifecycle.deps import Context, machine_in, machine_of
from hawker.worker.lifecycle.start import Launch, runs
from hawker.worker.lifecycle.volume_mount import unmount_volume
from hawker.worker.table import Happened


async def stop_containers(driver: Driver, record: MachineRecord, signal: str, timeout_s: float) -> None:
    """Stops the machine's containers. Does nothing when there are none, or when the caller asked for another way to
    stop than the config's. During an update the config of what runs is the previous one."""
    config = record.config if record.previous is None else record.previous.config
    if not config.containers or (signal, timeout_s) != stop_config(config):
        return
    ways = {each.name: container_stop(config, each) for each in config.containers}
    with suppress(HawkerError):
        seen = await driver.inspect(record.id)
        if seen.phase is Phase.SUSPENDED:
            await driver.resume(record.id)
        states = await driver.process_states(record.id)
        async with anyio.create_task_group() as tasks:
            for index, state in enumerate(states):
                if state.state in (ProcessPhase.STARTING, ProcessPhase.RUNNING) and state.name in ways:
                    tasks.start_soon(_stop, driver, record.id, index, *ways[state.name])


async def _stop(driver: Driver, machine_id: MachineId, index: int, signal: str, timeout_s: float) -> None:
    with suppress(HawkerError):
        await driver.stop_process(machine_id, index, signal, timeout_s)


# How a machine's containers are stopped with it: each in its own way, all at the same time. What is left is ended
# with the machine, so nothing here needs to succeed.


class Halt(msgspec.Struct, frozen=True, kw_only=True):
    """The way to end the instance: a signal by name, then SIGKILL after `timeout_s`."""

    signal: str
    """The name of the signal, with `SIG` in front; `SIGKILL` waits for nothing."""
    timeout_s: float


class RestartInput(Launch, frozen=True, kw_only=True):
    """The way to end the instance, for a flow that then launches a new one."""

    signal: str
    timeout_s: float


async def halt(context: Context[Halt | RestartInput]) -> Outcome:
    """End the instance if one runs, and record its exit."""
    record = machine_of(context)
    if record.running is None or record.running.exit is not None:
        return Done()
    exit = await _stop_or_find_gone(context, record, await _emptied(context, record))
    return Done(result=exit, commit=lambda tx: _record(tx, context, exit))


async def keep(context: Context[msgspec.Struct]) -> None:
    """Does nothing, since there is no way back. As an undo it lets a run that is cancelled end in its own time: its
    step under way may have something to record."""


async def undo_halt(context: Context[msgspec.Struct]) -> None:
    """Lets a frozen instance go on, unless its machine falls back to being suspended. There is no way back from a
    signal that was sent."""
    record = context.deps.store.get(MACHINES, machine_id_of(context))
    if record is None or not runs(record):
        return
    driver, back = context.deps.driver, record.previous is not None and record.previous.state is State.SUSPENDED
    with suppress(NotFound, WrongState, SnapshotLost):
        await (driver.suspend if back else driver.resume)(record.id)


_LONGEST_EMPTYING_S = 10.0


async def _emptied(context: Context[Halt | RestartInput], record: MachineRecord) -> float:
    """Nobody comes in any more, and who is in there has half of the time to end: how much of it is left, in seconds."""
    if not record.config.services or record.running is None:
        return context.input.timeout_s
    began = context.clock.monotonic()
    wait_s = min(context.input.timeout_s / 2, _LONGEST_EMPTYING_S)
    await context.deps.edge.close(record.id, record.running.instance_id, wait_s)
    return max(0.0, context.input.timeout_s - (context.clock.monotonic() - began))


async def _stop_or_find_gone(context: Context[Halt | RestartInput], record: MachineRecord, timeout_s: float) -> Exit:
    """`timeout_s` is what is left of the time to stop."""
    driver, how = context.deps.driver, context.input
    await stop_containers(driver, record, how.signal, how.timeout_s)
    try:
        return await driver.stop(record.id, how.signal, timeout_s)
    except NotFound:
        return Exit(exit_code=137, signal=9, exited_at=context.clock.now(), reason="the instance was gone")


def _record(tx: Tx, context: Context[Halt | RestartInput], exit: Exit) -> None:
    record = machine_in(tx, context)
    assert record.running is not None
    record_exit(tx, context.deps.table, record, record.running.instance_id, exit)


async def release(context: Context[msgspec.Struct]) -> Outcome:
    """Give back the volume, and the writable layer: a stopped machine's root filesystem is not kept.

    The root filesystem of a machine that runs is not touched: when a `rest` comes that late, the machine was taken up
    again meanwhile."""
    record = context.deps.store.get(MACHINES, machine_id_of(context))
    if record is not None and runs(record):
        return Done()
    if context.deps.rootfs is not None:
        await context.deps.rootfs.unmount(machine_id_of(context), kept=kept_layer(record))
    await unmount_volume(context.deps, record)
    return Done()


async def rest(context: Context[msgspec.Struct]) -> Outcome:
    return Done(commit=lambda tx: _rest(tx, context))


def _rest(tx: Tx, context: Context[msgspec.Struct]) -> None:
    record = machine_in(tx, context)
    if record.state in GONE:
        return
    table = context.deps.table
    told = table.events(tx, record.id, 1)[0].status == State.STOPPED  # by the exit
    event = None if told else Happened("stop", "stopped")
    table.change(tx, record, event, state=State.STOPPED, holds=at_rest(record), restarts=0)


PATIENT = Backoff(attempts=100, cap_s=30.0)
"""The patience of steps that have no other way: a host that refuses for a while, its disk full say, delays them and
does not make them fail. After half an hour the reconciler begins them anew."""

HALT = Step(
    "halt",
    halt,
    undo=undo_halt,
    undo_backoff=PATIENT,
    timeout_s=LONGEST_STOP_S + 30,
    durable=True,
    points=("asked",),
)
"""Durable, because what follows takes from the host how the instance ended."""

END = replace(HALT, backoff=PATIENT)
"""The first step of a flow that ends a machine, rather than starts it again."""

RELEASE = Step("release", release, points=("detached", "given_back"), backoff=PATIENT)

STOP = Flow(name="stop", input=Halt, steps=(END, RELEASE, Step("rest", rest)))


# Flow `rest`: tidy up after a machine that ended by itself and is not to be started again.


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a flow that has nothing to say: the machine's record has it all."""


REST = Flow(name="rest", input=Rest, steps=(RELEASE,))
