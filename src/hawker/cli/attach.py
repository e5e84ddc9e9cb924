"""Staying with a machine: its output as it comes, and the exit status of what it ran; or sitting at its own process, as
`run -i -t` and `attach` do: this terminal or pipe is its input.
"""

import os
import signal
from collections.abc import Awaitable
from contextlib import ExitStack, suppress
from math import inf

import anyio

from hawker.api.caller import Caller
from hawker.api.contract.exec import MACHINE_ATTACH, AttachRequest
from hawker.api.contract.machine import (
    DELETE_MACHINE,
    GET_MACHINE,
    DeleteMachineQuery,
    Machine,
    MachineParams,
    WaitAnswer,
    WaitState,
)
from hawker.api.contract.machine_operation import STOP_MACHINE
from hawker.api.failure import ConnectionLost
from hawker.cli import waiting
from hawker.cli.exits import ExitStatus, Failure, say_error, text_of
from hawker.cli.log_stream import Follower, WantedOutput
from hawker.cli.output import note
from hawker.cli.terminal import Descriptors, converse, own_descriptors, raw_mode, window
from hawker.cli.waiting import AT_REST, reach
from hawker.clock import Clock
from hawker.errors import HawkerError, NotFound, Unavailable, WrongState
from hawker.machine import State
from hawker.value_object import ValueObject

_AGAIN_S = 1.0
_LAST_WORDS_S = 2.0
_DESTROY_S = 30.0


async def stay(caller: Caller, params: MachineParams, version: str, clock: Clock) -> int:
    """Until the machine is off; the exit status of its workload. Ctrl-C stops the machine, a second one leaves it. A
    node that goes away is waited for."""
    follower = Follower(caller, params, clock=clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follower.follow, WantedOutput(follow=True))
        tasks.start_soon(_stop_on_interrupt, caller, params)
        end = await _end_of(caller, params, version, clock, follower)
        if end.state is State.DESTROYED:
            with anyio.move_on_after(_LAST_WORDS_S):
                await follower.ended.wait()
        tasks.cancel_scope.cancel()
    await follower.print_rest()
    return await run_status(caller, params)


async def _end_of(caller: Caller, params: MachineParams, version: str, clock: Clock, follower: Follower) -> WaitAnswer:
    """However long that takes. It is for the follower to say that the node is away, and to give up."""
    while True:
        try:
            return await reach(caller, params, AT_REST, clock, inf, version=version)
        except (Unavailable, ConnectionLost):
            if follower.ended.is_set():
                raise
            await clock.sleep(_AGAIN_S)


async def _stop_on_interrupt(caller: Caller, params: MachineParams) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        asked = False
        async for _ in signals:
            if asked:
                raise Failure(f"left machine {params.machine_id} while it stops", ExitStatus.INTERRUPTED)
            asked = True
            note(f"stopping {params.machine_id}; Ctrl-C again leaves it")
            await caller.call(STOP_MACHINE, params=params)


async def to_its_end(caller: Caller, params: MachineParams, stayed: Awaitable[int], clock: Clock, back: str) -> int:
    """What `stayed` returns. Then the machine is destroyed, also when it did not run or the user has left it; not when
    a call failed, since it may run on: so `hawker BACK` goes back to it."""
    try:
        status = await stayed
    except BaseException as error:
        if _is_of_a_call(error):
            way_back = f"`hawker {back} {params.machine_id}` goes back to it, {_removal(params)}"
            note(f"machine {params.machine_id} may run on, and stays when it ends: {way_back}")
        else:
            await destroy(caller, params, clock)
        raise
    await destroy(caller, params, clock)
    return status


def _is_of_a_call(error: BaseException) -> bool:
    group = error if isinstance(error, BaseExceptionGroup) else BaseExceptionGroup("", [error])
    return group.subgroup(HawkerError) is not None


def _removal(params: MachineParams) -> str:
    return f"`hawker rm --force {params.machine_id}` destroys it"


async def destroy(caller: Caller, params: MachineParams, clock: Clock) -> None:
    """Whatever state it is in, and also when this command was interrupted. Returns when it is gone, or is still being
    destroyed after `_DESTROY_S`; that it stays is said."""
    query = DeleteMachineQuery(force=True)
    with anyio.CancelScope(shield=True):
        try:
            await caller.call(DELETE_MACHINE, params=params, query=query, timeout_s=_DESTROY_S)
        except NotFound:
            return
        except HawkerError as error:
            note(f"machine {params.machine_id} stays: {text_of(error)}; {_removal(params)}")
            return
        with anyio.move_on_after(_DESTROY_S), suppress(HawkerError):
            await reach(caller, params, (WaitState.DESTROYED,), clock, _DESTROY_S)


async def run_status(caller: Caller, params: MachineParams) -> int:
    """The exit status of what a machine ran; says so when memory was to blame. Raises `Failure` when it never ran."""
    machine = await caller.call(GET_MACHINE, params=params)
    found = waiting.last_exit(machine)
    if found is None or found.reason:
        raise Failure(f"machine {machine.id} did not run: {waiting.failure(machine)}", ExitStatus.NOT_RUN)
    if found.oom_killed:
        say_error(f"machine {machine.id} ran out of its {_memory(machine)} of memory", "give it more with --memory")
    return found.exit_code


def _memory(machine: Machine) -> str:
    """The limit that it ran into."""
    guest = machine.config.guest if machine.config is not None else None
    return f"{guest.memory_mb} MiB" if guest is not None and guest.memory_mb else "share"


class Sitting(ValueObject, frozen=True):
    """`terminal`: the machine's process has one, whose keys and size are this window's."""

    ends: Descriptors
    terminal: bool

    @property
    def window(self) -> tuple[int, int]:
        """Rows and columns; zeros where there is no window here."""
        return window(self.ends.stdout) if self.terminal and os.isatty(self.ends.stdout) else (0, 0)

    @property
    def is_raw(self) -> bool:
        return self.terminal and self.ends.stdin is not None and os.isatty(self.ends.stdin)


def own_sitting(*, stdin: bool, terminal: bool) -> Sitting:
    """With the streams of this process; without `stdin` the machine's process gets no input."""
    return Sitting(own_descriptors(stdin=stdin), terminal)


async def sit(caller: Caller, params: MachineParams, version: str, sitting: Sitting, clock: Clock) -> int:
    """From its start to its end; the exit status of its process. What ended before anybody could sit down shows its
    output all the same."""
    state = (await reach(caller, params, (WaitState.STARTED, *AT_REST), clock, inf, version=version)).state
    spoke = state == WaitState.STARTED.value and await join(caller, params, sitting)
    await reach(caller, params, AT_REST, clock, inf, version=version)
    if not spoke:
        await Follower(caller, params).print_rest()
    return await run_status(caller, params)


async def join(caller: Caller, params: MachineParams, sitting: Sitting) -> bool:
    """Until the process has ended; False when it had ended before."""
    rows, cols = sitting.window
    request = AttachRequest(rows=rows, cols=cols)
    with suppress(WrongState), ExitStack() as stack:
        async with caller.socket(MACHINE_ATTACH, request, params=params) as channel:
            if sitting.is_raw:
                assert sitting.ends.stdin is not None
                stack.enter_context(raw_mode(sitting.ends.stdin))
            try:
                await converse(channel, sitting.ends, terminal=rows > 0)
            except Unavailable as error:
                way_back = f"machine {params.machine_id} runs on: `hawker attach {params.machine_id}` goes back to it"
                raise Unavailable(f"{error}; {way_back}") from error
        return True
    return False
