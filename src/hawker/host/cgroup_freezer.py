"""Holding every process of a control group still, and letting go: v1's freezer and v2's `cgroup.freeze`, by whichever
file the group has. Nothing in the group runs meanwhile; its memory, files and connections stay as they are.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hawker.errors import NotFound

_V1, _V2, _EVENTS = "freezer.state", "cgroup.freeze", "cgroup.events"
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV)  # the last is a file that was open when its group was removed


def freeze(group: Path) -> bool:
    """Begin to hold the group still, or go on with it; whether all of it is. A process in the middle of a call that
    cannot be interrupted takes a moment. Raises `NotFound` when there is no such group."""
    try:
        _tell(group, "FROZEN" if _is_v1(group) else "1")
    except OSError as error:
        raise NotFound(f"no control group {group.name} that could be frozen") from error
    return is_frozen(group)


def thaw(group: Path) -> None:
    """No error when it is not frozen, or not there."""
    with unless_gone():
        _tell(group, "THAWED" if _is_v1(group) else "0")


@contextmanager
def unless_gone() -> Iterator[None]:
    """No error when a control group's file is not there, or goes away between its opening and its use: another who
    ends the same machine was faster."""
    try:
        yield
    except OSError as error:
        if error.errno not in _GONE:
            raise


def is_frozen(group: Path) -> bool:
    """Whether all of it is held still. False for one that is not there."""
    try:
        if _is_v1(group):
            return (group / _V1).read_text().strip() == "FROZEN"
        return "frozen 1" in (group / _EVENTS).read_text().splitlines()
    except OSError:
        return False


def _is_v1(group: Path) -> bool:
    return (group / _V1).exists()


def _tell(group: Path, word: str) -> None:
    """The kernel makes the file; a group without one is not given any."""
    fd = os.open(group / (_V1 if _is_v1(group) else _V2), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    with os.fdopen(fd, "w") as file:
        file.write(word)
