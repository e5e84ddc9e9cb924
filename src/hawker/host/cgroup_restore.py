"""A machine's control group made by hand, when it was removed under a running machine. cgroup v1 only: there the rules
about devices are files like all others; in v2 they are a program of the runtime's that nobody else has.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from hawker.value_object import ValueObject

_DEVICES = ("c *:* m", "b *:* m", "c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm", "c 1:8 rwm", "c 1:9 rwm", "c 5:0 rwm",
            "c 5:2 rwm", "c 136:* rwm")  # fmt: skip
"""Rules for devices: nodes of any kind may be made; only the harmless ones can be used: null, zero, full, random,
urandom, terminals."""
_INHERITED = ("cpuset.cpus", "cpuset.mems")  # empty in a new group, and nobody can join it then


class Bounds(ValueObject, frozen=True):
    """The limits of a machine: in each `cpu_period_us` microseconds it may run for `cpu_quota_us`, all cpus together,
    -1 for no limit; `cpu_shares` is its weight (1024: one cpu's); `memory_bytes` is without swap, `swapped_bytes` with
    it; `pids` is how many processes and threads it may have."""

    cpu_period_us: int
    cpu_quota_us: int
    cpu_shares: int
    memory_bytes: int
    swapped_bytes: int
    pids: int


def restore_group(
    trees: Iterable[Path], group: Path, bounds: Bounds, pids: Iterable[int], devices: Iterable[str] = ()
) -> None:
    """Make `group`, relative to each tree, with its bounds, then put the processes into it. `devices` are rules for
    more devices, as in "c 10:200 rw". Idempotent; a process that has ended meanwhile is no error."""
    groups = [tree / group for tree in trees]
    for each in groups:
        for directory in (each.parent, each):
            _make(directory)
        for name, value in _limits(bounds, devices):
            _write(each / name, value)
    for pid in pids:
        for each in groups:
            with suppress(ProcessLookupError):
                (each / "cgroup.procs").write_text(str(pid))


def _make(directory: Path) -> None:
    if directory.is_dir():
        return
    directory.mkdir()
    for name in _INHERITED:
        if (directory.parent / name).exists():
            _write(directory / name, (directory.parent / name).read_text().strip())


def _limits(bounds: Bounds, devices: Iterable[str]) -> Iterator[tuple[str, str]]:
    yield "cpu.cfs_period_us", str(bounds.cpu_period_us)
    yield "cpu.cfs_quota_us", str(bounds.cpu_quota_us)
    yield "cpu.shares", str(bounds.cpu_shares)
    yield "memory.limit_in_bytes", str(bounds.memory_bytes)
    yield "memory.memsw.limit_in_bytes", str(bounds.swapped_bytes)
    yield "pids.max", str(bounds.pids)
    yield "devices.deny", "a"
    for rule in (*_DEVICES, *devices):
        yield "devices.allow", rule


def _write(file: Path, value: str) -> None:
    """Only where the tree has such a file."""
    if file.exists() and value:
        file.write_text(value)


def is_populated(group: Path) -> bool:
    """Whether the group is there and has a process; in v2 a process of a group below it counts, too."""
    try:
        if (group / "cgroup.events").exists():
            return "populated 1" in (group / "cgroup.events").read_text().splitlines()
        return bool((group / "cgroup.procs").read_bytes())
    except OSError:
        return False
