"""Which system calls the processes of a container machine may make: those that are named here, and no others.

A call that nobody here has heard of does not exist for a machine (ENOSYS), so libraries fall back to what they did
before it; so with clone3, whose flags are behind a pointer. What is known and refused is not permitted (EPERM). Nothing
is allowed that Docker's default profile refuses to a container with the same capabilities; io_uring, handles, unusual
sockets and secret memory, which that allows, are refused.
"""

import platform
from typing import Any

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
