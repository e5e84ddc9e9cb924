"""System calls that a container's workload is refused, as the runtime specification writes them.

A list of refusals, not of permissions: what needs a capability that a machine does not have is refused by the kernel
already. Here is what any process may call and should not in a shared kernel: keyrings (not namespaced), new user
namespaces (they bring back every capability's code paths), bpf, perf, userfaultfd, io_uring (past the filter's sight),
handles that reach around mounts; and, in case a capability leaks, the loading of code into the kernel and mounting.
"""

import platform
from typing import Any

_EPERM, _ENOSYS = 1, 38
_NEW_USER = 0x10000000

_REFUSED = (
    "acct add_key bpf clock_adjtime clock_settime delete_module finit_module fsconfig fsmount fsopen fspick "
    "init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl "
    "lookup_dcookie mount mount_setattr move_mount move_pages name_to_handle_at nfsservctl open_by_handle_at open_tree "
    "perf_event_open pivot_root quotactl quotactl_fd reboot request_key setns settimeofday swapoff swapon umount "
    "umount2 userfaultfd vm86 vm86old"
).split()

_ARCHITECTURES = {
    "x86_64": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
    "aarch64": ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
}


def seccomp_profile() -> dict[str, Any]:
    """The `linux.seccomp` object. An unknown architecture gets the filter for its own calls alone."""
    new_user = {"index": 0, "value": _NEW_USER, "valueTwo": _NEW_USER, "op": "SCMP_CMP_MASKED_EQ"}
    rules: list[dict[str, Any]] = [
        _refuse(_REFUSED, _EPERM),
        {**_refuse(["clone", "unshare"], _EPERM), "args": [new_user]},
        _refuse(["clone3"], _ENOSYS),  # its flags are behind a pointer; callers fall back to clone
    ]
    profile: dict[str, Any] = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}
    architectures = _ARCHITECTURES.get(platform.machine())
    return profile if architectures is None else {**profile, "architectures": architectures}


def _refuse(names: list[str], code: int) -> dict[str, Any]:
    return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": code}
