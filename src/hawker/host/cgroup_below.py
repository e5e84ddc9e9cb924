"""What an older runtime left below the mount of version 2 on hosts that mount both versions: plain directories and
files of the tmpfs that the mount hides, which nobody sees and nothing frees.

They are reached through a copy of the tmpfs that is mounted nowhere, so the host's mounts are not touched.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hawker.host.rmtree import remove_tree

_libc = ctypes.CDLL(None, use_errno=True)
_OPEN_TREE = 428  # on every architecture
_CLONE = 1


def machines_below(mount: Path, parent: str) -> list[str]:
    """The names of what is in the directory `parent` below what is mounted at `mount`; none where it cannot be seen."""
    with _below(mount) as place:
        with suppress(OSError):
            return sorted(os.listdir(f"{place}/{parent}"))
        return []


def remove_below(mount: Path, parent: str, name: str) -> None:
    """Remove `name` there, and `parent` when it was the last."""
    with _below(mount) as place:
        if place is not None and os.path.isdir(f"{place}/{parent}/{name}"):
            remove_tree(Path(place, parent, name))
            with suppress(OSError):
                os.rmdir(f"{place}/{parent}")


@contextmanager
def _below(mount: Path) -> Iterator[str | None]:
    """The directory that the mount hides, of a copy of the file system that it is in; None where there is no copy to be
    had."""
    copy = _libc.syscall(_OPEN_TREE, -1, os.fsencode(mount.parent), _CLONE | os.O_CLOEXEC)
    if copy < 0:
        yield None
        return
    try:
        yield f"/proc/self/fd/{copy}/{mount.name}"
    finally:
        os.close(copy)
