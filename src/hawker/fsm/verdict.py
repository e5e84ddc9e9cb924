"""What an attempt came to: from a step's outcome, or from what it raised, to an event and a line of history. Pure."""

from dataclasses import dataclass
from typing import Any, assert_never

import msgspec

from hawker.errors import HawkerError
from hawker.fsm.contract import Abort, Commit, Done, HandOff, Outcome, Retry
from hawker.fsm.fault import Fault, fault_of
from hawker.fsm.run import StepStatus
from hawker.fsm.transition import Event, Finished, GaveUp, Tried, UndoFailed, Undone


@dataclass(frozen=True, slots=True)
class Verdict:
    """`event` is None for a hand-off: that event is made inside the transaction, with the successor's id."""

    outcome: StepStatus
    event: Event | None
    fault: Fault | None = None
    result: bytes | None = None
    commit: Commit | None = None
    hand_off: HandOff | None = None


def of_outcome(outcome: Outcome, jitter: float) -> Verdict:
    match outcome:
        case Done(result, commit):
            data = _encode(result)
            return Verdict(StepStatus.DONE, Finished(data), result=data, commit=commit)
        case Retry(reason, after_s):
            fault = fault_of(reason)
            return Verdict(StepStatus.RETRY, Tried(fault, jitter, after_s), fault)
        case Abort(error):
            fault = fault_of(error)
            return Verdict(StepStatus.FAILED, GaveUp(fault), fault)
        case HandOff(commit=commit):
            return Verdict(StepStatus.HANDED_OFF, None, commit=commit, hand_off=outcome)
        case _:
            assert_never(outcome)


def of_error(error: BaseException, jitter: float) -> Verdict:
    """The family's errors say whether a retry helps; of anything else nobody knows, so it is tried again."""
    leaf = leaf_of(error)
    fault = fault_of(leaf)
    if isinstance(leaf, HawkerError) and not leaf.retry:
        return Verdict(StepStatus.FAILED, GaveUp(fault), fault)
    return Verdict(StepStatus.RETRY, Tried(fault, jitter), fault)


def of_undo(error: BaseException | None, jitter: float) -> Verdict:
    if error is None:
        return Verdict(StepStatus.UNDONE, Undone())
    fault = fault_of(leaf_of(error))
    return Verdict(StepStatus.UNDO_FAILED, UndoFailed(fault, jitter), fault)


def leaf_of(error: BaseException) -> BaseException:
    """What went wrong inside a step's own task group, when that is one thing."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _encode(result: Any) -> bytes:
    return msgspec.msgpack.encode(result)
