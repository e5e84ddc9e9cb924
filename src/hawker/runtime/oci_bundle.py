"""Writes the runtime specification's config.json by an instance's spec: what isolates a container machine. Pure.

Process 1 is the pilot, which starts the workload itself; so users, files, environment and commands are not here. The
workload has Docker's default capabilities less NET_RAW: raw sockets would let it forge addresses on its network's
bridge, and ping works without them (the namespace's ping_group_range). The pilot is not shielded from the memory
limit by a score: it is the smallest process there, so never the one taken, and its score would be the workload's to
use.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from hawker.host.cgroup_restore import Bounds
from hawker.host.idmap import RANGE
from hawker.runtime.spec import InstanceLimits, InstanceSpec, MountSpec
from hawker.runtime.spec_rules import container_root
from hawker.runtime.syscall_filter import seccomp_profile
from hawker.value_object import ValueObject

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
"""How many files each process of a machine may open, where the daemon may give that many."""


class ContainerPlacement(ValueObject, frozen=True):
    """What the host adds to a spec: the pilot's file and arguments, the cgroup's path, which namespaces exist."""

    pilot: Path
    arguments: tuple[str, ...]
    environment: tuple[str, ...]
    cgroup: str
    cgroup_namespace: bool
    open_files: int = OPEN_FILES
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
