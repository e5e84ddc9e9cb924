"""The system calls that a monitor may make, as the runtime specification writes them: all others do not exist for it.

A list of permissions, because a monitor, unlike a workload, is a program that we know: files that it was given, memory,
threads, signals, clocks, polling, sockets of its own network namespace, and ioctls of the devices it was given. Not
among them: anything that makes or enters a namespace, mounts, traces, loads code into the kernel, keeps keys, changes
a user, or releases the lock that the keeper and it hold together (flock). Monitors narrow it further by filters of
their own.
"""

from typing import Any

_ENOSYS, _EPERM = 38, 1
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEWUSER, PID, NET, IPC, UTS, CGROUP, NS, TIME
_FAMILIES = (1, 2, 10)  # unix, IPv4 and IPv6; above all not vsock, which knows no namespaces, netlink and raw packets

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


def vmm_profile() -> dict[str, Any]:
    """The `linux.seccomp` object. Only the machine's own architecture: a call of another one ends the process."""
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
