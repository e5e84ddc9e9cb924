"""Everything that can go wrong in a way a caller can act on: one closed family.

Each leaf maps to one HTTP status and says whether the same call can succeed later. A broken invariant is an
assertion, never one of these. The text is what a person reads: what happened and what to do next. Texts and `code`
values that clients match on come from the Machines API contract.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from typing import ClassVar


class HawkerError(Exception):
    """Base of the family; never raised itself. `str(error)` is the text shown to the caller."""

    status: ClassVar[int] = 500
    retry: ClassVar[bool] = False
    code: ClassVar[str] = "unknown"  # the `status` member of the error body
    prefix: ClassVar[str] = ""  # the gRPC-like word the real API puts before its text
    after_s: int | None = None  # what `Retry-After` says; None: no such header

    def __init__(self, text: str) -> None:
        super().__init__(f"{self.prefix}: {text}" if self.prefix else text)


# The caller was wrong.


class BadRequest(HawkerError):
    """The request cannot be read: malformed JSON, a value outside its range, an image that does not exist."""

    status = 400
    prefix = "invalid_argument"


class Unauthorized(HawkerError):
    status = 401


class Forbidden(HawkerError):
    status = 403


class TooLarge(HawkerError):
    status = 413


class Unprocessable(HawkerError):
    """The request was read but cannot be served: a wrong type, an unknown or not yet served field, a bad name."""

    status = 422


class NameTaken(HawkerError):
    status = 422
    code = "name_taken"


class NotServed(HawkerError):
    """Understood, and not offered by this node or driver."""

    status = 501


# Not there.


class NotFound(HawkerError):
    status = 404


# Held by someone else, or in the wrong state.


class Conflict(HawkerError):
    """Lost against a concurrent change, or held by another client's lease."""

    status = 409
    retry = True
    prefix = "aborted"


class LeaseHeld(HawkerError):
    status = 409
    retry = True


class AlreadyExists(HawkerError):
    status = 409
    prefix = "already_exists"


class WrongState(HawkerError):
    status = 412
    prefix = "failed_precondition"


class SnapshotLost(HawkerError):
    """A suspended machine's memory cannot be used again; its disks are whole, and it can be started cold."""

    status = 412
    code = "snapshot_lost"


class Damaged(HawkerError):
    """Bytes of a volume, or of a root filesystem that is kept, cannot be read from its disk. The text says where."""

    status = 412
    code = "damaged"


class MoveUnderWay(HawkerError):
    """The machine or volume is on its way to another node; the same call may work once the move has ended."""

    status = 409
    retry = True
    code = "move_under_way"


class Moved(HawkerError):
    """The machine or volume was at this node, and node `node` has it now: the call belongs there."""

    status = 409
    retry = True
    code = "moved"

    def __init__(self, text: str, *, node: str = "") -> None:
        super().__init__(text)
        self.node = node


# No room.


class NoDestination(HawkerError):
    """No node can take what is to move. The text has each node's reason."""

    status = 422
    retry = True
    code = "no_destination"


class NoRoom(HawkerError):
    """No node could fill the order. `scope` is host, region or quota; `shortfall` maps a resource to what is
    missing."""

    status = 422
    retry = True
    code = "insufficient_capacity"

    def __init__(self, text: str, *, scope: str, shortfall: dict[str, int], nearest: str | None = None) -> None:
        super().__init__(text)
        self.scope = scope
        self.shortfall = shortfall
        self.nearest = nearest


class QuotaExceeded(HawkerError):
    """An organization or app has, with what was asked for, more than it may. `shortfall` maps a resource to how much
    it would be over."""

    status = 422
    code = "quota_exceeded"

    def __init__(self, text: str, *, shortfall: dict[str, int] | None = None) -> None:
        super().__init__(text)
        self.shortfall = shortfall or {}


class NoRoomAtVolume(HawkerError):
    """The machine must be where its volume is, and there is no room."""

    status = 412
    retry = True
    code = "volume_placement_capacity"


# An order between nodes.


class OrderCancelled(HawkerError):
    """The order was called off at this node before it came: it is not filled here, now or later."""

    status = 409
    code = "order_cancelled"


class OrderUncertain(HawkerError):
    """A node was sent the order and nothing more was heard of it: the machine may exist. The same order with `order` as
    its Idempotency-Key finds it, or places it anew, and never makes a second one."""

    status = 504
    retry = True
    code = "order_uncertain"

    def __init__(self, text: str, *, order: str = "") -> None:
        super().__init__(text)
        self.order = order


# Try later.


class DeadlineExceeded(HawkerError):
    status = 408
    retry = True
    prefix = "deadline_exceeded"


class RateLimited(HawkerError):
    """The call came too often: it was not begun."""

    status = 429
    retry = True
    after_s = 1

    def __init__(self, text: str, *, wait_s: float = 0.0) -> None:
        """`wait_s`: until it may come again; told in whole seconds, rounded up."""
        super().__init__(text)
        self.after_s = max(1, ceil(wait_s))


class OverShare(HawkerError):
    """The app, organization or address has as much of a shared resource as one of its kind may have: nothing was
    changed."""

    status = 429
    retry = True
    code = "over_share"
    after_s = 1


class Unavailable(HawkerError):
    """The call cannot be served now. Nothing was changed, and the same call may work in a moment."""

    status = 503
    retry = True
    after_s = 1


# The side that was called failed.


class Fault(HawkerError):
    """The called side failed or was lost in the middle of the call: whether the call took effect is not known."""

    status = 500


# Not an answer to a call: the node itself cannot go on.


class CannotStart(HawkerError):
    """The daemon cannot boot. The text is one line that says what to do; the exit status is 2."""


_PREFIXES = "|".join(each.prefix for each in (BadRequest, Conflict, AlreadyExists, WrongState, DeadlineExceeded))
_PREFIX = re.compile(rf"(?:^|(?<=\()|(?<=: ))(?:{_PREFIXES}): ")


def plain(text: str | None) -> str | None:
    """A text without the API's words for kinds of errors, for people."""
    return text and _PREFIX.sub("", text)


def leaf_of(error: BaseException) -> BaseException:
    """The error in a group of one, however deep; a group of several stays."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@contextmanager
def one_error() -> Iterator[None]:
    """A context to put around a task group. It raises its one error instead of a group of one. Several errors at once
    stay a group."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise leaf_of(group) from group.__cause__
