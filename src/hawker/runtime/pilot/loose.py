"""Pilots whose directory was removed under them: nobody can talk to them, and only /proc knows them. A pilot holds its
journal open from its first instruction on, always as the same descriptor, and the link to that names the machine.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio.to_thread

from hawker.ids import MachineId
from hawker.runtime import proc
from hawker.runtime.pilot.launch import PILOT_OPTIONS
from hawker.runtime.pilot.lifeline import end

_JOURNAL_FD = PILOT_OPTIONS[PILOT_OPTIONS.index("--journal") + 1]
_DELETED = "/run/journal (deleted)"


def loose_pilots(machines: Path) -> dict[MachineId, list[int]]:
    """Their process ids, by machine."""
    found: dict[MachineId, list[int]] = {}
    for pid in proc.named("pilot"):
        machine_id = _machine_of(pid, machines)
        if machine_id is not None:
            found.setdefault(machine_id, []).append(pid)
    return found


async def end_loose(machines: Path, machine_id: MachineId) -> None:
    """End every loose pilot of the machine, and what descends from it."""
    found = await anyio.to_thread.run_sync(loose_pilots, machines)
    for pid in found.get(machine_id, ()):
        for below in _descendants(pid):
            with suppress(ProcessLookupError):
                os.kill(below, signal.SIGKILL)
        await end(pid, lambda pid=pid: _machine_of(pid, machines) == machine_id)  # type: ignore[misc]


def _descendants(pid: int) -> Iterator[int]:
    return (entry.pid for entry in proc.descendants(pid))


def _machine_of(pid: int, machines: Path) -> MachineId | None:
    try:
        link = os.readlink(f"/proc/{pid}/fd/{_JOURNAL_FD}")
    except OSError:
        return None
    head = f"{machines}/"
    name = link.removeprefix(head).removesuffix(_DELETED)
    whole = link == f"{head}{name}{_DELETED}"
    return MachineId(name) if whole and name and "/" not in name else None
