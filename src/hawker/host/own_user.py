"""A process that reads what strangers send, as a user of its own: one that has no rights, no file but its folder's, and
no process of anybody else's. The parts of the node that root has write what it is to read, and never read what it wrote
by a name that it could have put in another's place.
"""

import codecs
import ctypes
import os
import stat
import struct
from collections.abc import Collection
from enum import IntEnum
from pathlib import Path

WRITES = "own"
"""The name of the folder that such a process may write in, within the folder that it reads."""
_CAPABILITIES = 0x20080522
"""The version of the capability sets: version 3, with two words for each set."""
_DUMPABLE, _KEEP_CAPABILITIES, _NO_NEW_PRIVILEGES = 4, 8, 38
_PARENT_DEATH, _GET_PARENT_DEATH = 1, 2
_CODECS = ("ascii", "idna", "latin-1", "utf-8")
"""Codecs that `become` loads beforehand: Python imports a codec when it is first used, and host names are read by one
of them."""
_libc = ctypes.CDLL(None, use_errno=True)


class Capability(IntEnum):
    """The capabilities of capabilities(7) that a user of ours may need."""

    SETGID = 6
    SETUID = 7
    NET_BIND_SERVICE = 10
    NET_RAW = 13


def can_become(user: int) -> bool:
    """Whether this process is root, and has this user and group in its user namespace."""
    if os.geteuid() != 0:
        return False
    with open("/proc/self/status", encoding="ascii") as status:
        effective = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))
    is_able = all(effective >> each & 1 for each in (Capability.SETUID, Capability.SETGID))
    return is_able and all(_is_mapped(user, Path(f"/proc/self/{kind}_map")) for kind in ("uid", "gid"))


def become(user: int, *, keep: Collection[Capability] = ()) -> None:
    """Make this process, with all of its threads, the user `user` in the group of that number alone, for good. It has
    `keep` in effect and no other right, and no program that it executes gets more. To be called while there is one
    thread, and once all modules are imported that the process will ever use: it may not be able to read what is
    installed. It still ends with its parent if it did before. Raises `OSError`."""
    for each in _CODECS:
        codecs.lookup(each)
    parent_death = ctypes.c_int()
    _prctl(_GET_PARENT_DEATH, ctypes.byref(parent_death))
    _prctl(_KEEP_CAPABILITIES, int(bool(keep)))
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    kept = sum(1 << each for each in keep)
    sets = struct.pack("=6I", kept, kept, 0, 0, 0, 0)
    if _libc.capset(struct.pack("=Ii", _CAPABILITIES, 0), sets) < 0:
        raise OSError(ctypes.get_errno(), "capset")
    _prctl(_NO_NEW_PRIVILEGES, 1)
    _prctl(_DUMPABLE, 1)  # what is in /proc/self is its own again; nobody else has this user
    if parent_death.value:
        _prctl(_PARENT_DEATH, parent_death.value)


def make_folder(folder: Path, user: int | None) -> None:
    """Make the folder of a process, in which root writes and `user` reads, and the folder in it that `user` writes in;
    with None the process has our own user, and writes in the same places."""
    folder.mkdir(mode=0o700, exist_ok=True)
    own = folder / WRITES
    own.mkdir(mode=0o700, exist_ok=True)
    if user is not None:
        folder.chmod(0o711)
        os.chown(own, user, user)


def show_to(user: int | None, place: Path, *, writable: bool = False) -> None:
    """Let `user` read what we have written at `place`, and with `writable` write to it: a socket, or a lock."""
    if user is not None:
        os.chown(place, -1, user)
        place.chmod(0o660 if writable else 0o640)


def read_own(place: Path, most_bytes: int = 1 << 20) -> bytes:
    """The first `most_bytes` of a file that such a process has written; it may be no link, and nothing that could be
    waited for. Raises `OSError`."""
    fd = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileNotFoundError(f"{place} is not a regular file")
        return os.read(fd, most_bytes)
    finally:
        os.close(fd)


def _is_mapped(user: int, ranges: Path) -> bool:
    for line in ranges.read_text().splitlines():
        first, _, count = map(int, line.split())
        if first <= user < first + count:
            return True
    return False


def _prctl(option: int, argument: object) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")
