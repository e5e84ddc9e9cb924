"""What can be wrong with an image, as errors of Hawker's family, and what a full disk looks like.

The texts have no prefix, because clients of the Machines API match on them; they name what is at fault.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from hawker.errors import BadRequest, NoRoom
from hawker.ids import Digest

FULL = (errno.ENOSPC, errno.EDQUOT)


class BadImage(BadRequest):
    """The reference, the registry's answer or the image's content is at fault; the same call will fail again."""

    prefix = ""


class BadLayer(BadImage):
    """A layer that cannot be unpacked. `entry` is the offending name in its archive, if it got that far."""

    def __init__(self, layer: Digest, reason: str, entry: str = "") -> None:
        super().__init__(f"layer {layer}: {reason}" + (f" (entry {entry!r})" if entry else ""))
        self.layer = layer
        self.entry = entry


def manifest_failure(reference: str, code: str, reason: str) -> BadImage:
    """The text that clients know: `failed to get manifest <reference>: MANIFEST_UNKNOWN: ...`."""
    return BadImage(f"failed to get manifest {reference}: {code}: {reason}")


@contextmanager
def disk_room(doing: str) -> Iterator[None]:
    """A context for what is done on the disk. Raises `NoRoom` in the place of "no space left" and "quota exceeded"."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise no_room(doing, 0) from error


def no_room(doing: str, missing_bytes: int) -> NoRoom:
    text = f"no space left on this node's disk while {doing}"
    return NoRoom(text, scope="host", shortfall={"disk_mb": max(1, missing_bytes >> 20)})
