"""Who owns what a jail is granted: a machine's own files belong to the user of its VMM, shared ones to nobody there.

Looks only at what root alone could have put in a place: never through a link, never into the directory that a VMM
writes to, where an earlier one may have left anything.
"""

import os
import stat

from hawker.errors import Unavailable
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm.contract import JailCell, JailGrant


def own(cell: JailCell, run: RunDir) -> None:
    """Give what is writable to the cell's user, and let it read the rest. Raises `Unavailable` with what is missing."""
    for grant in cell.grants:
        assert run.vmm not in grant.source.parents, "what is in the VMM's own directory is granted with it"
        if grant.source == run.vmm:
            run.vmm.mkdir(mode=0o700, exist_ok=True)
        try:
            if not grant.source.is_block_device():  # the jail makes a node of its own for it
                _give(grant, cell.uid)
        except OSError as error:
            raise Unavailable(
                f"{grant.source} cannot be given to machine {cell.machine_id}: {error.strerror}"
            ) from error


def _give(grant: JailGrant, uid: int) -> None:
    fd = os.open(grant.source, os.O_RDONLY | os.O_CLOEXEC | (os.O_NOFOLLOW if grant.writable else 0))
    try:
        mode = os.fstat(fd).st_mode
        if grant.writable:
            os.fchown(fd, uid, uid)
            os.fchmod(fd, 0o700 if stat.S_ISDIR(mode) else 0o600)
        else:
            _let_read(fd, mode)
    finally:
        os.close(fd)


def _let_read(fd: int, mode: int) -> None:
    """Shared by many users, so readable for all; the directories above it keep others out."""
    wanted = mode | (0o555 if stat.S_ISDIR(mode) else 0o444)
    if wanted != mode:
        os.fchmod(fd, stat.S_IMODE(wanted))
