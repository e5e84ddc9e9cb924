"""The files of a snapshot that a VMM writes by itself, by name, into a directory below its own.

The VMM may be a guest's by then: no link is followed.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def discard(own: Path, inside: str, names: Iterable[str]) -> None:
    """Take them away; what is not there is no error. `own` is the VMM's directory on the host, `inside` the snapshot's
    as the VMM sees it."""
    with suppress(OSError):
        place = os.open(own / Path(inside).name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in names:
                with suppress(OSError):
                    os.unlink(name, dir_fd=place)
        finally:
            os.close(place)
