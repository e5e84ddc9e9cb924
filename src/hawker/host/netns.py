"""Network namespaces that outlive the daemon: each is bound to a file of ours.

`create` binds the file last, so a bound namespace is always a finished one; a daemon that dies earlier leaves
nothing. The calling thread enters a namespace and comes back before the call returns, whatever happens in between. All
calls but `exists` block: they are made in worker threads.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from hawker.failpoint import inside as reach_inside
from hawker.host.mount import bind, is_mounted, unmount

T = TypeVar("T")

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_SELF = "/proc/thread-self/ns/net"


def create(path: Path, configure: Callable[[int], None]) -> None:
    """Make a namespace, call `configure` in it with a file descriptor of it, then bind it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)

    with _return():
        _check(_libc.unshare(_CLONE_NEWNET))
        namespace = os.open(_SELF, os.O_RDONLY | os.O_CLOEXEC)
        try:
            configure(namespace)
            reach_inside("linked")
            bind(_SELF, path)
        finally:
            os.close(namespace)


def rebind(path: Path, pid: int) -> None:
    """Bind the namespace that a process is in to `path`, unless one is bound there."""
    if not exists(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        bind(f"/proc/{pid}/ns/net", path)


def inside(path: Path, work: Callable[[], T]) -> T:
    """Call `work` in the namespace bound to `path`."""

    with _return():
        namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(namespace, _CLONE_NEWNET))
        finally:
            os.close(namespace)
        return work()


def visit(path: Path, work: Callable[[], T]) -> T:
    """Call `work` in the namespace bound to `path`, in this thread, which is back in its own namespace afterwards. For
    a thread that will not be used again: a thread that could not come back must not serve others."""
    home = os.open(_SELF, os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(there, _CLONE_NEWNET))
        try:
            return work()
        finally:
            _check(_libc.setns(home, _CLONE_NEWNET))
    finally:
        os.close(there)
        os.close(home)


def inside_with(path: Path, work: Callable[[int], T]) -> T:
    """Does what `inside` does, for work that is given a file descriptor of the namespace."""

    def opened() -> T:
        namespace = os.open(_SELF, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return work(namespace)
        finally:
            os.close(namespace)

    return inside(path, opened)


def exists(path: Path) -> bool:
    """Whether a namespace is bound to `path`; a plain file, as after a reboot, is none."""
    return is_mounted(path)


def delete(path: Path) -> None:
    """Unbind the namespace from `path`. It ends with its last process; its interfaces go soon after. No error when
    there is none."""
    unmount(path)
    path.unlink(missing_ok=True)


@contextmanager
def _return() -> Iterator[None]:
    """At the end the thread is where it was. One that could not come back would do the next machine's work in this
    one's network, so then the process ends; the next daemon takes up everything."""
    home = os.open(_SELF, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        if _libc.setns(home, _CLONE_NEWNET) != 0:
            os.abort()
        os.close(home)


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"network namespace: {os.strerror(code)}")
