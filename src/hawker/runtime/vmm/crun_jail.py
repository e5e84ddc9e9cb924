"""The jail of QEMU and Cloud Hypervisor: a container of crun around the VMM, its config.json, and a keeper beside it.

A VMM is treated as if its guest had taken it over: a user of its own with no capability, who can gain none; namespaces
of its own, without /proc and /sys; an empty read-only root with the files and devices that it was given; the system
calls of `vmm_profile`; one control group for it and its guest, where that of a container machine would be, so that
whoever counts, kills or looks for strays by them finds both kinds.
"""

import os
import platform
import resource
import shutil
import stat
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from hawker import guest
from hawker.errors import CannotStart, Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.host.cgroup import CgroupLayout, Cgroups
from hawker.host.cgroup_restore import Bounds
from hawker.ids import MachineId
from hawker.runtime import proc
from hawker.runtime.crun import Crun, CrunBundle
from hawker.runtime.pilot.process_exit import end
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm import keeper
from hawker.runtime.vmm.contract import JailCell, JailGrant, VmmEnd
from hawker.runtime.vmm.grants import own
from hawker.value_object import ValueObject

_ENOSYS, _EPERM = 38, 1
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEWUSER, PID, NET, IPC, UTS, CGROUP, NS, TIME
_FAMILIES = (1, 2, 10)  # unix, IPv4 and IPv6; above all not vsock, which knows no namespaces, netlink and raw packets

# A list of permissions, because a monitor, unlike a workload, is a program that we know: files that it was given,
# memory, threads, signals, clocks, polling, sockets of its own network namespace, and ioctls of the devices it was
# given. Not among them: anything that makes or enters a namespace, mounts, traces, loads code into the kernel, keeps
# keys, changes a user, or releases the lock that the keeper and it hold together (flock). Monitors narrow it further.
_ALLOWED = (
    # files and directories
    "access chdir chmod close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64 fallocate "
    "fchdir fchmod fchmodat fchown fchownat fcntl fdatasync fstat fstatfs fsync ftruncate getcwd getdents getdents64 "
    "lchown link linkat lseek lstat memfd_create mkdir mkdirat newfstatat open openat openat2 pread64 preadv preadv2 "
    "pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv rename renameat renameat2 rmdir sendfile "
    "splice stat statfs statx symlink symlinkat sync_file_range syncfs truncate umask unlink unlinkat utimensat write "
    "writev "
    # memory
    "brk madvise membarrier mincore mlock mlock2 mlockall mmap mprotect mremap msync munlock munlockall munmap "
    "mbind get_mempolicy set_mempolicy pkey_alloc pkey_free pkey_mprotect "
    # processes and threads
    "arch_prctl capget capset execve exit exit_group fork futex futex_waitv get_robust_list get_thread_area getcpu "
    "getegid geteuid getgid getgroups getpgid getpgrp getpid getppid getpriority getresgid getresuid getrlimit "
    "getrusage getsid gettid getuid kill prctl prlimit64 restart_syscall rseq sched_get_priority_max "
    "sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_setaffinity "
    "sched_yield seccomp set_robust_list set_thread_area set_tid_address setpgid setrlimit setsid sysinfo tgkill "
    "tkill uname vfork wait4 waitid pidfd_open pidfd_send_signal setgid setgroups setuid setresgid setresuid "
    # signals, clocks, polling
    "alarm clock_getres clock_gettime clock_nanosleep epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 "
    "epoll_wait eventfd eventfd2 getitimer gettimeofday nanosleep pause pipe pipe2 poll ppoll pselect6 "
    "rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait "
    "rt_tgsigqueueinfo select setitimer sigaltstack signalfd signalfd4 time timer_create timer_delete "
    "timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times "
    # sockets, devices, chance
    "accept accept4 bind connect getpeername getsockname getsockopt getrandom inotify_add_watch inotify_init1 "
    "inotify_rm_watch ioctl listen recvfrom recvmmsg recvmsg sendmmsg sendmsg sendto setsockopt shutdown"
).split()
_READ_ONLY = ["bind", "ro", "nosuid", "nodev"]
_WRITABLE = ["bind", "rw", "nosuid", "nodev", "noexec"]
_LOCKED_BYTES = 64 << 10  # that a process may keep out of swap, without whole devices
OPEN_FILES = 4096
_UMASK = 0o077
_DEV = {
    "destination": "/dev",
    "type": "tmpfs",
    "source": "tmpfs",
    "options": ["nosuid", "noexec", "mode=755", "size=64k"],
}
_NO_DEVICES = {"allow": False, "access": "rwm"}


class JailDevice(ValueObject, frozen=True):
    """A device of the host that the jail has."""

    path: str  # in the jail
    kind: str  # "c" or "b"
    major: int
    """The number of its driver."""
    minor: int
    """Its number at the driver."""
    writable: bool = True
    """Otherwise it can be read alone."""


