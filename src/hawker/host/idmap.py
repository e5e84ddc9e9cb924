"""Mounts whose files have other owners than on the disk: a machine's root is user `first` here, and 0 on the disk.

Each machine has a range of `RANGE` user and group ids of the host. Inside they are 0 to 65535, by its user namespace;
on the disk too, by idmapped mounts (mount_setattr(2)), so a layer or volume can be given to another range at no cost.
What is not in the range is nobody's, and cannot be made.
"""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from hawker import guest
from hawker.host_ids import IDS_EACH

RANGE = IDS_EACH
_KEPT = 64  # namespaces of the machines that were mounted last

_libc = ctypes.CDLL(None, use_errno=True)
_OPEN_TREE, _MOUNT_SETATTR, _MOVE_MOUNT = 428, 442, 429  # the same on every architecture
_AT_FDCWD, _EMPTY_PATH, _TREE_CLONE, _CLOEXEC = -100, 0x1000, 1, 0o2000000
_FROM_DESCRIPTOR = 4
_MOUNT_ATTR_IDMAP = 0x00100000
_CAPABILITIES = 0x20080522  # _LINUX_CAPABILITY_VERSION_3


@contextmanager
def mapping(first: int) -> Iterator[int]:
    """A descriptor of a user namespace in which the ids 0 to 65535 are `first` and the ids behind it, for the block. It
    takes 0.4 ms, nothing for a range that was used lately. Raises `OSError`, `CannotStart` when the guest programs are
    not built."""
    yield _users(first).descriptor


class _Users:
    """Holds the namespace for as long as anyone holds this."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)


@lru_cache(maxsize=_KEPT)
def _users(first: int) -> _Users:
    ready, done = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
    program = str(guest.userns_path())
    actions = [(os.POSIX_SPAWN_DUP2, done[0], 0), (os.POSIX_SPAWN_DUP2, ready[1], 1)]
    pid = os.posix_spawn(program, [program], {}, file_actions=actions)
    os.close(ready[1])
    os.close(done[0])
    try:
        if not os.read(ready[0], 1):
            raise OSError("a user namespace cannot be made here")
        for kind in ("uid_map", "gid_map"):
            Path(f"/proc/{pid}/{kind}").write_text(f"0 {first} {RANGE}\n")
        return _Users(os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC))
    finally:
        os.close(ready[0])
        os.close(done[1])
        os.waitpid(pid, 0)  # it ends by itself, at once


def mapped_tree(path: Path, namespace: int) -> int:
    """A descriptor of a detached mount of the tree at `path`, without mounts below it, with ids mapped by `namespace`.
    Raises `OSError` when its filesystem cannot be mapped."""
    tree: int = _libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), _TREE_CLONE | _CLOEXEC)
    _check(tree, f"open_tree {path}")
    attributes = struct.pack("=QQQQ", _MOUNT_ATTR_IDMAP, 0, 0, namespace)
    try:
        call = (_MOUNT_SETATTR, tree, b"", _EMPTY_PATH, attributes, ctypes.c_size_t(len(attributes)))
        _check(_libc.syscall(*call), f"mapping the ids of {path}")
    except BaseException:
        os.close(tree)
        raise
    return tree


def attach_tree(tree: int, target: Path) -> None:
    """Let a detached mount be seen at `target`. Raises `OSError`."""
    moved = _libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _FROM_DESCRIPTOR)
    _check(moved, f"move_mount {target}")


@contextmanager
def acting_as(first: int | None) -> Iterator[None]:
    """Within the block, files that this thread makes belong to user 0 of the range from `first` on, with all that root
    may do; no change for None. Not to be left by an `await`: it holds for the thread."""
    if first is None:
        yield
        return
    _libc.setfsgid(first)
    _libc.setfsuid(first)  # takes root's power over files away, but only what is in effect
    try:
        _take_effect()
        yield
    finally:
        _libc.setfsuid(os.geteuid())  # gives it back
        _libc.setfsgid(os.getegid())


def _take_effect() -> None:
    """Every capability that the thread is permitted."""
    header, sets = struct.pack("=Ii", _CAPABILITIES, 0), ctypes.create_string_buffer(24)
    _check(_libc.capget(header, sets), "capget")
    _, low, low_inherited, _, high, high_inherited = struct.unpack("=6I", sets.raw)
    full = struct.pack("=6I", low, low, low_inherited, high, high, high_inherited)
    _check(_libc.capset(header, full), "capset")


def _check(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
