"""Keeps what nobody foresaw to the machine, finding or round that raised it: the endless tasks of the worker are about
all machines, and an exception that ends one of them ends the daemon, at each boot anew.

What is foreseen (`HawkerError`, `OSError`) is caught where it is. No task of a step runner or of HTTP comes here.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from hawker.log import bind

LOGGER = "hawker.containment"
"""The name of the logger that gets all of it: the simulators take each of its lines for a finding."""

UNFORESEEN = "an error that nobody foresaw; the daemon's log has it"
UNFORESEEN_AGAIN_S = 30.0
"""The seconds until the next try at what is otherwise tried again soon: each failure is a traceback in the log."""

_log = bind(LOGGER)


@contextmanager
def contained(during: str, but: tuple[type[Exception], ...] = (), /, **fields: object) -> Iterator[None]:
    """Log an exception of the block with its traceback, and let it go no further, unless it is one of `but`. The end of
    the task or of the process is none (`BaseException`)."""
    try:
        yield
    except but:
        raise
    except Exception:  # noqa: BLE001 - what it is for
        _log.exception("unforeseen error", extra={"during": during, **fields})
