"""What a control group has used: the kernel's files of v1 and v2 read into one value. Pure text to numbers."""

from collections.abc import Callable

from hawker.value_object import ValueObject

ReadFile = Callable[[str, str], str]
"""The text of a file of the group, by controller and name. Raises `NotFound`."""

_NO_LIMIT = 1 << 60  # bytes; v1 says so many where it means none


class CgroupUsage(ValueObject, frozen=True):
    """Counted since the group was made, but for memory and processes, which are as they are now."""

    cpu_s: float
    memory_bytes: int
    pids: int
    working_set_bytes: int = 0  # memory less the files' pages that the kernel would drop first
    memory_limit_bytes: int | None = None  # None: no limit
    oom_kills: int = 0  # processes that the memory limit ended
    throttled_s: float = 0.0  # how long it was held back for having used its cpu
    read_bytes: int | None = None  # from disks; None where the kernel does not count it
    written_bytes: int | None = None


def read_usage(read: ReadFile, optional: ReadFile, *, unified: bool) -> CgroupUsage:
    """`optional` gives "" where `read` raises: not all kernels have all files."""
    return _read_v2(read, optional) if unified else _read_v1(read, optional)


def _read_v2(read: ReadFile, optional: ReadFile) -> CgroupUsage:
    cpu, used = read_flat(read("cpu", "cpu.stat")), int(read("memory", "memory.current"))
    limit = optional("memory", "memory.max").strip()
    disk = _io_stat(optional("io", "io.stat"))
    return CgroupUsage(
        cpu_s=cpu["usage_usec"] / 1e6,
        memory_bytes=used,
        pids=int(read("pids", "pids.current")),
        working_set_bytes=_working_set(used, optional("memory", "memory.stat"), "inactive_file"),
        memory_limit_bytes=int(limit) if limit.isdecimal() else None,
        oom_kills=read_flat(optional("memory", "memory.events")).get("oom_kill", 0),
        throttled_s=cpu.get("throttled_usec", 0) / 1e6,
        read_bytes=disk[0],
        written_bytes=disk[1],
    )


def _read_v1(read: ReadFile, optional: ReadFile) -> CgroupUsage:
    used = int(read("memory", "memory.usage_in_bytes"))
    limit = int(optional("memory", "memory.limit_in_bytes") or _NO_LIMIT)
    disk = _io_service(optional("blkio", "blkio.throttle.io_service_bytes"))
    return CgroupUsage(
        cpu_s=int(read("cpuacct", "cpuacct.usage")) / 1e9,
        memory_bytes=used,
        pids=int(read("pids", "pids.current")),
        working_set_bytes=_working_set(used, optional("memory", "memory.stat"), "total_inactive_file"),
        memory_limit_bytes=limit if limit < _NO_LIMIT else None,
        oom_kills=read_flat(optional("memory", "memory.oom_control")).get("oom_kill", 0),
        throttled_s=read_flat(optional("cpu", "cpu.stat")).get("throttled_time", 0) / 1e9,
        read_bytes=disk[0],
        written_bytes=disk[1],
    )


def _working_set(used: int, stat: str, inactive: str) -> int:
    return max(0, used - read_flat(stat).get(inactive, 0))


def _io_stat(text: str) -> tuple[int, int]:
    """v2: "8:0 rbytes=1 wbytes=2 ..." a device; a group that did nothing has no line."""
    pairs = [pair.partition("=") for pair in text.split() if "=" in pair]
    read = sum(int(value) for name, _, value in pairs if name == "rbytes")
    return read, sum(int(value) for name, _, value in pairs if name == "wbytes")


def _io_service(text: str) -> tuple[int | None, int | None]:
    """v1: "8:0 Read 1" a device and direction, and "Total 1" at the end."""
    if not text:
        return None, None
    lines = [line.split() for line in text.splitlines()]
    read = sum(int(line[2]) for line in lines if len(line) == 3 and line[1] == "Read")
    return read, sum(int(line[2]) for line in lines if len(line) == 3 and line[1] == "Write")


def read_flat(text: str) -> dict[str, int]:
    """The kernel's "flat keyed" files: a name and a number on each line."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
