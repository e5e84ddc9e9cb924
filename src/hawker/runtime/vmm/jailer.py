"""The jail of Firecracker: its own jailer, by the command line that it publishes, and a keeper beside it.

Files are not linked or copied into the chroot that the jailer makes: the keeper shows them there to the jailer alone,
read-only where the machine may not write. The chroot is made anew for each launch, and nothing of the host is ever
looked up in it: its root belongs to the VMM, which may put there what it likes.

The jailer closes all descriptors but the standard ones, so a VMM here does not hold the journal's lock: the keeper
does, alone. When a keeper is ended before its VMM, the machine looks dead although it runs, and only its control groups
know better. So whatever is in them is ended before anything else is launched, and by `kill`, as always.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from hawker import guest
from hawker.errors import CannotStart, Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.host.cgroup import CgroupLayout, Cgroups
from hawker.host.cgroup_restore import Bounds
from hawker.host.rmtree import remove_tree
from hawker.ids import MachineId
from hawker.runtime import proc
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm import keeper
from hawker.runtime.vmm.contract import JailCell, JailGrant, VmmEnd
from hawker.runtime.vmm.firecracker import FIRECRACKER
from hawker.runtime.vmm.grants import own

DEVICES = {"/dev/kvm": "c 10:232 rw", "/dev/net/tun": "c 10:200 rw"}
"""The nodes that it makes, and their rules in a control group of version 1."""

_OPEN_FILES = 4096
_SHARES_MAX, _WEIGHT_MAX = 262_144, 10_000
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

    async def launch(self, cell: JailCell, run: RunDir) -> int:
        if not set(cell.devices) <= DEVICES.keys():
            raise Unavailable(f"Firecracker's jailer gives its machines {' and '.join(DEVICES)} alone")
        await in_thread(Pool.HOST, self._cgroups.remove, cell.machine_id)
        chroot = await in_thread(Pool.HOST, _lay_out, cell, run)
        wanted = keeper.KeeperLaunch(
            argv=jailer_command(JAILER.find(), cell, _base(run), self._cgroups.path_of(cell.machine_id), self._unified),
            fds=cell.fds,
            pid_file=chroot / f"{_program(cell).name}.pid",
            uid=cell.uid,
            views=[JailGrant(each.source, str(chroot / each.target[1:]), each.writable) for each in cell.grants],
            apart=True,
        )
        try:
            pid = await keeper.launch(run, wanted)
        except Unavailable as error:
            await self.clear(cell.machine_id, run)
            raise Unavailable(f"the jailer cannot start the VMM of machine {cell.machine_id}: {error}") from error
        await in_thread(Pool.HOST, self._gather, cell, pid)
        return pid

    async def kill(self, machine_id: MachineId, run: RunDir, pid: int | None) -> None:
        record = keeper.read_record(run)
        if record.vmm is None:
            await keeper.abandon(run)
        await in_thread(Pool.HOST, self._cgroups.kill, machine_id)
        await keeper.bury(run)

    async def clear(self, machine_id: MachineId, run: RunDir) -> None:
        await in_thread(Pool.HOST, self._cgroups.remove, machine_id)
        await in_thread(Pool.HOST, remove_tree, _base(run))

    def ended(self, run: RunDir) -> VmmEnd | None:
        return keeper.read_end(run)

    def console(self, run: RunDir) -> bytes:
        return keeper.read_console(run)

    def _gather(self, cell: JailCell, keeper_pid: int) -> None:
        """Where each controller has a tree of its own, the jailer knows only those whose limits it was told. It is done
        before the VMM is told what to run."""
        if not self._unified:
            pids = [entry.pid for entry in proc.descendants(keeper_pid)]
            self._cgroups.gather(cell.machine_id, cell.bounds, pids, DEVICES.values())


def _base(run: RunDir) -> Path:
    return run.path / "jail"


def _program(cell: JailCell) -> Path:
    """The file that links to the program lead to: the jailer names things after it."""
    return Path(cell.argv[0]).resolve()


def _lay_out(cell: JailCell, run: RunDir) -> Path:
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


def jailer_command(jailer: str, cell: JailCell, base: Path, cgroup: str, unified: bool) -> tuple[str, ...]:
    """It starts the VMM as process 1 of a pid namespace, in a root below `base`, and ends. `cgroup` is the path of the
    machine's group in each tree, whose last name is the machine's id, as the jailer makes it."""
    parent = cgroup.rpartition("/")[0].lstrip("/")
    argv = [jailer, "--id", str(cell.machine_id), "--exec-file", cell.argv[0]]
    argv += ["--uid", str(cell.uid), "--gid", str(cell.uid), "--chroot-base-dir", str(base)]
    argv += ["--netns", cell.netns] if cell.netns is not None else []
    argv += ["--new-pid-ns", "--resource-limit", f"no-file={_OPEN_FILES}", "--parent-cgroup", parent]
    argv += ["--cgroup-version", "2" if unified else "1"]
    for name, value in (_v2 if unified else _v1)(cell.bounds):
        argv += ["--cgroup", f"{name}={value}"]
    return (*argv, "--", *cell.argv[1:])


def _v1(bounds: Bounds) -> Iterator[tuple[str, object]]:
    yield "cpu.shares", bounds.cpu_shares
    yield "cpu.cfs_period_us", bounds.cpu_period_us
    yield "cpu.cfs_quota_us", bounds.cpu_quota_us
    yield "memory.limit_in_bytes", bounds.memory_bytes
    yield "pids.max", bounds.pids


def _v2(bounds: Bounds) -> Iterator[tuple[str, object]]:
    yield "cpu.weight", 1 - (2 - bounds.cpu_shares) * (_WEIGHT_MAX - 1) // (_SHARES_MAX - 2)  # rounded up again
    yield "cpu.max", f"{bounds.cpu_quota_us} {bounds.cpu_period_us}"
    yield "memory.max", bounds.memory_bytes
    yield "memory.swap.max", bounds.swapped_bytes - bounds.memory_bytes
    yield "pids.max", bounds.pids
