"""What this host is: size, kernel, layout of control groups, privileges and tools. Read once, changes nothing."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from hawker.host.cgroup import Layout, find_hierarchies
from hawker.host.mount import mounts

TOOLS = ("crun", "nft", "mkfs.erofs", "mke2fs")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Facts:
    """`cpus` are those this process may use; `tools` maps each of `TOOLS` to whether it is installed."""

    cpus: int
    memory_mib: int
    kernel: str
    boot_id: str
    cgroups: Layout
    root: bool
    tools: dict[str, bool]


@dataclass(frozen=True, slots=True)
class Disk:
    """The filesystem that holds a path. `free_bytes` is what an unprivileged process could still write."""

    total_bytes: int
    free_bytes: int


def read_facts() -> Facts:
    return Facts(
        cpus=len(os.sched_getaffinity(0)),
        memory_mib=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB,
        kernel=os.uname().release,
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        cgroups=find_hierarchies(mounts()).layout,
        root=os.geteuid() == 0,
        tools={tool: shutil.which(tool) is not None for tool in TOOLS},
    )


def disk_of(path: Path) -> Disk:
    """Of the nearest ancestor that exists, so that a directory yet to be made can be asked about."""
    while not path.exists():
        path = path.parent
    found = os.statvfs(path)
    return Disk(total_bytes=found.f_blocks * found.f_frsize, free_bytes=found.f_bavail * found.f_frsize)
