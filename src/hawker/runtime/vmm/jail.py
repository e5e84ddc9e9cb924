"""The jail of QEMU and Cloud Hypervisor: a container of crun around the VMM, and a keeper beside it.

Its control groups are where those of a container machine would be, so that whoever counts, kills or looks for strays
by them finds both kinds.
"""

import os
import resource
import stat
from pathlib import Path

import anyio.to_thread

from hawker import guest
from hawker.errors import CannotStart, Unavailable
from hawker.host.cgroup import CgroupLayout, Cgroups
from hawker.ids import MachineId
from hawker.runtime import proc
from hawker.runtime.crun import Bundle, Crun
from hawker.runtime.pilot.lifeline import end
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm import keeper
from hawker.runtime.vmm.cell_config import OPEN_FILES, Device, Surroundings, cell_config
from hawker.runtime.vmm.contract import Cell, Grant, VmmEnd
from hawker.runtime.vmm.grants import own
from hawker.runtime.vmm.needs import Needs

_CGROUP_NAMESPACE = Path("/proc/self/ns/cgroup")


class CrunJail:
    """Keeps `Jail`. Remembers nothing but what programs need."""

    name = "crun"

    def __init__(self, crun: Crun, cgroups: Cgroups) -> None:
        self._crun = crun
        self._cgroups = cgroups
        self._needs = Needs()

    async def check(self) -> None:
        if os.geteuid() != 0:
            raise CannotStart("microVMs need root: start as root, or choose --driver process")
        self._crun.find_program()
        if self._cgroups.layout is CgroupLayout.NONE:
            raise CannotStart("no cgroups are mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup")
        guest.keeper_path()

    def inside(self, source: Path, name: str) -> str:
        """Devices are where devices may be; all else may be on a file system without."""
        return f"/dev/{name}" if source.is_block_device() else f"/cell/{name}"

    async def launch(self, cell: Cell, run: RunDir) -> int:
        bundle = Bundle(run.path)
        await anyio.to_thread.run_sync(self._lay_out, cell, run)
        launch = keeper.Launch(
            argv=self._crun.run_argv(cell.machine_id, bundle, len(cell.fds)),
            fds=cell.fds,
            pid_file=bundle.pid,
            uid=cell.uid,
            hidden=self._crun.hidden,
        )
        try:
            return await keeper.launch(run, launch)
        except Unavailable as error:
            await anyio.to_thread.run_sync(self._crun.forget, cell.machine_id)
            raise Unavailable(f"crun cannot start the VMM of machine {cell.machine_id}: {error}") from error

    async def kill(self, machine_id: MachineId, run: RunDir, pid: int | None) -> None:
        """A launch that goes on first, so that nothing starts behind our back; then all of the control group; then the
        VMM, should its group have been taken from it. The keeper of a dead VMM ends by itself."""
        record = keeper.read_record(run)
        if record.vmm is None:
            await keeper.abandon(run)
        await anyio.to_thread.run_sync(self._cgroups.kill, machine_id)
        if record.vmm is not None:
            vmm = record.vmm
            await end(vmm, lambda: proc.has_open(vmm, run.journal))
        await keeper.bury(run)

    async def clear(self, machine_id: MachineId, run: RunDir) -> None:
        await anyio.to_thread.run_sync(self._crun.forget, machine_id)

    def ended(self, run: RunDir) -> VmmEnd | None:
        return keeper.read_end(run)

    def console(self, run: RunDir) -> bytes:
        return keeper.read_console(run)

    def _lay_out(self, cell: Cell, run: RunDir) -> None:
        if self._crun.knows(cell.machine_id):
            self._crun.forget(cell.machine_id)
        root = run.path / "root"
        root.mkdir(exist_ok=True)
        root.chmod(0o755)  # the cell's user must get through, whatever the daemon's umask
        own(cell, run)
        disks = tuple(grant for grant in cell.grants if grant.source.is_block_device())
        around = Surroundings(
            root=str(root),
            files=(*self._needs.of(Path(cell.argv[0])), *(grant for grant in cell.grants if grant not in disks)),
            devices=(*(_device(Path(path), path) for path in cell.devices), *map(_disk, disks)),
            cgroup=self._cgroups.path_of(cell.machine_id),
            cgroup_namespace=_CGROUP_NAMESPACE.exists(),
            open_files=min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        )
        Bundle(run.path).config.write_bytes(cell_config(cell, around))


def _disk(grant: Grant) -> Device:
    return _device(grant.source, grant.target, writable=grant.writable)


def _device(source: Path, target: str, *, writable: bool = True) -> Device:
    """Raises `Unavailable`."""
    try:
        found = source.stat()
    except OSError as error:
        raise Unavailable(f"the device {source} is not there: {error.strerror}") from error
    kind = "b" if stat.S_ISBLK(found.st_mode) else "c"
    return Device(target, kind, os.major(found.st_rdev), os.minor(found.st_rdev), writable)
