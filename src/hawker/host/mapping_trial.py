"""Whether machines can have ids of their own on this host: found out by mounting what they would be given."""

import os
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from hawker.errors import CannotStart
from hawker.host.mount import fresh_overlay, privately

TRIED_ID = 0x40000000


@cache
def lack_of_mapping(directory: Path) -> str:
    """Why machines cannot have ids of their own here, "" where they can. Tried with an overlay over layers of the file
    system of `directory`, or of its nearest ancestor that is there, seen by nobody else. Takes 3 ms, and leaves
    nothing; a process tries once."""
    if os.geteuid() != 0:
        return "only root can map ids"
    try:
        nearest = next(each for each in (directory, *directory.parents) if each.is_dir())
        place = Path(mkdtemp(prefix=".ids-", dir=nearest))
    except OSError as error:
        return error.strerror or str(error)
    try:
        (place / "lower").mkdir()
        return privately(lambda: _try(place))
    except (OSError, CannotStart) as error:
        return f"this host's kernel or file system does not map ids: {error}"
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _try(place: Path) -> str:
    """An overlay whose layers are not fully mapped is mounted too, read-only."""
    root = place / "root"
    fresh_overlay(place / "lower", place / "layers/one", root, place / "trash", first_id=TRIED_ID)
    if os.statvfs(root).f_flag & os.ST_RDONLY:
        return "overlay takes no layers with mapped ids"
    return "" if root.stat().st_uid == TRIED_ID else "overlay does not map the ids of its layers"
