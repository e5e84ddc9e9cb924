"""Sitting at a machine's own process, as `run -i -t` and `attach` do: this terminal or pipe is its input, its output
comes here, and its exit status is this command's."""

import os
from contextlib import ExitStack, suppress

from hawker.api.caller import Caller
from hawker.api.contract.exec import MACHINE_ATTACH, AttachRequest
from hawker.api.contract.machine import MachineParams, WaitState
from hawker.cli.attach import run_status
from hawker.cli.log_stream import Follower
from hawker.cli.terminal import Descriptors, converse, raw_mode, window
from hawker.cli.waiting import AT_REST, reach
from hawker.clock import Clock
from hawker.errors import Unavailable, WrongState
from hawker.value_object import ValueObject

_DAY_S = 86_400.0


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


async def sit(caller: Caller, params: MachineParams, version: str, sitting: Sitting, clock: Clock) -> int:
    """From its start to its end; the exit status of its process. What ended before anybody could sit down shows its
    output all the same."""
    state = (await reach(caller, params, (WaitState.STARTED, *AT_REST), clock, _DAY_S, version=version)).state
    spoke = state == WaitState.STARTED.value and await join(caller, params, sitting)
    await reach(caller, params, AT_REST, clock, _DAY_S, version=version)
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
