"""Starting the program `launcher` with a plan, and its one answer; and container machines by it: the plan of a box, its
launch, and what is left of it.

A box keeps no state on the host beside its control groups and its plan in the run directory, so there is nothing to
forget but the groups.
"""

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio

from hawker import guest
from hawker.errors import Unavailable
from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.host.cgroup import Cgroups
from hawker.host.spawn import reap, spawn
from hawker.ids import MachineId
from hawker.runtime.launcher.box import BoxSurroundings, box_plan, group_views
from hawker.runtime.launcher.seccomp_program import load_libseccomp
from hawker.value_object import ValueObject

_TIMEOUT_S = 30.0
_ANSWER_BYTES_MAX = 4096


class LaunchAnswer(ValueObject, frozen=True):
    """`pid` is process 1 of the machine as this host numbers it, where one was made. `error` is why there is no
    machine; `status` how the launcher itself ended."""

    pid: int | None
    error: str
    status: int


async def run_launcher(
    plan: Path,
    fds: Sequence[int],
    *,
    hidden: Path | None = None,
    stage: Callable[[], None] | None = None,
    stdio: int | None = None,
) -> LaunchAnswer:
    """Carry out a plan with `fds` as 3, 4, ... of what it starts, and wait until that runs. The rest is as of `spawn`.
    Raises `Unavailable` when it takes longer than 30 s; then the launcher is ended, and what it started is the caller's
    to end."""
    argv = [str(guest.launcher_path()), str(plan), str(len(fds))]
    listening, telling = os.pipe2(os.O_CLOEXEC)
    start = partial(spawn, argv, fds=(*fds, telling), hidden=hidden, stage=stage, stdio=stdio)
    try:
        with anyio.CancelScope(shield=True):
            try:
                process = start() if hidden is None and stage is None else await in_thread(Pool.HOST, start)
            finally:
                os.close(telling)
            inside("creating")
            answer = await _answer(process, listening)
    finally:
        os.close(listening)
    return answer


async def _answer(process: int, listening: int) -> LaunchAnswer:
    with anyio.move_on_after(_TIMEOUT_S) as limit:
        told = await _read_all(listening)
    if limit.cancelled_caught:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    status = await reap(process)
    if limit.cancelled_caught:
        raise Unavailable(f"the launcher did not answer within {_TIMEOUT_S:g} s")
    return read_answer(told.decode("utf-8", "replace"), status)


async def _read_all(fd: int) -> bytes:
    """To the end, which comes when the launcher has ended and its machine runs."""
    told = b""
    while len(told) < _ANSWER_BYTES_MAX:
        await anyio.wait_readable(fd)
        piece = os.read(fd, _ANSWER_BYTES_MAX)
        if not piece:
            break
        told += piece
    return told


def read_answer(told: str, status: int) -> LaunchAnswer:
    """The lines of guest/launcher/report.h."""
    pid, error = None, ""
    for line in told.splitlines():
        word, _, rest = line.partition(" ")
        if word == "pid" and rest.isdecimal():
            pid = int(rest)
        elif word == "failed" and not error:
            error = rest.partition(" ")[2] or rest
    return LaunchAnswer(pid=pid, error=error, status=status)


_OWN_GROUPS = Path("/proc/self/cgroup")


class BoxLauncher:
    name = "hawker"

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        hierarchies = cgroups.hierarchies
        own = _OWN_GROUPS.read_text() if _OWN_GROUPS.exists() else ""
        self._around = BoxSurroundings(hierarchies, group_views(own, hierarchies))

    def check(self) -> None:
        """Raises `CannotStart`."""
        guest.launcher_path()
        load_libseccomp()

    def plan(self, directory: Path) -> Path:
        """Where the plan of a run directory is. Whether it is there says who launches its machine."""
        return directory / "box.plan"

    def lay_out(self, config: bytes, directory: Path) -> None:
        """Write the plan for a bundle's config.json. Raises `Inexpressible` for a box that only crun can make."""
        self.plan(directory).write_bytes(box_plan(config, self._around))

    async def run(self, machine_id: MachineId, directory: Path, fds: Sequence[int]) -> int:
        """Launch by the plan, with `fds` as 3, 4, ...; the pid of process 1 on the host. Raises `Unavailable` with the
        reason, once what was half made is gone again."""
        try:
            answer = await run_launcher(self.plan(directory), fds)
            if answer.pid is not None and not answer.error:
                return answer.pid
            reason = answer.error or f"the launcher was ended, status {answer.status}"
        except Unavailable as error:
            reason = str(error)
        with anyio.CancelScope(shield=True):
            await in_thread(Pool.HOST, self._cgroups.remove, machine_id)
        raise Unavailable(f"machine {machine_id} cannot be launched: {reason}")
