"""What keeps a node from beginning, as one line that says what to do. Once a node answers, nothing here applies: what
goes wrong then is answered to whoever called, tried again, or ends the daemon for its service manager to start anew.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hawker.errors import CannotStart, HawkerError

_TO_DO = {
    errno.ENOSPC: "free some space, or choose another directory with --data-dir",
    errno.EDQUOT: "free some space, or choose another directory with --data-dir",
    errno.EROFS: "make it writable, or choose another directory with --data-dir",
    errno.EACCES: "make it this user's own, or choose another directory with --data-dir",
}


@contextmanager
def or_refuse(data_dir: Path) -> Iterator[None]:
    """A context for a boot. Raises `CannotStart` for what the disk, the store or the host refused in the block, also
    when a task group has it wrapped. A mistake of ours stays what it is."""
    try:
        yield
    except (OSError, HawkerError, ExceptionGroup) as error:
        refusal = refusal_in(error, data_dir)
        if refusal is None:
            raise
        raise refusal from error


def refusal_in(error: BaseException, data_dir: Path) -> CannotStart | None:
    """The refusal that the first of the errors means for a boot; None when one of them is a mistake of ours."""
    leaves = list(_leaves(error))
    if not all(isinstance(leaf, OSError | HawkerError) for leaf in leaves):
        return None
    first = leaves[0]
    if isinstance(first, CannotStart):
        return first
    to_do = _TO_DO.get(first.errno or 0, "see to it, then start again") if isinstance(first, OSError) else None
    text = f"the node cannot begin on {data_dir}: {first}"
    return CannotStart(text if to_do is None else f"{text}: {to_do}")


def wrapped_in(group: BaseExceptionGroup[BaseException]) -> CannotStart | None:
    """The refusal that a task group has wrapped; none when anything else is in there."""
    leaves = list(_leaves(group))
    return leaves[0] if len(leaves) == 1 and isinstance(leaves[0], CannotStart) else None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
