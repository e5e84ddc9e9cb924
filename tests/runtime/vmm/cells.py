"""Cells for tests of jails: whatever is to run in the place of a VMM, in a real jail with a real keeper. A script there
does all that a VMM could do that its guest has taken over."""

import _ctypes
import fcntl
import os
import sys
import sysconfig
import textwrap
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from hawker.host.cgroup import Cgroups, find_hierarchies
from hawker.host.cgroup_restore import Bounds
from hawker.host.mount import mounts
from hawker.ids import MachineId, NodeId
from hawker.runtime.crun import Crun
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm.contract import Jail, JailCell, JailGrant, VmmEnd
from hawker.runtime.vmm.crun_jail import CrunJail, ProgramFiles
from tests.waiting import eventually

MACHINE, OTHER = MachineId("0123456789abcd"), MachineId("fedcba98765432")
_FIRST_UID = 0x7800_0000 + 2 * os.getpid()  # tests of another process count what runs as their own users
UIDS = {MACHINE: _FIRST_UID, OTHER: _FIRST_UID + 1}
MIB = 1 << 20
BOUNDS = Bounds(
    cpu_period_us=100_000, cpu_quota_us=100_000, cpu_shares=100, memory_bytes=96 * MIB, swapped_bytes=96 * MIB, pids=32
)
_PYTHON = Path(os.path.realpath(sys.executable))
_LIBRARY = Path(sysconfig.get_path("stdlib"))
_PRELUDE = """
import ctypes, os, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return name

def tried(attempt):
    try:
        return f"yes: {attempt()}"
    except BaseException as error:
        return f"no: {type(error).__name__}" + (f" {error.errno}" if isinstance(error, OSError) else "")
"""


def python(script: str) -> tuple[str, ...]:
    """`tried(f)` in it tells "yes: VALUE" or "no: ERROR ERRNO"; `call(NAME, ...)` is one of libc's functions."""
    return (str(_PYTHON), "-I", "-S", "-u", "-c", _PRELUDE + textwrap.dedent(script))


def python_grants() -> tuple[JailGrant, ...]:
    """What a script needs beside the interpreter's own libraries."""
    shown = {grant.source: grant for grant in ProgramFiles().of(Path(_ctypes.__file__))}
    own = {grant.source for grant in ProgramFiles().of(_PYTHON)}
    libraries = [grant for source, grant in shown.items() if source not in own and _LIBRARY not in source.parents]
    return (JailGrant(_LIBRARY, str(_LIBRARY)), *libraries)


def interpreter_grants() -> tuple[JailGrant, ...]:
    """For a jail that does not look for what a program needs."""
    return ProgramFiles().of(_PYTHON)


def script_program(path: Path) -> Path:
    """A program that evaluates its last argument, as `python` does."""
    path.write_text(f"#!{_PYTHON} -IS\n{_PRELUDE}\nexec(sys.argv[-1])\n")
    path.chmod(0o755)
    return path


@dataclass(frozen=True, slots=True)
class With:
    """What a cell has beside its own directory."""

    machine_id: MachineId = MACHINE
    grants: tuple[JailGrant, ...] = ()
    devices: tuple[str, ...] = ()
    netns: str | None = None
    bounds: Bounds = BOUNDS


PLAIN = With()


@dataclass(frozen=True, slots=True)
class Prison:
    """A jail with machines in it, and a directory for each as a node has it."""

    directory: Path
    jail: Jail
    cgroups: Cgroups
    launched: dict[MachineId, int] = field(default_factory=dict)

    def run(self, machine_id: MachineId = MACHINE) -> RunDir:
        return RunDir(self.directory / "machines" / machine_id / "run")

    async def launch(self, argv: Sequence[str], wish: With = PLAIN) -> int:
        """The keeper's pid. As a driver would: the journal's lock is taken here and goes on there."""
        run = self.run(wish.machine_id)
        run.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        journal = os.open(run.journal, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
            cell = JailCell(
                machine_id=wish.machine_id,
                uid=UIDS[wish.machine_id],
                argv=tuple(argv),
                grants=(*wish.grants, JailGrant(run.vmm, "/cell/vmm", writable=True)),
                devices=wish.devices,
                netns=wish.netns,
                bounds=wish.bounds,
                fds=(journal,),
            )
            keeper = self.launched[wish.machine_id] = await self.jail.launch(cell, run)
        finally:
            os.close(journal)
        return keeper

    async def end(self, machine_id: MachineId = MACHINE) -> VmmEnd:
        """How it ended, once its keeper has too: that writes it down before it lets go of the lock."""
        run = self.run(machine_id)
        await eventually(lambda: self.jail.ended(run) is not None and not run.alive())
        end = self.jail.ended(run)
        assert end is not None
        return end

    async def begin(self, script: str, wish: With = PLAIN) -> int:
        """Start one that says "ready" at some time, and wait for the whole line; the keeper's pid."""
        run = self.run(wish.machine_id)
        keeper = await self.launch(python(script), replace(wish, grants=(*wish.grants, *python_grants())))
        await eventually(lambda: b"ready\n" in self.jail.console(run) or self.jail.ended(run))
        return keeper

    async def script(self, script: str, wish: With = PLAIN) -> VmmEnd:
        """Run one to its end."""
        await self.launch(python(script), replace(wish, grants=(*wish.grants, *python_grants())))
        return await self.end(wish.machine_id)

    async def tries(self, expression: str, wish: With = PLAIN) -> str:
        """What comes of evaluating it in the place of a VMM: "yes: VALUE" or "no: ERROR ERRNO"."""
        end = await self.script(f"print(tried(lambda: {expression}))", wish)
        return end.console.decode().strip()


@asynccontextmanager
async def prison(
    directory: Path, node_id: NodeId, jail: Callable[[Cgroups], Jail] | None = None
) -> AsyncIterator[Prison]:
    """Leaves nothing. Without a `jail` it is one of crun's."""
    cgroups = Cgroups(node_id, find_hierarchies(mounts()))
    chosen = CrunJail(Crun(directory / "crun", cgroups), cgroups) if jail is None else jail(cgroups)
    made = Prison(directory, chosen, cgroups)
    await made.jail.check()
    try:
        yield made
    finally:
        for machine_id, pid in made.launched.items():
            await made.jail.kill(machine_id, made.run(machine_id), pid)
            await made.jail.clear(machine_id, made.run(machine_id))
