"""What can be wrong with an archive, as errors of Hawker's family. What may pass by itself is `Unavailable`."""

import errno

from hawker.errors import Fault, HawkerError, Unavailable

_NO_USE_TRYING = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}
)


class ArchiveRefused(Fault):
    """The directory or bucket is there and does not let us, or is not there: someone has to see to it."""


class ArchiveDamaged(Fault):
    """The bytes that were read are not an intact archive."""


def of_os(name: str, error: OSError) -> HawkerError:
    """`name` is what people call the directory."""
    reason = error.strerror or type(error).__name__
    if error.errno in _NO_USE_TRYING:
        return ArchiveRefused(
            f"the archive {name} cannot be used: {reason}; its directory must belong to the node's user"
        )
    return Unavailable(f"the archive {name} cannot be used now: {reason}")
