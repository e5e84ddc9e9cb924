"""Writes the runtime specification's config.json by an instance's spec: what isolates a container machine. Pure.

Process 1 is the pilot, which starts the workload itself; so users, files, environment and commands are not here. The
workload has Docker's default capabilities less NET_RAW: raw sockets would let it forge addresses on its network's
bridge, and ping works without them (the namespace's ping_group_range). The pilot is not shielded from the memory
limit by a score: it is the smallest process there, so never the one taken, and its score would be the workload's to
use.
"""

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hawker.host.cgroup_restore import Bounds
from hawker.runtime.spec import InstanceLimits, InstanceSpec, MountSpec
from hawker.runtime.spec_rules import container_root

_EPERM, _ENOSYS = 1, 38
_NEW_USER = 0x10000000

# A list of refusals, not of permissions: what needs a capability that a machine does not have is refused by the kernel
# already. Here is what any process may call and should not in a shared kernel: keyrings (not namespaced), new user
# namespaces (they bring back every capability's code paths), bpf, perf, userfaultfd, io_uring (past the filter's
# sight), handles that reach around mounts; and, should a capability leak, the loading of code into the kernel and
# mounting.
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
PILOT_PATH = "/.hawker/pilot"
"""Where the pilot is seen inside a machine."""

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
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
]
_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
_QUIET = ["nosuid", "noexec", "nodev"]
_PERIOD_US = 100_000
_MIB = 1 << 20
OPEN_FILES = 65_536
"""How many files each process of a machine may open, where the daemon may give that many."""


@dataclass(frozen=True, slots=True)
class ContainerPlacement:
    """What the host adds to a spec: the pilot's file and arguments, the cgroup's path, which namespaces exist."""

    pilot: Path
    arguments: tuple[str, ...]
    environment: tuple[str, ...]
    cgroup: str
    cgroup_namespace: bool
    open_files: int = OPEN_FILES


def oci_config(spec: InstanceSpec, placement: ContainerPlacement) -> bytes:
    """The config.json of one instance."""
    assert spec.rootfs is not None, "a container has a root filesystem"
    config = {
        "ociVersion": "1.0.2",
        "hostname": spec.hostname,
        "root": {"path": spec.rootfs, "readonly": False},
        "process": _process(placement),
        "mounts": [*_mounts(placement.pilot), *_containers(spec), *map(_volume, spec.mounts)],
        "linux": {
            "cgroupsPath": placement.cgroup,
            "resources": _resources(spec.limits),
            "namespaces": _namespaces(spec.netns, placement.cgroup_namespace),
            "maskedPaths": _everywhere(_MASKED, spec),
            "readonlyPaths": _everywhere(_READ_ONLY, spec),
            "seccomp": seccomp_profile(),
        },
    }
    return msgspec.json.encode(config)


def _process(placement: ContainerPlacement) -> dict[str, Any]:
    kinds = ("bounding", "effective", "permitted")
    return {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "cwd": "/",
        "args": [PILOT_PATH, *placement.arguments],
        "env": list(placement.environment),
        "capabilities": dict.fromkeys(kinds, _CAPABILITIES),
        "rlimits": [{"type": "RLIMIT_NOFILE", "soft": placement.open_files, "hard": placement.open_files}],
        "noNewPrivileges": False,  # sudo and setuid programs work in a machine as they do on a host
    }


def _mounts(pilot: Path) -> list[dict[str, Any]]:
    quiet = _QUIET
    return [
        _mount("/proc", "proc", quiet),
        _mount("/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        _mount("/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
        _mount("/dev/shm", "tmpfs", [*quiet, "mode=1777", "size=65536k"]),
        _mount("/dev/mqueue", "mqueue", quiet),
        *_kernel_view(""),
        _mount(PILOT_PATH, "bind", ["bind", "ro", "nosuid", "nodev"], source=str(pilot)),
    ]


def _kernel_view(root: str) -> list[dict[str, Any]]:
    return [
        _mount(f"{root}/sys", "sysfs", [*_QUIET, "ro"]),
        _mount(f"{root}/sys/fs/cgroup", "cgroup", [*_QUIET, "relatime", "ro"]),
    ]


def _containers(spec: InstanceSpec) -> Iterator[dict[str, Any]]:
    """Each with a view of the kernel of its own, and with the machine's devices: terminals are the pilot's to open, and
    must be found in every container's /dev/pts."""
    for process in spec.processes:
        if process.root is None:
            continue
        root = container_root(process.name)
        yield _mount(root, "bind", ["bind", "private"], source=process.root)
        yield _mount(f"{root}/proc", "proc", _QUIET)
        yield _mount(f"{root}/dev", "bind", ["rbind", "private"], source=f"{spec.rootfs}/dev")
        yield from _kernel_view(root)
        for mount in process.mounts:
            yield _volume(msgspec.structs.replace(mount, target=root + mount.target))


def _everywhere(paths: list[str], spec: InstanceSpec) -> list[str]:
    """In the machine's root and in every container's: what is hidden in one view of the kernel must be in all."""
    roots = [container_root(process.name) for process in spec.processes if process.root is not None]
    return [root + path for root in ("", *roots) for path in paths]


def _volume(mount: MountSpec) -> dict[str, Any]:
    """After all others, so that none of the platform's is hidden by it without being seen. Its own mounts stay its."""
    access = "ro" if mount.read_only else "rw"
    return _mount(mount.target, "bind", ["bind", "private", access, "nodev"], source=mount.source)


def _mount(destination: str, kind: str, options: list[str], *, source: str | None = None) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source or kind, "options": options}


def _namespaces(netns: str | None, cgroup_namespace: bool) -> list[dict[str, str]]:
    kinds = ["pid", "ipc", "uts", "mount", *(["cgroup"] if cgroup_namespace else [])]
    network = [{"type": "network", "path": netns}] if netns is not None else []
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
