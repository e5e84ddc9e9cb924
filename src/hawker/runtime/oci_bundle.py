"""Writes the runtime specification's config.json by an instance's spec: what isolates a container machine. Pure.

Process 1 is the pilot, which starts the workload; so users, files, environment and commands are not here. The workload
has Docker's default capabilities less NET_RAW: raw sockets would let it forge addresses, and ping works without. The
pilot needs no shield from the memory limit: it is the smallest process. The system calls are those named here: what
nobody here has heard of does not exist (ENOSYS), so libraries fall back; so with clone3, whose flags are behind a
pointer; what is known and refused is not permitted (EPERM). Nothing is allowed that Docker's default profile refuses.
"""

import platform
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from hawker.host.cgroup_restore import Bounds
from hawker.host.idmap import RANGE
from hawker.runtime.driver import container_root
from hawker.runtime.spec import InstanceLimits, InstanceSpec, MountSpec
from hawker.value_object import ValueObject

_EPERM, _ENOSYS, _EPROTONOSUPPORT, _EAFNOSUPPORT = 1, 38, 93, 97

_ARCHITECTURES = {
    "x86_64": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
    "aarch64": ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
}

_FILES = (
    "access chdir chmod chown chroot close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 "
    "fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock "
    "fremovexattr fsetxattr fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getxattr getxattrat "
    "ioctl lchown lgetxattr link linkat listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat mkdir "
    "mkdirat mknod mknodat newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read "
    "readahead readlink readlinkat readv removexattr removexattrat rename renameat renameat2 rmdir sendfile setxattr "
    "setxattrat splice stat statfs statx symlink symlinkat sync sync_file_range syncfs tee truncate umask unlink "
    "unlinkat utime utimensat utimes vmsplice write writev"
).split()
_WAITING = (
    "epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 fanotify_mark "
    "inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents "
    "io_setup io_submit pipe pipe2 poll ppoll pselect6 select signalfd signalfd4"
).split()
_MEMORY = (
    "brk cachestat madvise map_shadow_stack membarrier memfd_create mincore mlock mlock2 mlockall mmap mprotect "
    "mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect remap_file_pages"
).split()
_PROCESSES = (
    "alarm execve execveat exit exit_group fork futex futex_requeue futex_wait futex_waitv futex_wake get_robust_list "
    "get_thread_area getcpu getpgid getpgrp getpid getppid getpriority getrlimit getrusage getsid gettid ioprio_get "
    "ioprio_set kill pause pidfd_open pidfd_send_signal prctl prlimit64 process_mrelease process_vm_readv "
    "process_vm_writev ptrace restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo "
    "rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min "
    "sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity "
    "sched_setattr sched_setparam sched_setscheduler sched_yield set_robust_list set_thread_area set_tid_address "
    "setpgid setpriority setrlimit setsid sigaltstack sysinfo tgkill times tkill uname vfork wait4 waitid"
).split()
_IDENTITY = (
    "capget capset getegid geteuid getgid getgroups getresgid getresuid getuid landlock_add_rule "
    "landlock_create_ruleset landlock_restrict_self seccomp setfsgid setfsuid setgid setgroups setregid setresgid "
    "setresuid setreuid setuid"
).split()
_TIME = (
    "adjtimex clock_getres clock_gettime clock_nanosleep getitimer getrandom gettimeofday nanosleep setitimer time "
    "timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime "
    "timerfd_settime"
).split()
_MESSAGES = (
    "accept accept4 bind connect getpeername getsockname getsockopt listen mq_getsetattr mq_notify mq_open "
    "mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd recvfrom recvmmsg recvmsg semctl semget semop "
    "semtimedop sendmmsg sendmsg sendto setsockopt shmat shmctl shmdt shmget shutdown"
).split()
_OF_32_BITS = (
    "_llseek _newselect chown32 clock_getres_time64 clock_gettime64 clock_nanosleep_time64 fadvise64_64 fchown32 "
    "fcntl64 fstat64 fstatat64 fstatfs64 ftruncate64 futex_time64 getegid32 geteuid32 getgid32 getgroups32 "
    "getresgid32 getresuid32 getuid32 io_pgetevents_time64 ipc lchown32 lstat64 mmap2 mq_timedreceive_time64 "
    "mq_timedsend_time64 ppoll_time64 pselect6_time64 recv recvmmsg_time64 rt_sigtimedwait_time64 "
    "sched_rr_get_interval_time64 semtimedop_time64 send sendfile64 setfsgid32 setfsuid32 setgid32 setgroups32 "
    "setregid32 setresgid32 setresuid32 setreuid32 setuid32 sigprocmask sigreturn stat64 statfs64 timer_gettime64 "
    "timer_settime64 timerfd_gettime64 timerfd_settime64 truncate64 ugetrlimit utimensat_time64 waitpid"
).split()
_OF_X86 = ["arch_prctl"]
_OF_ARM = "arm_fadvise64_64 arm_sync_file_range breakpoint cacheflush set_tls sync_file_range2".split()

