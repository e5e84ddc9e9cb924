"""Writes the runtime specification's config.json by a cell: what a VMM sees of the host, and what limits it. Pure.

A VMM is treated as if its guest had taken it over: a user of its own with no capability, who can gain none; namespaces
of its own, without /proc and /sys; an empty read-only root with the files and devices that it was given; the system
calls of `vmm_profile`; one control group for it and its guest.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from hawker.host.cgroup_restore import Bounds
from hawker.runtime.vmm.contract import JailCell, JailGrant
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
    minor: int
    writable: bool = True


class CellSurroundings(ValueObject, frozen=True):
    """What the host adds to a cell. `root` is an empty directory; `files` is all that is shown in it."""

    root: str
    files: tuple[JailGrant, ...]
    devices: tuple[JailDevice, ...]
    cgroup: str
    cgroup_namespace: bool
    open_files: int = OPEN_FILES


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
