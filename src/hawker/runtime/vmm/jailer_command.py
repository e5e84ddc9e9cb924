"""The command line of Firecracker's jailer (docs/jailer.md of its version 1.16). Pure."""

from collections.abc import Iterator
from pathlib import Path

from hawker.host.cgroup_restore import Bounds
from hawker.runtime.vmm.contract import Cell

DEVICES = {"/dev/kvm": "c 10:232 rw", "/dev/net/tun": "c 10:200 rw"}
"""The nodes that it makes, and their rules in a control group of version 1."""

_OPEN_FILES = 4096
_SHARES_MAX, _WEIGHT_MAX = 262_144, 10_000


def jailer_command(jailer: str, cell: Cell, base: Path, cgroup: str, unified: bool) -> tuple[str, ...]:
    """It starts the VMM as process 1 of a pid namespace, in a root below `base`, and ends. `cgroup` is the path of the
    machine's group in each tree, whose last name is the machine's id, as the jailer makes it."""
    parent = cgroup.rpartition("/")[0].lstrip("/")
    argv = [jailer, "--id", str(cell.machine_id), "--exec-file", cell.argv[0]]
    argv += ["--uid", str(cell.uid), "--gid", str(cell.uid), "--chroot-base-dir", str(base)]
    argv += ["--netns", cell.netns] if cell.netns is not None else []
    argv += ["--new-pid-ns", "--resource-limit", f"no-file={_OPEN_FILES}", "--parent-cgroup", parent]
    argv += ["--cgroup-version", "2" if unified else "1"]
    for name, value in (_v2 if unified else _v1)(cell.bounds):
        argv += ["--cgroup", f"{name}={value}"]
    return (*argv, "--", *cell.argv[1:])


def _v1(bounds: Bounds) -> Iterator[tuple[str, object]]:
    yield "cpu.shares", bounds.cpu_shares
    yield "cpu.cfs_period_us", bounds.cpu_period_us
    yield "cpu.cfs_quota_us", bounds.cpu_quota_us
    yield "memory.limit_in_bytes", bounds.memory_bytes
    yield "pids.max", bounds.pids


def _v2(bounds: Bounds) -> Iterator[tuple[str, object]]:
    yield "cpu.weight", 1 - (2 - bounds.cpu_shares) * (_WEIGHT_MAX - 1) // (_SHARES_MAX - 2)  # rounded up again
    yield "cpu.max", f"{bounds.cpu_quota_us} {bounds.cpu_period_us}"
    yield "memory.max", bounds.memory_bytes
    yield "memory.swap.max", bounds.swapped_bytes - bounds.memory_bytes
    yield "pids.max", bounds.pids