_REFUSED = (
    "acct add_key bpf clock_adjtime clock_settime delete_module fanotify_init finit_module fsconfig fsmount fsopen "
    "fspick get_mempolicy init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp "
    "kexec_file_load kexec_load keyctl listmount lookup_dcookie mbind migrate_pages modify_ldt mount mount_setattr "
    "move_mount move_pages name_to_handle_at nfsservctl open_by_handle_at open_tree open_tree_attr perf_event_open "
    "pidfd_getfd pivot_root process_madvise quotactl quotactl_fd reboot request_key set_mempolicy "
    "set_mempolicy_home_node setdomainname sethostname setns settimeofday statmount swapoff swapon syslog umount "
    "umount2 unshare userfaultfd vhangup vm86 vm86old"
).split()

_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* that clone(2) has
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_TRANSPORTS = (0, 1, 6, 17, 58)  # any, ICMP, TCP, UDP, ICMPv6
_NUMBERS_MAX = 255  # of protocols in a packet; what is above is the kernel's own, as MPTCP
_ROUTE, _DIAGNOSIS, _AUDIT = 0, 4, 9
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)  # Linux, with old addresses, with an old version; ask


def seccomp_profile() -> dict[str, Any]:
    """The `linux.seccomp` object. An unknown architecture gets the filter for its own calls alone."""
    allowed = [*_FILES, *_WAITING, *_MEMORY, *_PROCESSES, *_IDENTITY, *_TIME, *_MESSAGES, *_OF_32_BITS, *_own_calls()]
    rules = [
        {"names": allowed, "action": "SCMP_ACT_ALLOW"},
        _refuse(_REFUSED, _EPERM),
        _allow("clone", _argument(0, _NEW_NAMESPACES, "SCMP_CMP_MASKED_EQ", second=0)),
        *(_allow("personality", _argument(0, value)) for value in _PERSONALITIES),
        _refuse(["socketcall"], _EPERM),  # before those of socket: libseccomp lets it follow them otherwise
        *_sockets(),
    ]
    profile: dict[str, Any] = {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": _ENOSYS, "syscalls": rules}
    architectures = _ARCHITECTURES.get(platform.machine())
    return profile if architectures is None else {**profile, "architectures": architectures}


def _own_calls() -> list[str]:
    return {"x86_64": _OF_X86, "aarch64": _OF_ARM}.get(platform.machine(), [])


def _sockets() -> list[dict[str, Any]]:
    """Families and protocols that programs use, by argument; what needs no privilege and a module loaded is where most
    holes were. socketcall(2), which hides them behind a pointer, is not there: 32-bit programs call socket(2). Who is
    refused a family or the audit daemon is told what a kernel without them says: programs go on then."""
    return [
        _allow("socket", _argument(0, _UNIX)),
        *(_allow("socket", _argument(0, f), _argument(2, p)) for f in (_INET, _INET6) for p in _TRANSPORTS),
        *(_allow("socket", _argument(0, _NETLINK), _argument(2, p)) for p in (_ROUTE, _DIAGNOSIS)),
        _refuse(["socket"], _EAFNOSUPPORT, _argument(0, _NETLINK, "SCMP_CMP_GT")),
        *(
            _refuse(["socket"], _EPROTONOSUPPORT, _argument(0, f), _argument(2, _NUMBERS_MAX, "SCMP_CMP_GT"))
            for f in (_INET, _INET6)
        ),
        _refuse(["socket"], _EPROTONOSUPPORT, _argument(0, _NETLINK), _argument(2, _AUDIT)),
        _allow("socketpair", _argument(0, _UNIX)),
        _refuse(["socketpair"], _EAFNOSUPPORT, _argument(0, _UNIX, "SCMP_CMP_NE")),
    ]


def _argument(index: int, value: int, op: str = "SCMP_CMP_EQ", *, second: int | None = None) -> dict[str, Any]:
    argument = {"index": index, "value": value, "op": op}
    return argument if second is None else {**argument, "valueTwo": second}


def _allow(name: str, *arguments: dict[str, Any]) -> dict[str, Any]:
    return {"names": [name], "action": "SCMP_ACT_ALLOW", "args": list(arguments)}


def _refuse(names: list[str], code: int, *arguments: dict[str, Any]) -> dict[str, Any]:
    rule = {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": code}
    return {**rule, "args": list(arguments)} if arguments else rule


PILOT_PATH = "/.hawker/pilot"
"""The path of the pilot inside a machine."""

_CAPABILITIES = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
]
_MASKED = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/config.gz",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmallocinfo",
    "/sys/block",
    "/sys/class/block",
    "/sys/dev/block",
    "/sys/devices/virtual/block",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/fs/erofs",
    "/sys/fs/ext4",
    "/sys/kernel/slab",
    "/sys/kernel/vmcoreinfo",
]
_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_QUIET = ["nosuid", "noexec", "nodev"]
_PERIOD_US = 100_000
_MIB = 1 << 20
OPEN_FILES = 65_536
"""The number of files that each process of a machine may open, where the daemon may give that many."""


