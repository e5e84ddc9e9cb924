"""The link to a machine's pilot: finding its process, connecting to it, greeting it, and waiting for its end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from hawker.clock import Clock
from hawker.errors import Unavailable, WrongState
from hawker.ids import MachineId
from hawker.runtime.pilot.connection import Connection
from hawker.runtime.pilot.messages import PilotHello
from hawker.runtime.pilot.process_exit import ended
from hawker.runtime.pilot.rundir import MachineFiles, RunDir
from hawker.runtime.pilot.technology import Technology

ANSWER_TIMEOUT_S = 10.0  # for a pilot to say hello, and for each answer
_LAST_WORD_S = 2.0  # for a pilot that hung up to let go of its lock
_LOOK_AGAIN_S = 0.02
_SAVED_LOOK_AGAIN_S = 0.25


class InstanceEnded(Exception):
    """The instance ended while its pilot was asked, or just before."""


class PilotLink:
    """Remembers nothing: what is so is read from the run directory, its lock and the pilot."""

    def __init__(self, technology: Technology, files: MachineFiles, clock: Clock) -> None:
        self._technology = technology
        self._channel = technology.channel
        self._files = files
        self._clock = clock

    def running(self, machine_id: MachineId) -> RunDir:
        """The run directory of an instance whose processes are there, frozen or not. Raises `NotFound` when there is no
        instance, `WrongState` when it has ended or is in a snapshot."""
        run = self._files.living(machine_id)
        if run.saved():
            self.refuse_suspended(run)
        return run

    def refuse_suspended(self, run: RunDir) -> None:
        """Raises `WrongState` for a suspended instance: its pilot could not answer."""
        if self._technology.is_suspended(run):
            raise WrongState(f"machine {run.machine_id} is suspended")

    def connect(self, run: RunDir) -> Connection:
        """A connection on which nothing has been heard yet. Raises `Unavailable` when nobody listens."""
        return self._channel.connect(run, kept=True)

    @asynccontextmanager
    async def open(self, machine_id: MachineId, *, kept: bool = False) -> AsyncIterator[Connection]:
        """A connection to the pilot of a running machine, for the block; `kept` as of a channel. Raises as `running`
        and `greet`."""
        pilot = await self.greet(self.running(machine_id), kept=kept)
        async with pilot:
            yield pilot

    async def greet(self, run: RunDir, *, kept: bool = False) -> Connection:
        """A connection on which the right pilot has said hello; the caller closes it. Raises `WrongState` when it is
        suspended, `Unavailable` when it does not answer or is another machine's."""
        self.refuse_suspended(run)
        pilot = self._channel.connect(run, kept=kept)
        try:
            with anyio.fail_after(ANSWER_TIMEOUT_S):
                self._refuse_stranger(run, await pilot.hello())
        except TimeoutError as error:
            pilot.close()
            raise Unavailable("the machine does not answer") from error
        except BaseException:
            pilot.close()
            raise
        return pilot

    @asynccontextmanager
    async def ask(self, run: RunDir, within_s: float) -> AsyncIterator[Connection]:
        """A connection to the pilot for a block that may take `within_s`. Raises `InstanceEnded` when there is, or soon
        will be, no pilot to ask, and `Unavailable` when it does not answer."""
        if not run.lives():
            raise InstanceEnded
        try:
            async with await self.greet(run) as pilot:
                with anyio.fail_after(within_s):
                    yield pilot
        except TimeoutError as error:
            raise Unavailable("the machine does not answer") from error
        except Unavailable:
            with anyio.move_on_after(_LAST_WORD_S):  # its last word comes before it lets go of its lock
                await self.wait_ended(run)
            if run.lives():
                raise
            raise InstanceEnded from None

    async def pid(self, run: RunDir) -> int | None:
        """The pilot's or keeper's process id, also when the daemon that started it died before it wrote it down. Raises
        `Unavailable` when the pilot has to be asked and does not answer."""
        pid = run.pid()
        if pid is not None or not run.alive():
            return pid
        with anyio.fail_after(ANSWER_TIMEOUT_S):
            pid = await self._channel.pid(run)
        if pid is not None:
            run.write_pid(pid)
        return pid

    async def wait_ended(self, run: RunDir) -> None:
        """Return when the instance has ended. What was launched may do so a moment before all that it launched."""
        while run.lives():
            pid = await self.pid(run)
            if pid is not None:
                await ended(pid, run.alive)
            if run.lives():
                await self._clock.sleep(_SAVED_LOOK_AGAIN_S if run.saved() else _LOOK_AGAIN_S)

    def _refuse_stranger(self, run: RunDir, hello: PilotHello) -> None:
        """A VMM that is no longer ours may lead us to another machine's pilot."""
        spec = run.spec() if self._technology.features.kernel else None
        if spec is not None and hello.instance_id not in ("", spec.instance_id):
            raise Unavailable(f"another machine answers in the place of {run.machine_id}: {hello.instance_id}")
