"""The process that runs a played guest, and outlives its VMM for as long as there is a snapshot of it.

    python -m tests.vmm.guest_host DIRECTORY COMMAND...

`DIRECTORY/owner` has the VMM's process id. When that has ended, the guest is ended too, unless `DIRECTORY/saved` names
a file that is there: the guest's memory, held still. The guest's end is the end of this.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.waiting import wait_for

_FOREVER_S = 3600.0


def main(directory: Path, command: list[str]) -> None:
    os.setsid()
    fds = sorted(int(fd) for fd in os.listdir("/proc/self/fd") if int(fd) > 2)
    guest = subprocess.Popen(command, pass_fds=[fd for fd in fds if _is_open(fd)])
    for fd in fds:
        with suppress(OSError):
            os.close(fd)
    with suppress(TimeoutError):
        wait_for(lambda: guest.poll() is not None or not _wanted(directory), _FOREVER_S)
    if guest.poll() is None:
        _end(guest.pid)
    guest.wait()


def _wanted(directory: Path) -> bool:
    try:
        owner = int((directory / "owner").read_text())
        os.kill(owner, 0)
        if not _is_dead(owner):
            return True
    except (OSError, ValueError):
        pass
    try:
        return Path((directory / "saved").read_text()).exists()
    except OSError:
        return False


def _is_dead(pid: int) -> bool:
    """A zombie has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _end(pid: int) -> None:
    """With its children: they end with the process that is their first."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
