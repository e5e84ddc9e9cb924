"""Reads this host's /proc: which processes descend from one or carry a mark, and what they use.

A process id found here may belong to another process a moment later: open a pidfd and look again before acting on it.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hawker.value_object import ValueObject

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGESIZE")
_COMM_BYTES = 64  # it is at most 16


class ProcessEntry(ValueObject, frozen=True):
    pid: int
    """The process id, as this process sees it."""
    parent: int
    """The pid of its parent, 0 for a process that has none here."""
    cpu_s: float
    """Seconds of cpu that it used itself, without its children."""
    memory_bytes: int
    """Bytes of it that are in memory, with those that it shares with other processes."""
    began: int
    """Clock ticks from the host's boot to its begin: no other process has both this and its pid."""


def entries() -> Iterator[ProcessEntry]:
    for pid in _pids():
        with suppress(OSError):
            yield _entry(pid, (_PROC / str(pid) / "stat").read_text("utf-8", "replace"))


def is_there(found: ProcessEntry) -> bool:
    """Whether the process has not been reaped, and its pid is still its own."""
    try:
        stat = (_PROC / str(found.pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return False
    return _entry(found.pid, stat).began == found.began


def descendants(ancestor: int) -> list[ProcessEntry]:
    """All processes below `ancestor`, which is not among them."""
    children: dict[int, list[ProcessEntry]] = {}
    for entry in entries():
        children.setdefault(entry.parent, []).append(entry)
    found, parents = [], [ancestor]
    while parents:
        below = children.get(parents.pop(), [])
        found += below
        parents += [entry.pid for entry in below]
    return found


def carries(pid: int, mark: bytes) -> bool:
    """Whether `mark`, "NAME=value", is in the environment that `pid` was executed with."""
    try:
        return mark in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def named(*names: str) -> list[int]:
    """The pids of some programs' processes, by the names that the kernel knows them by."""
    lines = {f"{name}\n".encode() for name in names}
    return [pid for pid in _pids() if _comm(pid) in lines]


def _comm(pid: int) -> bytes:
    """The kernel's name of a process, in three calls and nothing else: a host has thousands of processes."""
    try:
        fd = os.open(f"/proc/{pid}/comm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, _COMM_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)


def has_open(pid: int, file: Path) -> bool:
    """Whether one of the descriptors of `pid` is that file, whatever its name is there."""
    directory = _PROC / str(pid) / "fd"
    with suppress(OSError):
        wanted = file.stat()
        for fd in os.listdir(directory):
            with suppress(OSError):
                if os.path.samestat(os.stat(directory / fd), wanted):
                    return True
    return False


def marked(mark: bytes) -> list[int]:
    return [pid for pid in _pids() if carries(pid, mark)]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdecimal()]


def _entry(pid: int, stat: str) -> ProcessEntry:
    """proc(5): the name is in parentheses and may hold any character; fields are counted from behind it."""
    fields = stat[stat.rindex(")") + 2 :].split()
    ticks = int(fields[11]) + int(fields[12])
    return ProcessEntry(
        pid=pid,
        parent=int(fields[1]),
        cpu_s=ticks / _TICKS,
        memory_bytes=int(fields[21]) * _PAGE,
        began=int(fields[19]),
    )
