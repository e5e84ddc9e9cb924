import errno

import pytest

from hawker.archive.failure import ArchiveRefused, of_os
from hawker.errors import HawkerError, Unavailable


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EACCES, ArchiveRefused),
        (errno.EROFS, ArchiveRefused),
        (errno.ENOTDIR, ArchiveRefused),
        (errno.ENOSPC, Unavailable),
        (errno.EIO, Unavailable),
        (errno.ESTALE, Unavailable),
    ],
)
def test_transient_failure_is_tried_again(number: int, kind: type[HawkerError]) -> None:
    error = of_os("/srv/old", OSError(number, "because"))
    assert type(error) is kind and error.retry is (kind is Unavailable)
    assert "/srv/old" in str(error) and "because" in str(error)