class ContainerPlacement(ValueObject, frozen=True):
    """The host's additions to a spec: the pilot's file and arguments, the cgroup's path, which namespaces exist."""

    pilot: Path
    arguments: tuple[str, ...]
    """The arguments of the pilot, behind its name."""
    environment: tuple[str, ...]
    """The pilot's own environment, NAME=VALUE each, which the workload does not get."""
    cgroup: str
    """The path of the machine's control group below each hierarchy."""
    cgroup_namespace: bool
    """Whether the kernel has such namespaces; the machine gets one then."""
    open_files: int = OPEN_FILES
    """The number of files that each of its processes may have open: soft and hard limit."""
    oom_score: int = 0  # -1000 to 1000 (proc(5)): the least that its processes can give themselves
    profile: str = ""  # of AppArmor, which the kernel has; "": none
    sys: Path | None = None  # a mounted view of the kernel for /sys; None: the runtime mounts one


def oci_config(spec: InstanceSpec, placement: ContainerPlacement) -> bytes:
    """The config.json of one instance."""
    assert spec.rootfs is not None, "a container has a root filesystem"
    config = {
        "ociVersion": "1.0.2",
        "hostname": spec.hostname,
        "root": {"path": spec.rootfs, "readonly": False},
        "process": _process(placement, spec.first_id),
        "mounts": [*_mounts(placement), *_containers(spec, placement.sys), *_volumes(spec, "", spec.mounts)],
        "linux": {
            **_id_maps(spec.first_id),
            "cgroupsPath": placement.cgroup,
            "resources": _resources(spec.limits),
            "namespaces": _namespaces(spec, placement.cgroup_namespace),
            "maskedPaths": _everywhere(_MASKED, spec),
            "readonlyPaths": _everywhere(_READ_ONLY, spec),
            "seccomp": _filter(),
        },
    }
    return msgspec.json.encode(config)


@cache
def _filter() -> msgspec.Raw:
    """It is the same for every machine."""
    return msgspec.Raw(msgspec.json.encode(seccomp_profile()))


def _id_maps(first_id: int | None) -> dict[str, Any]:
    if first_id is None:
        return {}
    ids = [{"containerID": 0, "hostID": first_id, "size": RANGE}]
    return {"uidMappings": ids, "gidMappings": ids}


def _process(placement: ContainerPlacement, first_id: int | None) -> dict[str, Any]:
    kinds = ("bounding", "effective", "permitted")
    capabilities = _CAPABILITIES if first_id is None else [*_CAPABILITIES, "CAP_NET_RAW"]
    return {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "cwd": "/",
        "args": [PILOT_PATH, *placement.arguments],
        "env": list(placement.environment),
        "capabilities": dict.fromkeys(kinds, capabilities),
        "rlimits": [{"type": "RLIMIT_NOFILE", "soft": placement.open_files, "hard": placement.open_files}],
        "oomScoreAdj": placement.oom_score,
        **({"apparmorProfile": placement.profile} if placement.profile else {}),
        "noNewPrivileges": False,  # sudo and setuid programs work in a machine as they do on a host
    }


