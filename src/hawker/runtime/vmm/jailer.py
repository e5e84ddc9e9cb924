"""The jail of Firecracker: its own jailer, by the command line that it publishes, and a keeper beside it.

Files are not linked or copied into the chroot that the jailer makes: the keeper shows them there to the jailer alone,
read-only where the machine may not write. The chroot is made anew for each launch, and nothing of the host is ever
looked up in it: its root belongs to the VMM, which may put there what it likes.

The jailer closes all descriptors but the standard ones, so a VMM here does not hold the journal's lock: the keeper
does, alone. When a keeper is ended before its VMM, the machine looks dead although it runs, and only its control groups
know better. So whatever is in them is ended before anything else is launched, and by `kill`, as always.
"""

import os
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from hawker import guest
from hawker.errors import CannotStart, Unavailable
from hawker.host.cgroup import CgroupLayout, Cgroups
from hawker.host.rmtree import remove_tree
from hawker.ids import MachineId
from hawker.runtime import proc
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm import keeper
from hawker.runtime.vmm.contract import Cell, Grant, VmmEnd
from hawker.runtime.vmm.firecracker import FIRECRACKER
from hawker.runtime.vmm.grants import own
from hawker.runtime.vmm.jailer_command import DEVICES, jailer_command

JAILER = replace(FIRECRACKER, command="jailer", title="Firecracker's jailer")


class FirecrackerJailer:
    """Keeps `Jail`. Remembers nothing."""

    name = "jailer"

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._unified = cgroups.layout is CgroupLayout.V2

    async def check(self) -> None:
        if os.geteuid() != 0:
            raise CannotStart("microVMs need root: start as root, or choose --driver process")
        if self._cgroups.layout is CgroupLayout.NONE:
            raise CannotStart("no cgroups are mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup")
        await JAILER.check(lambda: "")
        guest.keeper_path()

    def inside(self, source: Path, name: str) -> str:
        return f"/cell/{name}"

    async def launch(self, cell: Cell, run: RunDir) -> int:
        if not set(cell.devices) <= DEVICES.keys():
            raise Unavailable(f"Firecracker's jailer gives its machines {' and '.join(DEVICES)} alone")
        await anyio.to_thread.run_sync(self._cgroups.remove, cell.machine_id)
        chroot = await anyio.to_thread.run_sync(_lay_out, cell, run)
        wanted = keeper.Launch(
            argv=jailer_command(JAILER.find(), cell, _base(run), self._cgroups.path_of(cell.machine_id), self._unified),
            fds=cell.fds,
            pid_file=chroot / f"{_program(cell).name}.pid",
            uid=cell.uid,
            views=[Grant(each.source, str(chroot / each.target[1:]), each.writable) for each in cell.grants],
            apart=True,
        )
        try:
            pid = await keeper.launch(run, wanted)
        except Unavailable as error:
            await self.clear(cell.machine_id, run)
            raise Unavailable(f"the jailer cannot start the VMM of machine {cell.machine_id}: {error}") from error
        await anyio.to_thread.run_sync(self._gather, cell, pid)
        return pid

    async def kill(self, machine_id: MachineId, run: RunDir, pid: int | None) -> None:
        record = keeper.read_record(run)
        if record.vmm is None:
            await keeper.abandon(run)
        await anyio.to_thread.run_sync(self._cgroups.kill, machine_id)
        await keeper.bury(run)

    async def clear(self, machine_id: MachineId, run: RunDir) -> None:
        await anyio.to_thread.run_sync(self._cgroups.remove, machine_id)
        await anyio.to_thread.run_sync(remove_tree, _base(run))

    def ended(self, run: RunDir) -> VmmEnd | None:
        return keeper.read_end(run)

    def console(self, run: RunDir) -> bytes:
        return keeper.read_console(run)

    def _gather(self, cell: Cell, keeper_pid: int) -> None:
        """Where each controller has a tree of its own, the jailer knows only those whose limits it was told. It is done
        before the VMM is told what to run."""
        if not self._unified:
            pids = [entry.pid for entry in proc.descendants(keeper_pid)]
            self._cgroups.gather(cell.machine_id, cell.bounds, pids, DEVICES.values())


def _base(run: RunDir) -> Path:
    return run.path / "jail"


def _program(cell: Cell) -> Path:
    """As the jailer names things after it: where links lead."""
    return Path(cell.argv[0]).resolve()


def _lay_out(cell: Cell, run: RunDir) -> Path:
    """The chroot, with a place for each grant; what an earlier VMM left there is gone."""
    own(cell, run)
    remove_tree(_base(run))
    chroot = _base(run) / _program(cell).name / cell.machine_id / "root"
    for grant in cell.grants:
        target = chroot / grant.target[1:]
        _make(target.parent)
        if grant.source.is_dir():
            _make(target)
        else:
            target.touch()
    return chroot


def _make(directory: Path) -> None:
    """Its user has to get through, whatever the daemon's umask."""
    if not directory.is_dir():
        _make(directory.parent)
        directory.mkdir()
        directory.chmod(0o755)
