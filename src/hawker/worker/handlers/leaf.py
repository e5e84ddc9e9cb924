"""What went wrong in a handler's own task group, as the caller is to hear it: the error itself, not a group of one."""

from collections.abc import Iterator
from contextlib import contextmanager

from hawker.fsm.verdict import leaf_of


@contextmanager
def one_error() -> Iterator[None]:
    """Around a task group. Several errors at once stay a group."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise leaf_of(group) from group.__cause__
