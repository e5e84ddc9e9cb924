"""Start a program with chosen file descriptors, if need be without some of this host's mounts, and wait for its end.

No shell, no fork of the daemon's memory (`posix_spawn`), and no helper program for the private mount namespace: a
short-lived thread enters one and spawns from there.
"""

import ctypes
import fcntl
import os
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import anyio

from hawker.host.mount import PRIVATE, mount, unmount

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_FS, _CLONE_NEWNS = 0x200, 0x20000
_FIRST_FREE = 100  # above every number that a child is given
_FIRST_PASSED = 3
_IGNORED_HERE = (signal.SIGPIPE, signal.SIGXFSZ)  # by Python itself; an ignored signal would stay so in the child


def spawn(argv: Sequence[str], *, fds: Sequence[int] = (), hidden: Path | None = None, session: bool = False) -> int:
    """Start `argv` (a path first) with /dev/null as its standard streams and `fds` as 3, 4, ... Returns its pid, which
    the caller must `reap`. With `hidden`, the program and what it starts do not see what is mounted there; with
    `session` it leads a session of its own, and no signal to our terminal reaches it."""
    start = partial(_spawn, argv, fds, session)
    if hidden is None:
        return start()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawn") as thread:
        return thread.submit(_without, hidden, start).result()


async def reap(pid: int) -> int:
    """Wait for a child of ours; its exit status, or minus its signal. Leaves it running when cancelled."""
    handle = os.pidfd_open(pid)
    try:
        await anyio.wait_readable(handle)
    finally:
        os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])  # noqa: ASYNC222 - it has ended


def _spawn(argv: Sequence[str], fds: Sequence[int], session: bool) -> int:
    """Descriptors are copied above all targets first, because a target may be one that another has to come from."""
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for fd in fds]
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(_FIRST_PASSED)]
    passed = [(os.POSIX_SPAWN_DUP2, copy, _FIRST_PASSED + place) for place, copy in enumerate(copies)]
    try:
        return os.posix_spawn(
            argv[0],
            list(argv),
            _environment(),
            file_actions=[*null, *passed],
            setsigdef=_IGNORED_HERE,
            setsid=session,
        )
    finally:
        for copy in copies:
            os.close(copy)


def _environment() -> dict[str, str]:
    """Nothing of the daemon's own environment, which may hold secrets."""
    return {"PATH": os.environ.get("PATH", os.defpath)}


def _without(hidden: Path, start: partial[int]) -> int:
    """The parent of the hidden mount is made private first: else the host would lose the mount too."""
    if _libc.unshare(_CLONE_FS | _CLONE_NEWNS) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount namespace: {os.strerror(code)}")
    mount("", hidden.parent, "", PRIVATE)
    unmount(hidden)
    return start()
