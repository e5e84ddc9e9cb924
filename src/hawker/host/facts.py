"""What this host is: size, kernel, layout of control groups, privileges, tools, swap, and how fast its cpus' time stamp
counter runs. Changes nothing.

An emulated guest is shown the host's counter and measures it while it boots, against a timer that is emulated too. On
a busy host that fails, and the guest's kernel then waits forever for its first tick; told the figure, it does not.
"""

import ctypes
import mmap
import os
import platform
import shutil
from pathlib import Path

from hawker.clock import Clock
from hawker.errors import NotFound
from hawker.host.cgroup import CgroupLayout, Cgroups, find_hierarchies
from hawker.host.mount import mounts
from hawker.value_object import ValueObject

_READ = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx, 32; or rax, rdx; ret
_SPAN_S = 0.02  # an error of one microsecond is then one of 50 parts in a million
_SPINS = 1 << 20  # for that long, at the most
_TRIES = 5


def tsc_khz(clock: Clock) -> int | None:
    """The frequency of the cpu's time stamp counter in kHz. Takes 20 ms. None where there is no such counter, no
    program may be made in memory, or time is not real."""
    if platform.machine() != "x86_64":
        return None
    try:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except PermissionError:
        return None
    code.write(_READ)
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    began, first = _sample(clock, read)
    for _ in range(_SPINS):
        if clock.monotonic() - began >= _SPAN_S:
            break
    ended, last = _sample(clock, read)
    return round((last - first) / (ended - began) / 1000) if ended > began else None


def _sample(clock: Clock, read: "ctypes._CFunctionType") -> tuple[float, int]:
    """The counter, and when it was read: of several readings the one that nothing came between."""
    readings = []
    for _ in range(_TRIES):
        before, ticks = clock.monotonic(), read()
        after = clock.monotonic()
        readings.append((after - before, (before + after) / 2, ticks))
    _, at, ticks = min(readings)
    return at, ticks


TOOLS = ("crun", "nft", "mkfs.erofs", "mke2fs")
_MIB = 1 << 20
_MODEL = ("model name", "vendor_id", "cpu family", "model", "stepping")

_SWAPS = Path("/proc/swaps")
_V1, _V2 = "memory.memsw.limit_in_bytes", "memory.swap.max"


class Facts(ValueObject, frozen=True):
    """The facts about this host. `cpus` are those that this process may use; `memory_mib` is all of the host's;
    `boot_id` changes with every boot; `root` says whether this process is root's; `tools` maps each of `TOOLS` to
    whether it is installed."""

    cpus: int
    memory_mib: int
    kernel: str
    """The kernel's release, as `uname -r` says it."""
    boot_id: str
    cgroups: CgroupLayout
    root: bool
    tools: dict[str, bool]


class DiskSpace(ValueObject, frozen=True):
    """The filesystem that holds a path. `free_bytes` is how many bytes an unprivileged process could still write."""

    total_bytes: int
    """The size in bytes, with what root alone may write."""
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


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The first cpu in the kernel's words: name, vendor, family, model and stepping; what the kernel does not say is
    left out."""
    first = cpuinfo.read_text(errors="replace").split("\n\n")[0]
    said = dict(line.split(":", 1) for line in first.splitlines() if ":" in line)
    found = {key.strip(): value.strip() for key, value in said.items()}
    return " ".join(found[key] for key in _MODEL if found.get(key))


def disk_of(path: Path) -> DiskSpace:
    """The space of the nearest ancestor that exists, so that a directory yet to be made can be asked about."""
    while not path.exists():
        path = path.parent
    found = os.statvfs(path)
    return DiskSpace(total_bytes=found.f_blocks * found.f_frsize, free_bytes=found.f_bavail * found.f_frsize)


_FIRMWARE = Path("/sys/class/dmi/id")
_CLOUDS = {
    "Amazon EC2": "AWS",
    "Google Compute Engine": "Google Cloud",
    "7783-7084-3265-9085-8269-3286-77": "Azure",  # the asset tag of its chassis
    "OracleCloud.com": "Oracle Cloud",
    "Alibaba Cloud": "Alibaba Cloud",
    "Tencent Cloud": "Tencent Cloud",
    "DigitalOcean": "DigitalOcean",
    "Hetzner": "Hetzner",
    "Scaleway": "Scaleway",
    "Vultr": "Vultr",
    "Akamai": "Linode",
    "OpenStack": "OpenStack",
}


def cloud_of(firmware: Path = _FIRMWARE) -> str:
    """The cloud whose instance this host is, by what its firmware says of it; "" when it is of no known cloud."""
    for name in ("sys_vendor", "product_name", "board_vendor", "chassis_asset_tag"):
        file = firmware / name
        said = file.read_text(errors="replace").strip() if file.is_file() else ""
        for mark, cloud in _CLOUDS.items():
            if mark in said:
                return cloud
    return ""


def lack_of_swap(cgroups: Cgroups, swaps: Path = _SWAPS) -> str:
    """Why this host cannot give machines swap, and what would help; "" where it can: it must have swap, and its kernel
    must account for swap by control group."""
    if len(swaps.read_text().splitlines()) < 2:
        return "this host has no swap (swapon gives it some; then start the node again)"
    try:
        tree = cgroups.tree("memory")
    except NotFound:
        return "this host has no memory control groups"
    accounted = (tree / _V1).exists() or any(tree.glob(f"*/{_V2}"))
    return "" if accounted else "this host's kernel does not account for swap (boot it with swapaccount=1)"
