"""Pilots, and keepers of VMMs, as /proc knows them: also those whose directory was removed under them, so that nobody
can talk to them. Each holds its journal open from its first instruction on, always as the same descriptor, and the link
to that names the machine.

Any process of a machine may call itself so, and hold a file whose path in its mount namespace reads like a journal's.
Only what was opened by the daemon's own mount counts: a machine's processes have no descriptor of that but their own.
"""

import os
import signal
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio

from hawker.errors import Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.ids import MachineId, is_machine_id
from hawker.runtime import proc
from hawker.runtime.pilot.channel import PILOT_OPTIONS
from hawker.runtime.pilot.process_exit import end, ended
from hawker.runtime.pilot.rundir import RunDir

_PROGRAMS = ("pilot", "keeper")
_JOURNAL_FDS = (PILOT_OPTIONS[PILOT_OPTIONS.index("--journal") + 1], "3")
_DELETED = "/run/journal (deleted)"
_END_S = 10.0  # how long the kernel may take to end processes that were sent SIGKILL


def find_orphans(machines: Path) -> dict[MachineId, list[int]]:
    """Their process ids, by machine."""
    found: dict[MachineId, list[int]] = {}
    for pid in proc.named(*_PROGRAMS):
        machine_id = _machine_of(pid, machines)
        if machine_id is not None:
            found.setdefault(machine_id, []).append(pid)
    return found


async def end_orphans(machines: Path, machine_id: MachineId, *, within_s: float = _END_S) -> None:
    """End every orphaned pilot of the machine, and what descends from it. Returns when all of them have ended. Raises
    `Unavailable` when one has not ended in time, as when it hangs in the kernel."""
    found = await in_thread(Pool.HOST, find_orphans, machines)
    try:
        with anyio.fail_after(within_s):
            for pid in found.get(machine_id, ()):
                await _end_orphan(pid, machines, machine_id)
    except TimeoutError as error:
        text = f"a process of machine {machine_id} that lost its directory has not ended within {within_s:g} s"
        raise Unavailable(text) from error


async def _end_orphan(pid: int, machines: Path, machine_id: MachineId) -> None:
    below = proc.descendants(pid)
    for entry in below:
        with suppress(ProcessLookupError):
            os.kill(entry.pid, signal.SIGKILL)
    await end(pid, lambda: _machine_of(pid, machines) == machine_id)
    for entry in below:
        await ended(entry.pid, partial(proc.is_there, entry))


async def holder_of(run: RunDir) -> int | None:
    """The process id of the pilot or keeper that holds a machine's journal."""
    return await in_thread(Pool.HOST, _holder_of, run)


def _holder_of(run: RunDir) -> int | None:
    return next((pid for pid in proc.named(*_PROGRAMS) if proc.has_open(pid, run.journal)), None)


def _machine_of(pid: int, machines: Path) -> MachineId | None:
    found = (_machine_in(pid, fd, machines) for fd in _JOURNAL_FDS)
    return next((machine_id for machine_id in found if machine_id is not None), None)


def _machine_in(pid: int, fd: str, machines: Path) -> MachineId | None:
    """The machine whose removed journal the descriptor is. All is asked of a copy: the process may exchange its own
    between two questions."""
    try:
        copy = os.open(f"/proc/{pid}/fd/{fd}", os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        link = os.readlink(f"/proc/self/fd/{copy}")
        name = link.removeprefix(f"{machines}/").removesuffix(_DELETED)
        if not is_machine_id(name) or link != f"{machines}/{name}{_DELETED}":
            return None
        found = os.fstat(copy)
        own = stat.S_ISREG(found.st_mode) and found.st_nlink == 0 and _mount_id(copy) == _mount_of(machines)
        return MachineId(name) if own else None
    except OSError:
        return None
    finally:
        os.close(copy)


def _mount_of(directory: Path) -> str:
    """The mount by which this process has the directory, or its parent where the directory is gone. Neither device nor
    owner would do: the directory that a VMM writes to is on the same file system, and its journal is its user's."""
    there = next(each for each in (directory, *directory.parents) if each.is_dir())
    fd = os.open(there, os.O_PATH | os.O_CLOEXEC)
    try:
        return _mount_id(fd)
    finally:
        os.close(fd)


def _mount_id(fd: int) -> str:
    """The kernel's number of the mount by which the descriptor was opened: no two mounts of a host share one, whatever
    their namespaces."""
    lines = Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
    return next(line for line in lines if line.startswith("mnt_id:"))
