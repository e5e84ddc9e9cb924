"""From what a step returned or raised to what follows."""

import errno

import msgspec
import pytest

from hawker.errors import NoRoom, NotFound, Unavailable
from hawker.fsm import transition
from hawker.fsm.contract import Abort, Done, HandOff, Retry
from hawker.fsm.run import Fault, StepStatus
from hawker.fsm.transition import Finished, GaveUp, Tried, UndoFailed, Undone
from tests.fsm.serving import Job


def test_done_is_finished_with_its_result() -> None:
    found = transition.of_outcome(Done({"a": 1}), 0.5)
    data = msgspec.msgpack.encode({"a": 1})
    assert (found.outcome, found.event, found.result) == (StepStatus.DONE, Finished(data), data)


def test_retry_is_a_try_with_its_own_wait() -> None:
    found = transition.of_outcome(Retry("later", after_s=3), 0.5)
    assert (found.outcome, found.event) == (StepStatus.RETRY, Tried(Fault(text="later"), 0.5, 3))


def test_abort_gives_up() -> None:
    found = transition.of_outcome(Abort(NotFound("gone")), 0.5)
    assert (found.outcome, found.event) == (StepStatus.FAILED, GaveUp(Fault(text="gone", kind="NotFound")))


def test_a_hand_off_is_made_by_the_transaction() -> None:
    hand_off = HandOff("start", Job())
    found = transition.of_outcome(hand_off, 0.5)
    assert (found.outcome, found.event, found.hand_off) == (StepStatus.HANDED_OFF, None, hand_off)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (Unavailable("a moment"), True),
        (NoRoom("full", scope="host", shortfall={}), True),
        (NotFound("gone"), False),
        (KeyError("a bug"), True),
        (TimeoutError("slow"), True),
        (ExceptionGroup("one", [NotFound("gone")]), False),
        (ExceptionGroup("two", [NotFound("gone"), NotFound("gone")]), True),
    ],
)
def test_only_an_error_that_a_retry_cannot_help_gives_up(error: Exception, again: bool) -> None:
    event = transition.of_error(error, 0.5).event
    assert isinstance(event, Tried if again else GaveUp)


def test_an_undo_holds_or_is_tried_again() -> None:
    assert transition.of_undo(None, 0.5).event == Undone()
    failed = transition.of_undo(NotFound("gone"), 0.5)
    assert (failed.outcome, failed.event) == (
        StepStatus.UNDO_FAILED,
        UndoFailed(Fault(text="gone", kind="NotFound"), 0.5),
    )


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (OSError(errno.EMFILE, "too many open files"), False),
        (OSError(errno.ENFILE, "too many open files in system"), False),
        (OSError(errno.ENOMEM, "cannot allocate"), False),
        (OSError(errno.ENOSPC, "no space"), False),
        (OSError(errno.EDQUOT, "quota"), True),
        (OSError(errno.EPERM, "not permitted"), True),
        (Unavailable("a moment"), True),
        (NoRoom("full", scope="host", shortfall={}), True),
    ],
)
def test_a_shortage_of_the_host_costs_no_attempt(error: Exception, counted: bool) -> None:
    event = transition.of_error(error, 0.5).event
    assert isinstance(event, Tried) and event.counted is counted


def test_descriptors_that_ran_out_below_an_error_of_ours_cost_none_either() -> None:
    error = Unavailable("the pilot cannot be reached")
    error.__cause__ = OSError(errno.EMFILE, "too many open files")
    event = transition.of_error(error, 0.5).event
    assert isinstance(event, Tried) and not event.counted
