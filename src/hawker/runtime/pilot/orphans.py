"""Pilots, and keepers of VMMs, as /proc knows them: also those whose directory was removed under them, so that nobody
can talk to them. Each holds its journal open from its first instruction on, always as the same descriptor, and the link
to that names the machine.
"""

import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

from hawker.fair.threads import Pool, in_thread
from hawker.ids import MachineId
from hawker.runtime import proc
from hawker.runtime.pilot.channel import PILOT_OPTIONS
from hawker.runtime.pilot.process_exit import end, ended
from hawker.runtime.pilot.rundir import RunDir

_PROGRAMS = ("pilot", "keeper")
_JOURNAL_FDS = (PILOT_OPTIONS[PILOT_OPTIONS.index("--journal") + 1], "3")
_DELETED = "/run/journal (deleted)"


def find_orphans(machines: Path) -> dict[MachineId, list[int]]:
    """Their process ids, by machine."""
    found: dict[MachineId, list[int]] = {}
    for pid in proc.named(*_PROGRAMS):
        machine_id = _machine_of(pid, machines)
        if machine_id is not None:
            found.setdefault(machine_id, []).append(pid)
    return found


async def end_orphans(machines: Path, machine_id: MachineId) -> None:
    """End every orphaned pilot of the machine, and what descends from it. Returns when all of them have ended."""
    found = await in_thread(Pool.HOST, find_orphans, machines)
    for pid in found.get(machine_id, ()):
        below = proc.descendants(pid)
        for entry in below:
            with suppress(ProcessLookupError):
                os.kill(entry.pid, signal.SIGKILL)
        await end(pid, lambda pid=pid: _machine_of(pid, machines) == machine_id)  # type: ignore[misc]
        for entry in below:
            await ended(entry.pid, partial(proc.is_there, entry))


async def holder_of(run: RunDir) -> int | None:
    """The process id of the pilot or keeper that holds a machine's journal."""
    return await in_thread(Pool.HOST, _holder_of, run)


def _holder_of(run: RunDir) -> int | None:
    return next((pid for pid in proc.named(*_PROGRAMS) if proc.has_open(pid, run.journal)), None)


def _machine_of(pid: int, machines: Path) -> MachineId | None:
    found = (_machine_in(pid, fd, f"{machines}/") for fd in _JOURNAL_FDS)
    return next((machine_id for machine_id in found if machine_id is not None), None)


def _machine_in(pid: int, fd: str, head: str) -> MachineId | None:
    try:
        link = os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return None
    name = link.removeprefix(head).removesuffix(_DELETED)
    whole = link == f"{head}{name}{_DELETED}"
    return MachineId(name) if whole and name and "/" not in name else None
