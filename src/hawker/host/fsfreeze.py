"""Holding a mounted file system still, so that a copy of what lies below it is of one moment.

No daemon's end may leave a machine frozen. So a child of its own freezes and thaws: it waits on a pipe whose other end
only this process has, and lets go when that closes, however this process ends, and at a deadline of its own. Should the
child itself be killed, `thaw` at the next boot mends it.
Freezing goes by an open directory that was seen to be the root of a mount: by name, one whose mount has just gone would
freeze the host's own file system.
"""

import errno
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio

from hawker.errors import Unavailable
from hawker.host.spawn import reap, spawn
from hawker.log import bind

_log = bind("hawker.freeze")
_FITHAW = 0xC0045878
_FROZEN = b"frozen\n"
_SETTLE_S = 10.0  # for thawing; and beyond the deadline, for what was written before the freeze to reach the disk
_HELD, _TOO_LONG = 0, 3

# 3 is the pipe that it waits on, 4 where it answers, 5 the mount's root. No signal may end it between freezing and
# thawing; an answer to a reader that is gone would be one (SIGPIPE). What can be written beforehand is, so that the
# freeze itself is short.
_SCRIPT = """
trap '' HUP INT TERM PIPE
PATH="$PATH:/usr/sbin:/sbin"
sync -f /proc/self/fd/5 2>&4
fsfreeze --freeze /proc/self/fd/5 2>&4 || exit 1
echo frozen >&4
timeout -s KILL "$1" cat <&3 >/dev/null
held=$?
fsfreeze --unfreeze /proc/self/fd/5 2>&4 || exit 2
test $held -eq 0 || exit 3
"""


@asynccontextmanager
async def frozen(mount_point: Path, longest_s: float) -> AsyncIterator[None]:
    """Within the block nothing is written to the file system: a process that tries waits. Raises `Unavailable` when
    nothing is mounted there or it cannot be frozen, and at the block's end when it was let go before, since `longest_s`
    seconds had passed."""
    child, held, answers = _begin(mount_point, longest_s)
    try:
        try:
            await _await_frozen(answers, mount_point, longest_s)
            yield
        finally:
            os.close(held)
            status = await _end(child, mount_point)
        if status == _TOO_LONG:
            raise Unavailable(f"{mount_point} was frozen for more than {longest_s:g} s and had to be let go")
        if status != _HELD:
            raise Unavailable(f"{mount_point} did not stay frozen: its keeper ended with {status}")
    finally:
        os.close(answers)


def _begin(mount_point: Path, longest_s: float) -> tuple[int, int, int]:
    """The child, the end of the pipe that holds it, and where it answers."""
    with ExitStack() as ours, ExitStack() as theirs:
        root = _root_of_mount(mount_point)
        theirs.callback(os.close, root)
        hold, held = os.pipe2(os.O_CLOEXEC)
        theirs.callback(os.close, hold)
        ours.callback(os.close, held)
        answers, answer = os.pipe2(os.O_CLOEXEC)
        theirs.callback(os.close, answer)
        ours.callback(os.close, answers)
        argv = ["/bin/sh", "-c", _SCRIPT, "hawker-freeze", f"{longest_s:g}", str(mount_point)]
        child = spawn(argv, fds=(hold, answer, root), session=True)
        ours.pop_all()
        return child, held, answers


def _root_of_mount(mount_point: Path) -> int:
    try:
        root = os.open(mount_point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(f"{mount_point} cannot be frozen: {error.strerror}") from error
    if os.fstat(root).st_dev == mount_point.parent.stat().st_dev:
        os.close(root)
        raise Unavailable(f"{mount_point} cannot be frozen: nothing is mounted there")
    return root


async def _await_frozen(answers: int, mount_point: Path, longest_s: float) -> None:
    said = b""
    with anyio.move_on_after(longest_s + _SETTLE_S):
        while not said.endswith(_FROZEN):
            await anyio.wait_readable(answers)
            part = os.read(answers, 4096)
            if not part:
                raise Unavailable(f"{mount_point} cannot be frozen: {said.decode(errors='replace').strip()[:300]}")
            said += part
        return
    raise Unavailable(f"{mount_point} could not be frozen within {longest_s + _SETTLE_S:g} s")


async def _end(child: int, mount_point: Path) -> int | None:
    """The child's exit status; None when it does not end. It is never killed: it may be all that will thaw."""
    with anyio.move_on_after(_SETTLE_S, shield=True):
        return await reap(child)
    _log.error("a frozen file system is slow to thaw", extra={"path": str(mount_point), "pid": child})
    return None


def thaw(mount_point: Path) -> bool:
    """Thaw a file system that a killed child left frozen. Returns whether it was frozen."""
    root = _root_of_mount(mount_point)
    try:
        fcntl.ioctl(root, _FITHAW, 0)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    finally:
        os.close(root)
    return True
