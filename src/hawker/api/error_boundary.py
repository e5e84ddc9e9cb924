"""The HTTP edge: the one place where an error that nobody expected is caught, logged and made a typed one."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from hawker.errors import Fault, HawkerError

_log = logging.getLogger("hawker.api")


@contextmanager
def typed_errors(request_id: str) -> Iterator[None]:
    """Only errors of the family leave the block: anything else is logged and raised as `Fault`. The caller is told the
    request's id and nothing of the cause."""
    try:
        yield
    except HawkerError:
        raise
    except Exception as error:
        _log.error("unexpected error", exc_info=error, extra={"request_id": request_id})
        raise Fault(f"internal error, request id {request_id}") from error