class CellSurroundings(ValueObject, frozen=True):
    """What the host adds to a cell. `root` is an empty directory; `files` is all that is shown in it."""

    root: str
    files: tuple[JailGrant, ...]
    devices: tuple[JailDevice, ...]
    cgroup: str
    """The path below each hierarchy."""
    cgroup_namespace: bool
    """The kernel has such namespaces, and the cell gets one."""
    open_files: int = OPEN_FILES
    """How many files the VMM may have open: soft and hard limit."""


def cell_config(cell: JailCell, around: CellSurroundings) -> bytes:
    config = {
        "ociVersion": "1.0.2",
        "hostname": "vmm",
        "root": {"path": around.root, "readonly": True},
        "process": _process(cell, around),
        "mounts": [_DEV, *map(_mount, around.files)],
        "linux": {
            "cgroupsPath": around.cgroup,
            "resources": {**_limits(cell.bounds), "devices": [_NO_DEVICES, *_usable(around.devices)]},
            "namespaces": _namespaces(cell.netns, around.cgroup_namespace),
            "devices": [_node(device, cell.uid) for device in around.devices],
            "seccomp": vmm_profile(),
        },
    }
    return msgspec.json.encode(config)


def _process(cell: JailCell, around: CellSurroundings) -> dict[str, Any]:
    kinds = ("bounding", "effective", "inheritable", "permitted", "ambient")
    locked = cell.bounds.memory_bytes if _has_whole_devices(cell) else _LOCKED_BYTES
    return {
        "terminal": False,
        "user": {"uid": cell.uid, "gid": cell.uid, "umask": _UMASK},
        "cwd": "/",
        "args": list(cell.argv),
        "env": [],
        "capabilities": {kind: [] for kind in kinds},
        "rlimits": [
            _limit("RLIMIT_CORE", 0),
            _limit("RLIMIT_NOFILE", around.open_files),
            _limit("RLIMIT_MEMLOCK", locked),
        ],
        "noNewPrivileges": True,
        "oomScoreAdj": 0,  # whatever the daemon's own is
    }


def _has_whole_devices(cell: JailCell) -> bool:
    """Then all memory of the guest is pinned for them."""
    return any(device.startswith("/dev/vfio/") for device in cell.devices)


def _limit(kind: str, value: int) -> dict[str, Any]:
    return {"type": kind, "soft": value, "hard": value}


def _mount(grant: JailGrant) -> dict[str, Any]:
    options = _WRITABLE if grant.writable else _READ_ONLY
    return {"destination": grant.target, "type": "bind", "source": str(grant.source), "options": options}


def _limits(bounds: Bounds) -> dict[str, Any]:
    return {
        "cpu": {"period": bounds.cpu_period_us, "quota": bounds.cpu_quota_us, "shares": bounds.cpu_shares},
        "memory": {"limit": bounds.memory_bytes, "swap": bounds.swapped_bytes},
        "pids": {"limit": bounds.pids},
    }


def _usable(devices: Iterable[JailDevice]) -> list[dict[str, Any]]:
    return [{"allow": True, **_numbers(device), "access": "rw" if device.writable else "r"} for device in devices]


def _node(device: JailDevice, uid: int) -> dict[str, Any]:
    mode = 0o600 if device.writable else 0o400
    return {"path": device.path, **_numbers(device), "fileMode": mode, "uid": uid, "gid": uid}


def _numbers(device: JailDevice) -> dict[str, Any]:
    return {"type": device.kind, "major": device.major, "minor": device.minor}


def _namespaces(netns: str | None, cgroup_namespace: bool) -> list[dict[str, str]]:
    """Without a network namespace to join it gets an empty one, never the host's."""
    kinds = ["pid", "ipc", "uts", "mount", *(["cgroup"] if cgroup_namespace else [])]
    network = {"type": "network"} if netns is None else {"type": "network", "path": netns}
    return [*({"type": kind} for kind in kinds), network]


def vmm_profile() -> dict[str, Any]:
    """The `linux.seccomp` object: the system calls that a monitor may make; all others do not exist for it. Only the
    machine's own architecture: a call of another one ends the process."""
    no_namespace = {"index": 0, "value": _NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    families = [{"index": 0, "value": family, "op": "SCMP_CMP_EQ"} for family in _FAMILIES]
    rules = [
        _allow(_ALLOWED),
        _allow(["clone"], no_namespace),
        *(_allow(["socket", "socketpair"], family) for family in families),
    ]
    return {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": _ENOSYS, "syscalls": rules}


def _allow(names: list[str], *arguments: dict[str, Any]) -> dict[str, Any]:
    rule: dict[str, Any] = {"names": names, "action": "SCMP_ACT_ALLOW"}
    return {**rule, "args": list(arguments)} if arguments else rule


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
