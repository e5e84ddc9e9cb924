"""Staying with a machine: its output as it comes, and the exit status of what it ran."""

import signal
import sys
from collections.abc import Callable
from contextlib import suppress

import anyio

from hawker.api.caller import Caller
from hawker.api.contract.exec import MACHINE_LOGS, LogsQuery
from hawker.api.contract.machine import DELETE_MACHINE, GET_MACHINE, DeleteMachineQuery, MachineParams
from hawker.api.contract.machine_operation import STOP_MACHINE
from hawker.api.contract.node import LogChunk
from hawker.cli import waiting
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.output import note
from hawker.cli.waiting import AT_REST, reach
from hawker.clock import Clock
from hawker.errors import NotFound
from hawker.machine import State


class Prefix:
    """Remembers, for each stream, whose line is not at its end yet."""

    def __init__(self) -> None:
        self._open: dict[int, str] = {}

    def told(self, chunk: LogChunk) -> bytes:
        """The bytes to write to the chunk's stream. A line that another one breaks into is ended first; the output of a
        machine without containers is as it was."""
        if not chunk.container or not chunk.data:
            return chunk.data
        name, whose = f"{chunk.container} | ".encode(), self._open.pop(chunk.stream, None)
        lines = chunk.data.splitlines(keepends=True)
        before = b"" if whose is None or whose == chunk.container else b"\n"
        first = b"" if whose == chunk.container else name
        if not lines[-1].endswith((b"\n", b"\r")):
            self._open[chunk.stream] = chunk.container
        return before + first + name.join(lines)


# Output of several containers, told apart: each line says whose it is. Pure.

_DAY_S = 86_400.0
_LAST_WORDS_S = 2.0
_DESTROY_S = 10.0


class Follower:
    """Prints a machine's output and remembers how far it came."""

    def __init__(self, caller: Caller, params: MachineParams, write: Callable[[LogChunk], None] | None = None) -> None:
        self._caller, self._params, self._write = caller, params, write or self._write_bytes
        self._prefix = Prefix()
        self._after: int | None = None
        self.ended = anyio.Event()

    async def print(self, *, follow: bool, tail: int | None = None) -> None:
        query = LogsQuery(follow=follow, tail=tail, after=self._after)
        async with self._caller.stream(MACHINE_LOGS, params=self._params, query=query) as chunks:
            async for chunk in chunks:
                self._write(chunk)
                self._after = chunk.position
        if follow:
            self.ended.set()

    def _write_bytes(self, chunk: LogChunk) -> None:
        """To the stream that they were written to; those of containers with their names before them."""
        stream = sys.stderr if chunk.stream == 2 else sys.stdout
        stream.buffer.write(self._prefix.told(chunk))
        stream.buffer.flush()

    async def print_rest(self) -> None:
        """What came between the last look and the end; of a destroyed machine there may be nothing left."""
        try:
            await self.print(follow=False)
        except NotFound:
            return


async def stay(caller: Caller, params: MachineParams, version: str, clock: Clock) -> int:
    """Until the machine is off; the exit status of its workload. Ctrl-C stops the machine, a second one leaves it."""
    follower = Follower(caller, params)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: follower.print(follow=True))
        tasks.start_soon(_stop_on_interrupt, caller, params)
        end = await reach(caller, params, AT_REST, clock, _DAY_S, version=version)
        if end.state is State.DESTROYED:
            with anyio.move_on_after(_LAST_WORDS_S):
                await follower.ended.wait()
        tasks.cancel_scope.cancel()
    await follower.print_rest()
    return await _status(caller, params)


async def _stop_on_interrupt(caller: Caller, params: MachineParams) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        asked = False
        async for _ in signals:
            if asked:
                raise Failure(f"left machine {params.machine_id} while it stops", ExitStatus.INTERRUPTED)
            asked = True
            note(f"stopping {params.machine_id}; Ctrl-C again leaves it")
            await caller.call(STOP_MACHINE, params=params)


async def destroy(caller: Caller, params: MachineParams) -> None:
    """Whatever state it is in, and also when this command was interrupted."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(_DESTROY_S), suppress(NotFound):
        await caller.call(DELETE_MACHINE, params=params, query=DeleteMachineQuery(force=True))


async def _status(caller: Caller, params: MachineParams) -> int:
    machine = await caller.call(GET_MACHINE, params=params)
    found = waiting.last_exit(machine)
    if found is None or found.reason:
        raise Failure(f"machine {machine.id} did not run: {waiting.failure(machine)}", ExitStatus.NOT_RUN)
    return found.exit_code
