"""The jail of QEMU and Cloud Hypervisor: a container of crun around the VMM, and a keeper beside it.

Its control groups are where those of a container machine would be, so that whoever counts, kills or looks for strays
by them finds both kinds.
"""

import os
import platform
import resource
import shutil
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

import msgspec

from hawker import guest
from hawker.errors import CannotStart, Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.host.cgroup import CgroupLayout, Cgroups
from hawker.ids import MachineId
from hawker.runtime import proc
from hawker.runtime.crun import Crun, CrunBundle
from hawker.runtime.pilot.process_exit import end
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm import keeper
from hawker.runtime.vmm.cell_config import OPEN_FILES, CellSurroundings, JailDevice, cell_config
from hawker.runtime.vmm.contract import JailCell, JailGrant, VmmEnd
from hawker.runtime.vmm.grants import own
from hawker.value_object import ValueObject

_TIMEOUT_S = 10.0
_CACHE = Path("/etc/ld.so.cache")
_DIRECTORIES = {
    "qemu-system-": (
        "/usr/share/qemu",
        "/usr/share/seabios",
        "/usr/lib/{triple}/qemu",
        "/usr/lib/qemu",
        "/usr/lib64/qemu",
    ),
}
"""By the beginning of a program's name: firmware, and parts that it loads while it runs."""
_CGROUP_NAMESPACE = Path("/proc/self/ns/cgroup")


class CrunJail:
    """Keeps `Jail`. Remembers nothing but what programs need."""

    name = "crun"

    def __init__(self, crun: Crun, cgroups: Cgroups) -> None:
        self._crun = crun
        self._cgroups = cgroups
        self._needs = ProgramFiles()

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

    async def launch(self, cell: JailCell, run: RunDir) -> int:
        bundle = CrunBundle(run.path)
        await in_thread(Pool.HOST, self._lay_out, cell, run)
        launch = keeper.KeeperLaunch(
            argv=self._crun.run_argv(cell.machine_id, bundle, len(cell.fds)),
            fds=cell.fds,
            pid_file=bundle.pid,
            uid=cell.uid,
            hidden=self._crun.hidden,
        )
        try:
            return await keeper.launch(run, launch)
        except Unavailable as error:
            await in_thread(Pool.HOST, self._crun.forget, cell.machine_id)
            raise Unavailable(f"crun cannot start the VMM of machine {cell.machine_id}: {error}") from error

    async def kill(self, machine_id: MachineId, run: RunDir, pid: int | None) -> None:
        """A launch that goes on first, so that nothing starts behind our back; then all of the control group; then the
        VMM, should its group have been taken from it. The keeper of a dead VMM ends by itself."""
        record = keeper.read_record(run)
        if record.vmm is None:
            await keeper.abandon(run)
        await in_thread(Pool.HOST, self._cgroups.kill, machine_id)
        if record.vmm is not None:
            vmm = record.vmm
            await end(vmm, lambda: proc.has_open(vmm, run.journal))
        await keeper.bury(run)

    async def clear(self, machine_id: MachineId, run: RunDir) -> None:
        await in_thread(Pool.HOST, self._crun.forget, machine_id)

    def ended(self, run: RunDir) -> VmmEnd | None:
        return keeper.read_end(run)

    def console(self, run: RunDir) -> bytes:
        return keeper.read_console(run)

    def _lay_out(self, cell: JailCell, run: RunDir) -> None:
        if self._crun.knows(cell.machine_id):
            self._crun.forget(cell.machine_id)
        root = run.path / "root"
        root.mkdir(exist_ok=True)
        root.chmod(0o755)  # the cell's user must get through, whatever the daemon's umask
        own(cell, run)
        disks = tuple(grant for grant in cell.grants if grant.source.is_block_device())
        around = CellSurroundings(
            root=str(root),
            files=(*self._needs.of(Path(cell.argv[0])), *(grant for grant in cell.grants if grant not in disks)),
            devices=(*(_device(Path(path), path) for path in cell.devices), *map(_disk, disks)),
            cgroup=self._cgroups.path_of(cell.machine_id),
            cgroup_namespace=_CGROUP_NAMESPACE.exists(),
            open_files=min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        )
        CrunBundle(run.path).config.write_bytes(cell_config(cell, around))


def _disk(grant: JailGrant) -> JailDevice:
    return _device(grant.source, grant.target, writable=grant.writable)


def _device(source: Path, target: str, *, writable: bool = True) -> JailDevice:
    """Raises `Unavailable`."""
    try:
        found = source.stat()
    except OSError as error:
        raise Unavailable(f"the device {source} is not there: {error.strerror}") from error
    kind = "b" if stat.S_ISBLK(found.st_mode) else "c"
    return JailDevice(target, kind, os.major(found.st_rdev), os.minor(found.st_rdev), writable)


class _Found(ValueObject, frozen=True):
    grants: tuple[JailGrant, ...]
    stamps: tuple[tuple[int, int], ...]


class ProgramFiles(ValueObject, frozen=True):
    """The files of this host that a monitor's program needs to see: itself, its libraries, and firmware that it reads.

    As few as is robust: the files that its own loader names, each by itself, and whole directories only where a program
    looks for files by name. A program that is statically linked needs itself alone. Remembers what it found, for as
    long as the files are the same."""

    _known: dict[str, _Found] = msgspec.field(default_factory=dict)

    def of(self, program: Path) -> tuple[JailGrant, ...]:
        """Raises `CannotStart` when the loader cannot tell."""
        found = self._known.get(str(program))
        if found is None or found.stamps != _stamps(found.grants):
            grants = tuple(JailGrant(path, str(path)) for path in _files(program))
            found = self._known[str(program)] = _Found(grants, _stamps(grants))
        return found.grants


def _files(program: Path) -> list[Path]:
    libraries = _libraries(program)
    return [program, *([*libraries, _CACHE] if libraries else []), *_directories(program)]


def _libraries(program: Path) -> list[Path]:
    """The libraries on the loader's own list; none of a program that is linked statically."""
    ldd = shutil.which("ldd")
    if ldd is None:
        raise CannotStart("ldd is missing: apt-get install libc-bin")
    asked = subprocess.run([ldd, str(program)], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    told = asked.stdout + asked.stderr
    if "not found" in told:
        raise CannotStart(f"{program} lacks a library on this host: {told.strip()}")
    return [Path(word) for line in told.splitlines() for word in line.split() if _is_library(word)]


def _is_library(word: str) -> bool:
    return word.startswith("/") and not word.endswith(":")


def _directories(program: Path) -> list[Path]:
    triple = f"{platform.machine()}-linux-gnu"
    named = [names for start, names in _DIRECTORIES.items() if program.name.startswith(start)]
    places = [Path(name.format(triple=triple)) for names in named for name in names]
    return [place for place in places if place.is_dir()]


def _stamps(grants: tuple[JailGrant, ...]) -> tuple[tuple[int, int], ...]:
    """What tells a file's version; a file that went away has none, so that it is asked for again."""
    found = []
    for grant in grants:
        with suppress(FileNotFoundError):
            stat = os.stat(grant.source)
            found.append((stat.st_ino, stat.st_mtime_ns))
    return tuple(found)
