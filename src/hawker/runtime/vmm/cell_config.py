"""From a cell to the runtime specification's config.json: what a VMM sees of the host, and what limits it. Pure.

A VMM is treated as if its guest had taken it over: a user of its own with no capability, who can gain none; namespaces
of its own, without /proc and /sys; an empty read-only root with the files and devices that it was given; the system
calls of `syscalls.py`; one control group for it and its guest.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from hawker.host.cgroup_restore import Bounds
from hawker.runtime.vmm.contract import Cell, Grant
from hawker.runtime.vmm.syscalls import vmm_profile

_READ_ONLY = ["bind", "ro", "nosuid", "nodev"]
_WRITABLE = ["bind", "rw", "nosuid", "nodev", "noexec"]
_LOCKED_BYTES = 64 << 10  # that a process may keep out of swap, without whole devices
OPEN_FILES = 4096
_UMASK = 0o077


@dataclass(frozen=True, slots=True)
class Device:
    """By its path in the jail; `kind` is "c" or "b"."""

    path: str
    kind: str
    major: int
    minor: int
    writable: bool = True


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the host adds to a cell. `root` is an empty directory; `files` is all that is shown in it."""

    root: str
    files: tuple[Grant, ...]
    devices: tuple[Device, ...]
    cgroup: str
    cgroup_namespace: bool
    open_files: int = OPEN_FILES


def cell_config(cell: Cell, around: Surroundings) -> bytes:
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


_DEV = {
    "destination": "/dev",
    "type": "tmpfs",
    "source": "tmpfs",
    "options": ["nosuid", "noexec", "mode=755", "size=64k"],
}
_NO_DEVICES = {"allow": False, "access": "rwm"}


def _process(cell: Cell, around: Surroundings) -> dict[str, Any]:
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


def _has_whole_devices(cell: Cell) -> bool:
    """Then all memory of the guest is pinned for them."""
    return any(device.startswith("/dev/vfio/") for device in cell.devices)


def _limit(kind: str, value: int) -> dict[str, Any]:
    return {"type": kind, "soft": value, "hard": value}


def _mount(grant: Grant) -> dict[str, Any]:
    options = _WRITABLE if grant.writable else _READ_ONLY
    return {"destination": grant.target, "type": "bind", "source": str(grant.source), "options": options}


def _limits(bounds: Bounds) -> dict[str, Any]:
    return {
        "cpu": {"period": bounds.cpu_period_us, "quota": bounds.cpu_quota_us, "shares": bounds.cpu_shares},
        "memory": {"limit": bounds.memory_bytes, "swap": bounds.swapped_bytes},
        "pids": {"limit": bounds.pids},
    }


def _usable(devices: Iterable[Device]) -> list[dict[str, Any]]:
    return [{"allow": True, **_numbers(device), "access": "rw" if device.writable else "r"} for device in devices]


def _node(device: Device, uid: int) -> dict[str, Any]:
    mode = 0o600 if device.writable else 0o400
    return {"path": device.path, **_numbers(device), "fileMode": mode, "uid": uid, "gid": uid}


def _numbers(device: Device) -> dict[str, Any]:
    return {"type": device.kind, "major": device.major, "minor": device.minor}


def _namespaces(netns: str | None, cgroup_namespace: bool) -> list[dict[str, str]]:
    """Without a network namespace to join it gets an empty one, never the host's."""
    kinds = ["pid", "ipc", "uts", "mount", *(["cgroup"] if cgroup_namespace else [])]
    network = {"type": "network"} if netns is None else {"type": "network", "path": netns}
    return [*({"type": kind} for kind in kinds), network]