def _mounts(placement: ContainerPlacement) -> list[dict[str, Any]]:
    quiet = _QUIET
    return [
        _mount("/proc", "proc", quiet),
        _mount("/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        _mount("/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
        _mount("/dev/shm", "tmpfs", [*quiet, "mode=1777", "size=65536k"]),
        _mount("/dev/mqueue", "mqueue", quiet),
        *_kernel_view("", placement.sys),
        _mount(PILOT_PATH, "bind", ["bind", "ro", "nosuid", "nodev"], source=str(placement.pilot)),
    ]


def _kernel_view(root: str, sys: Path | None) -> list[dict[str, Any]]:
    view = [*_QUIET, "ro"]
    shown = _mount(f"{root}/sys", "sysfs", view)
    return [
        shown if sys is None else _mount(f"{root}/sys", "bind", ["bind", "private", *view], source=str(sys)),
        _mount(f"{root}/sys/fs/cgroup", "cgroup", [*_QUIET, "relatime", "ro"]),
    ]


def _containers(spec: InstanceSpec, sys: Path | None) -> Iterator[dict[str, Any]]:
    """Each with a view of the kernel of its own, and with the machine's devices: terminals are the pilot's to open, and
    must be found in every container's /dev/pts. In a user namespace no device can be made: they are the host's, which
    the runtime mounts too late for containers."""
    if spec.first_id is not None and any(process.root is not None for process in spec.processes):
        yield from (_mount(device, "bind", ["bind"], source=device) for device in _DEVICES)
    for process in spec.processes:
        if process.root is None:
            continue
        root = container_root(process.name)
        yield _mount(root, "bind", ["bind", "private"], source=process.root)
        yield _mount(f"{root}/proc", "proc", _QUIET)
        yield _mount(f"{root}/dev", "bind", ["rbind", "private"], source=f"{spec.rootfs}/dev")
        yield from _kernel_view(root, sys)
        yield from _volumes(spec, root, process.mounts)


def _everywhere(paths: list[str], spec: InstanceSpec) -> list[str]:
    """In the machine's root and in every container's: what is hidden in one view of the kernel must be in all."""
    roots = [container_root(process.name) for process in spec.processes if process.root is not None]
    return [root + path for root in ("", *roots) for path in paths]


def _volumes(spec: InstanceSpec, root: str, mounts: tuple[MountSpec, ...]) -> Iterator[dict[str, Any]]:
    """After all others, so that none of the platform's is hidden by it without being seen. Their own mounts stay
    theirs."""
    for each in mounts:
        options = ["bind", "private", "ro" if each.read_only else "rw", "nodev"]
        maps = _id_maps(spec.first_id) if each.mapped else {}
        mount = _mount(root + each.target, "bind", [*options, "idmap"] if maps else options, source=each.source)
        yield mount | maps


def _mount(destination: str, kind: str, options: list[str], *, source: str | None = None) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source or kind, "options": options}


def _namespaces(spec: InstanceSpec, cgroup_namespace: bool) -> list[dict[str, str]]:
    kinds = ["pid", "ipc", "uts", "mount", *(["cgroup"] if cgroup_namespace else [])]
    kinds += ["user"] if spec.first_id is not None else []
    network = [{"type": "network", "path": spec.netns}] if spec.netns is not None else []
    return [{"type": kind} for kind in kinds] + network


def _resources(limits: InstanceLimits) -> dict[str, Any]:
    """What the runtime calls swap is memory and swap together. Devices: none but the usual harmless ones, which the
    runtime allows."""
    memory = limits.memory_mib * _MIB
    return {
        "cpu": {"period": _PERIOD_US, "quota": limits.cpus * _PERIOD_US, "shares": cpu_shares(limits.cpu_weight)},
        "memory": {"limit": memory, "swap": memory + limits.swap_mib * _MIB},
        "pids": {"limit": limits.pids},
        "devices": [{"allow": False, "access": "rwm"}],
    }


def cgroup_bounds(limits: InstanceLimits) -> Bounds:
    """The limits of `_resources` for a control group that is made by hand."""
    return Bounds(
        cpu_period_us=_PERIOD_US,
        cpu_quota_us=limits.cpus * _PERIOD_US,
        cpu_shares=cpu_shares(limits.cpu_weight),
        memory_bytes=limits.memory_mib * _MIB,
        swapped_bytes=(limits.memory_mib + limits.swap_mib) * _MIB,
        pids=limits.pids,
    )


def cpu_shares(weight: int) -> int:
    """v1's shares (2 to 262144) for a v2 weight (1 to 10000); the runtime turns them back where v2 is mounted."""
    return 2 + (weight - 1) * 262_142 // 9_999
