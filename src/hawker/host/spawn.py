"""Start a program with chosen file descriptors, if need be without some of this host's mounts, and wait for its end.

No shell, no fork of the daemon's memory (`posix_spawn`), and no helper program for the private mount namespace: a
short-lived thread enters one and spawns from there.
"""

import fcntl
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from hawker.host.mount import privately, unmount

_FIRST_FREE = 100  # above every number that a child is given
_FIRST_PASSED = 3
_IGNORED_HERE = (signal.SIGPIPE, signal.SIGXFSZ)  # by Python itself; an ignored signal would stay so in the child


def spawn(
    argv: Sequence[str],
    *,
    fds: Sequence[int] = (),
    hidden: Path | None = None,
    stage: Callable[[], None] | None = None,
    session: bool = False,
    stdio: int | None = None,
) -> int:
    """Start `argv` (a path first) with `stdio`, else /dev/null, as its standard streams and `fds` as 3, 4, ... Returns
    its pid, which the caller must `reap`. With `hidden`, the program and its children do not see the mount there; they
    alone see the mounts that `stage` makes; with `session` the program leads a session of its own, and no signal to our
    terminal reaches it."""
    start = partial(_spawn, argv, fds, session, stdio)
    if hidden is None and stage is None:
        return start()
    return privately(lambda: _start_staged(hidden, stage, start))


def own_program() -> tuple[str, ...]:
    """The `hawker` of this installation, to begin an `argv` with."""
    script = Path(sys.argv[0])
    return (str(script.resolve() if script.name == "hawker" else Path(sys.executable).with_name("hawker")),)


async def reap(pid: int) -> int:
    """Wait for a child of ours; its exit status, or minus its signal. Leaves it running when cancelled."""
    ended, status = os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it does not wait
    if ended == pid:
        return os.waitstatus_to_exitcode(status)
    handle = os.pidfd_open(pid)
    try:
        await anyio.wait_readable(handle)
    finally:
        os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])  # noqa: ASYNC222 - it has ended


def _spawn(argv: Sequence[str], fds: Sequence[int], session: bool, stdio: int | None) -> int:
    """Descriptors are copied above all targets first, because a target may be one that another has to come from."""
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for fd in fds]
    streams: list[Any] = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(_FIRST_PASSED)]
    if stdio is not None:
        streams = [(os.POSIX_SPAWN_DUP2, stdio, number) for number in range(_FIRST_PASSED)]
    passed = [(os.POSIX_SPAWN_DUP2, copy, _FIRST_PASSED + place) for place, copy in enumerate(copies)]
    try:
        return os.posix_spawn(
            argv[0],
            list(argv),
            _environment(),
            file_actions=[*streams, *passed],
            setsigdef=_IGNORED_HERE,
            setsid=session,
        )
    finally:
        for copy in copies:
            os.close(copy)


def _start_staged(hidden: Path | None, stage: Callable[[], None] | None, start: partial[int]) -> int:
    if hidden is not None:
        unmount(hidden)
    if stage is not None:
        stage()
    return start()


def _environment() -> dict[str, str]:
    """Nothing of the daemon's own environment, which may hold secrets."""
    return {"PATH": os.environ.get("PATH", os.defpath)}
