"""Places where a test or `hawker chaos` may kill this process: `HAWKER_FAILPOINT=create.network.after hawker up`.

Around a step: FLOW.STEP.before, and .after when its effect is there and its record is not; .undo and .undone around its
undo. Inside it: the points that its table declares, from whatever code the step calls (`inside`). Other places have a
name of their own in `ELSEWHERE`. With HAWKER_FAILPOINT=list each place is logged when it is reached. Free when unset.
"""

import logging
import os
import signal
from contextvars import ContextVar

VARIABLE = "HAWKER_FAILPOINT"
LISTING = "list"
REACHED = "failpoint reached"  # what the log says

ELSEWHERE: tuple[str, ...] = (
    *(
        f"{flow}.accept.{edge}"
        for flow in (
            *("create", "start", "stop", "suspend", "memory", "restart", "update", "destroy"),
            *("volume_create", "volume_extend", "volume_destroy"),
            *("volume_snapshot", "volume_restore", "volume_fetch", "volume_fork", "volume_backup"),
        )
        for edge in ("before", "after")
    ),
    "instance.exit.ended",
    "instance.exit.settled",
    "instance.exit.before",
    "instance.exit.after",
)

"""Outside of any step. Around the transaction that acknowledges an operation: nothing is written; it is committed and
the answer is not sent. When an instance has ended: its processes are gone; its exit is kept on the host; around the
transaction in which the supervisor records it."""

OF_TWO_NODES = (
    "move.accept.before",
    "move.accept.after",
    "receive.accept.before",
    "receive.accept.after",
    "scheduled_move.accept.before",
    "scheduled_move.accept.after",
    "scheduled_move.begin.before",
    "scheduled_move.begin.after",
    "reclaim.order.before",
    "reclaim.order.after",
)
"""Places around the acknowledgements of moves, at the source and at the destination; around those of moves that begin
later, and the transaction in which such a move begins; and around the orders of reclaims."""

OF_VERIFICATION = ("backup_verification.part.read", "backup_verification.part.noted")
"""Places in the verification of backups: a node has read a part of what is kept of volumes, and has written nothing of
it down; and it has written it down."""

_ARMED = os.environ.get(VARIABLE)
_STEP: ContextVar[str] = ContextVar("step", default="")


def reach(name: str) -> None:
    """This place, by its full name."""
    if _ARMED is not None:
        _arrive(name)


def enter(step: str) -> None:
    """Enters a step: from here on, the points that this task and its threads reach belong to `step` (FLOW.STEP, or
    FLOW.STEP.undo)."""
    if _ARMED is not None:
        _STEP.set(step)


def inside(point: str) -> None:
    """Reaches `point` of the step that is under way; does nothing when no step is."""
    if _ARMED is not None and _STEP.get():
        _arrive(f"{_STEP.get()}.{point}")


def _arrive(name: str) -> None:
    if _ARMED == LISTING:
        logging.getLogger("hawker.failpoint").info(REACHED, extra={"place": name})
    elif name == _ARMED:
        os.kill(os.getpid(), signal.SIGKILL)
