"""The process driver: a machine is a group of processes of this host, with no root filesystem, network or limits.

For development and for hosts without root. What a machine runs is found by descent from its pilot and, when the pilot
was killed, by a mark in the environment that the pilot gives each process and that their children inherit.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import anyio

from hawker import guest
from hawker.clock import Clock
from hawker.errors import NotServed, Unavailable
from hawker.host.spawn import spawn
from hawker.ids import MachineId
from hawker.runtime import proc
from hawker.runtime.driver import Exit, Features, LostPart, Memory, Stats
from hawker.runtime.pilot.channel import PILOT_OPTIONS, PilotChannel, UnixSocketChannel
from hawker.runtime.pilot.driver import PilotDriver
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import InstanceLimits, InstanceSpec

MARK = "HAWKER_INSTANCE"
_KILL_TIMEOUT_S = 10.0
_BURIAL_S = 0.5


def process_driver(machines: Path, clock: Clock) -> PilotDriver:
    return PilotDriver(ProcessTechnology(), machines, clock)


class ProcessTechnology:
    """Runs machines as plain processes of the host. Keeps `Technology`. Remembers its children for one reason only: to
    bury them."""

    name = "process"
    features = Features(rootfs=False, network=False, limits=False, driver="process")
    contained = False

    def __init__(self) -> None:
        self.channel: PilotChannel = UnixSocketChannel()
        self._children: set[int] = set()

    async def check(self) -> None:
        guest.pilot_path()

    async def lay_out(self, spec: InstanceSpec, run: RunDir) -> None:
        pass

    async def launch(self, spec: InstanceSpec, run: RunDir, fds: tuple[int, ...]) -> int:
        pid = spawn((str(guest.pilot_path()), *PILOT_OPTIONS), fds=fds, session=True)
        self._children.add(pid)
        return pid

    async def kill(self, machine_id: MachineId, run: RunDir, pid: int | None) -> None:
        spec = run.spec()
        with anyio.move_on_after(_KILL_TIMEOUT_S):
            if pid is not None and run.alive():
                await self._kill_below(pid, run)
            while spec is not None and (left := proc.marked(f"{MARK}={spec.instance_id}".encode())):
                await _kill_all(left)
            self._bury(pid)
            return
        raise Unavailable(f"processes of machine {machine_id} do not end, although they were killed")

    async def _kill_below(self, pilot: int, run: RunDir) -> None:
        """The pilot goes last: it buries its children and records their end, if it still can."""
        with _pidfd(pilot) as fd:
            if fd is None or not run.alive():
                return
            below = proc.descendants(pilot)
            for entry in below:
                with suppress(ProcessLookupError):
                    os.kill(entry.pid, signal.SIGKILL)
            with anyio.move_on_after(_BURIAL_S if below else 0):
                await anyio.wait_readable(fd)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            await anyio.wait_readable(fd)

    def _bury(self, pid: int | None) -> None:
        if pid in self._children:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            self._children.discard(pid)

    async def clear(self, machine_id: MachineId, run: RunDir) -> None:
        pass

    async def suspend(self, run: RunDir) -> None:
        raise NotServed("the process driver cannot suspend: its machines are plain processes of the host")

    async def resume(self, run: RunDir) -> None:
        """Does nothing: such a machine is never suspended."""

    def is_suspended(self, run: RunDir) -> bool:
        return False

    def thaw(self, machine_id: MachineId) -> None:
        """Does nothing: such a machine is never frozen."""

    async def memory(self, run: RunDir) -> Memory:
        raise NotServed("the process driver has no limits: its machines have the host's memory")

    async def limit_memory(self, run: RunDir, limits: InstanceLimits) -> None:
        await self.memory(run)

    async def reclaim_memory(self, run: RunDir, amount_mib: int) -> int:
        return (await self.memory(run)).available_mib

    def complete(self, run: RunDir, recorded: Exit | None, lost: Exit) -> Exit:
        return recorded or lost

    def failed_to_boot(self, run: RunDir) -> bool:
        return False

    def starts_again(self, run: RunDir) -> bool:
        return False

    async def take_up(self, run: RunDir) -> None:
        """Does nothing: nothing is ever left half-done to such a machine."""

    def last_words(self, run: RunDir) -> str:
        return ""

    def remnants(self) -> list[MachineId]:
        return []

    def lost(self, run: RunDir) -> frozenset[LostPart]:
        return frozenset()

    def mend(self, spec: InstanceSpec, pid: int) -> None:
        """Does nothing: such a machine has nothing to lose."""

    def stats(self, run: RunDir, pid: int) -> Stats:
        below = proc.descendants(pid)
        return Stats(
            cpu_s=sum(entry.cpu_s for entry in below),
            memory_bytes=sum(entry.memory_bytes for entry in below),
            pids=len(below),
        )


async def _kill_all(pids: list[int]) -> None:
    with ExitStack() as stack:
        fds = [fd for fd in (stack.enter_context(_pidfd(pid)) for pid in pids) if fd is not None]
        for fd in fds:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        for fd in fds:
            await anyio.wait_readable(fd)


@contextmanager
def _pidfd(pid: int) -> Iterator[int | None]:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)
