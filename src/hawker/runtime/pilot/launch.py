"""What a pilot inherits: a socket that is listening before it runs, its journal, its two output segments.

The descriptors are made here and become 3, 4, 5 and 6 of the pilot, whatever starts it; `PILOT_OPTIONS` names them.
"""

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hawker.runtime.pilot.rundir import RunDir

PILOT_OPTIONS = ("--listen", "3", "--journal", "4", "--output", "5", "--output", "6")
_BACKLOG = 32


@contextmanager
def pilot_files(run: RunDir) -> Iterator[tuple[int, ...]]:
    """Fresh files for a pilot that never ran, as (socket, journal, output, output). The journal's lock is taken, and
    goes on to be held by whoever inherits the descriptors."""
    with contextlib.ExitStack() as stack:
        run.socket.unlink(missing_ok=True)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        with short_path(run.socket) as path:
            listener.bind(path)
        run.socket.chmod(0o600)
        listener.listen(_BACKLOG)
        journal = stack.enter_context(_fresh(run.journal))
        fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        outputs = [stack.enter_context(_fresh(path)) for path in run.outputs]
        yield (listener.fileno(), journal, *outputs)


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A socket's address holds 107 bytes and a path may be longer: name it through its directory's descriptor."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


@contextmanager
def _fresh(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)
