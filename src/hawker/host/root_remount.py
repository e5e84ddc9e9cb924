"""What a process has as its root, mounted in this namespace as well: for a mount that was taken away here while the
process still lives in it. The filesystem is not mounted anew, which a writable overlay in use would not survive.

A short-lived thread enters the process's mount namespace, takes a detached copy of the root mount (open_tree(2)), and
the copy is attached here (move_mount(2)).
"""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hawker.host.mount import is_mounted

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_FS, _CLONE_NEWNS = 0x200, 0x20000
_OPEN_TREE, _MOVE_MOUNT = 428, 429  # the same on every architecture
_AT_FDCWD, _TREE_CLONE, _CLOEXEC = -100, 1, 0o2000000
_FROM_DESCRIPTOR = 4


def remount_root(pid: int, target: Path, path: str = "/") -> None:
    """Mount at `target` what `pid` has as its root, or as the root of what is mounted at `path`; no change when
    something is mounted there. Raises `OSError`."""
    target.mkdir(parents=True, exist_ok=True)
    if is_mounted(target):
        return
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="reveal") as thread:
        tree = thread.submit(_copy_root, pid, path).result()
    try:
        moved = _libc.syscall(_MOVE_MOUNT, tree, ctypes.c_char_p(b""), _AT_FDCWD, os.fsencode(target), _FROM_DESCRIPTOR)
        _check(moved, "move_mount")
    finally:
        os.close(tree)


def _copy_root(pid: int, path: str) -> int:
    """In a thread that is not used again: it does not come back from the other namespace."""
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.unshare(_CLONE_FS), "unshare")
        _check(_libc.setns(namespace, _CLONE_NEWNS), "setns")
    finally:
        os.close(namespace)
    tree: int = _libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), _TREE_CLONE | _CLOEXEC)
    _check(tree, "open_tree")
    return tree


def _check(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
