"""The memory of a control group: what it may have and has, another limit while it runs, and what it can give back. v1
and v2, by whichever files the group has. Blocking: the kernel may look for pages for a while.
"""

from contextlib import suppress
from pathlib import Path

from hawker.errors import NotFound, WrongState
from hawker.value_object import ValueObject

_V1, _V1_SWAPPED, _V2, _V2_SWAP = (
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.max",
    "memory.swap.max",
)
_V1_CACHES, _V2_CACHES = ("total_inactive_file", "total_active_file"), ("inactive_file", "active_file")
_MIB = 1 << 20
_SPARE = 8 * _MIB  # below this a group has no room to move, and the next page may be its end


class MemoryUse(ValueObject, frozen=True):
    """The memory of a control group, in bytes. `caches` are the part of `used` that the kernel can drop: copies of what
    is on the disk."""

    limit: int
    """The bytes that the group may have; where v2 says that it has no limit, as much as it has."""
    used: int
    caches: int

    @property
    def available(self) -> int:
        return max(0, self.limit - self.used + self.caches)


def read_use(group: Path) -> MemoryUse:
    """The memory of the control group now. Raises `NotFound` when there is no such group."""
    v1 = _is_v1(group)
    try:
        limit = (group / (_V1 if v1 else _V2)).read_text().strip()
        used = int((group / ("memory.usage_in_bytes" if v1 else "memory.current")).read_text())
        lines = (line.split() for line in (group / "memory.stat").read_text().splitlines())
    except OSError as error:
        raise NotFound(f"no control group {group.name} with memory") from error
    stat = {name: int(value) for name, value in lines}
    caches = sum(stat.get(name, 0) for name in (_V1_CACHES if v1 else _V2_CACHES))
    return MemoryUse(limit=used if limit == "max" else int(limit), used=used, caches=min(caches, used))


def set_limit(group: Path, limit: int, swap: int) -> None:
    """Set the limits in bytes: of memory, and of swap beside it. Raises `WrongState` when more is in use than would be
    left, and changes nothing then: no process is ended for it."""
    use = read_use(group)
    least = use.used - use.caches + _SPARE
    if limit < min(least, use.limit):
        _refuse(least)
    if not _is_v1(group):
        (group / _V2).write_text(str(limit))
        with suppress(FileNotFoundError):
            (group / _V2_SWAP).write_text(str(swap))
        return
    steps = [(_V1, limit), (_V1_SWAPPED, limit + swap)]  # the second is never less than the first
    for name, value in steps if limit <= use.limit else reversed(steps):
        try:
            if (group / name).exists():
                (group / name).write_text(str(value))
        except OSError:
            _refuse(least)


def reclaim(group: Path, amount: int) -> int:
    """Ask the kernel to drop `amount` bytes of caches. Returns how many bytes fewer are used now. v1 cannot be told how
    many: it drops what it can, unless `amount` is 0 or less."""
    before = read_use(group)
    if amount <= 0:
        return 0
    with suppress(OSError):  # it found less than was asked for
        if _is_v1(group):
            (group / "memory.force_empty").write_text("0")
        else:
            (group / "memory.reclaim").write_text(str(amount))
    return max(0, before.used - read_use(group).used)


def _refuse(least: int) -> None:
    raise WrongState(
        f"the machine uses memory that it cannot give back: the limit must be at least {-(-least // _MIB)} MB"
    )


def _is_v1(group: Path) -> bool:
    return (group / _V1).exists()
