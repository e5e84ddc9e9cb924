"""Finding a machine's run directory, its pilot within it, and the end of its life."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from hawker.clock import Clock
from hawker.errors import NotFound, Unavailable, WrongState
from hawker.ids import MachineId
from hawker.runtime.driver import Features
from hawker.runtime.pilot.connection import Connection
from hawker.runtime.pilot.messages import PilotHello
from hawker.runtime.pilot.process_exit import ended
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.technology import Technology

ANSWER_TIMEOUT_S = 10.0  # for a pilot to say hello, and for each answer
BOOT_TIMEOUT_S = 45.0  # for a guest to boot and have its spec running: emulated, on a busy host, it takes 10
START_TIMEOUT_S = 60.0  # for a spec to be running: files are written and programs loaded, maybe from a slow disk
_LOOK_AGAIN_S = 0.02
_SAVED_LOOK_AGAIN_S = 0.25


class Reach:
    """A machine's files are in `machines`/<machine id>/run."""

    def __init__(self, technology: Technology, machines: Path, clock: Clock) -> None:
        self._technology = technology
        self._channel = technology.channel
        self._machines = machines
        self._clock = clock
        self.name: str = technology.name
        self.features: Features = technology.features

    def _run(self, machine_id: MachineId) -> RunDir:
        return RunDir(self._machines / machine_id / "run")

    def _existing(self, machine_id: MachineId) -> RunDir:
        run = self._run(machine_id)
        if run.spec() is None:
            raise NotFound(f"machine {machine_id} has no instance")
        return run

    def _living(self, machine_id: MachineId) -> RunDir:
        run = self._existing(machine_id)
        if not run.lives():
            raise WrongState(f"machine {machine_id} is not running")
        return run

    def _running(self, machine_id: MachineId) -> RunDir:
        """One whose processes are there, be they frozen."""
        run = self._living(machine_id)
        if run.saved():
            self._refuse_suspended(run)
        return run

    @asynccontextmanager
    async def _pilot(self, machine_id: MachineId) -> AsyncIterator[Connection]:
        pilot = await self._greeted(self._running(machine_id))
        async with pilot:
            yield pilot

    async def _greeted(self, run: RunDir) -> Connection:
        self._refuse_suspended(run)
        pilot = self._channel.connect(run)
        try:
            with anyio.fail_after(ANSWER_TIMEOUT_S):
                self._refuse_stranger(run, await pilot.hello())
        except TimeoutError as error:
            pilot.close()
            raise Unavailable("the machine's pilot does not answer") from error
        except BaseException:
            pilot.close()
            raise
        return pilot

    async def _pid(self, run: RunDir) -> int | None:
        """The pilot's or keeper's process id, also when the daemon that started it died before it wrote it down."""
        pid = run.pid()
        if pid is not None or not run.alive():
            return pid
        with anyio.fail_after(ANSWER_TIMEOUT_S):
            pid = await self._channel.pid(run)
        if pid is not None:
            run.write_pid(pid)
        return pid

    async def _gone(self, run: RunDir) -> None:
        """Return when the instance has ended. What was launched may do so a moment before all that it launched."""
        while run.lives():
            pid = await self._pid(run)
            if pid is not None:
                await ended(pid, run.alive)
            if run.lives():
                await self._clock.sleep(_SAVED_LOOK_AGAIN_S if run.saved() else _LOOK_AGAIN_S)

    def _refuse_stranger(self, run: RunDir, hello: PilotHello) -> None:
        """A VMM that is no longer ours may lead us to another machine's pilot."""
        spec = run.spec() if self.features.kernel else None
        if spec is not None and hello.instance_id not in ("", spec.instance_id):
            raise Unavailable(f"not the pilot of machine {run.machine_id} answers, but that of {hello.instance_id}")

    def _refuse_suspended(self, run: RunDir) -> None:
        if self._technology.is_suspended(run):
            raise WrongState(f"machine {run.machine_id} is suspended")
