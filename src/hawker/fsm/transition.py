"""What an event makes of a run: pure, the whole of a run's life in one table. Nothing here reads, writes or waits.

Invariant: an event that comes too late (the run was cancelled meanwhile, or has ended) changes nothing; a run leaves
UNDOING only by ending or by getting stuck.
"""

import errno
from typing import Any, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from hawker.errors import HawkerError, leaf_of
from hawker.fsm.contract import Abort, Commit, Done, Ending, Flow, HandOff, Outcome, Retry
from hawker.fsm.run import ENDED, Fault, Run, State, StepStatus, fault_of
from hawker.ids import RunId
from hawker.value_object import ValueObject

_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_EXHAUSTED = _DESCRIPTORS | {errno.ENOMEM, errno.ENOSPC}


# Why these rules
#
# A run is driven by a loop that calls steps, and each thing that happens to it (a step returned, a timeout, a cancel by
# a user, a crash and a new daemon) becomes one event here. Writing and waiting are elsewhere, so every order of events
# can be tested, and the simulator plays orders that no host would show in a year.
#
# Late events change nothing. A step's result may arrive after the run was cancelled, since the call cannot be taken
# back. So `Finished`, `Tried` and `GaveUp` count only while RUNNING, `Undone` and `UndoFailed` only while UNDOING; the
# caller need not know which of two events was first, and it never needs a lock across a step.
#
# Undo goes backwards from the step under way, and that step comes first: it may be half made, and nobody can tell. So
# an undo must cope with a step that never began. Steps without an undo are skipped.
#
# A failed undo never ends a run. FAILED and CANCELLED promise that nothing is left on the host; when an undo has used
# up its attempts the run gets STUCK, holds its resource, and waits for an operator. So does a run whose step is no
# longer in the flow after an upgrade: to skip it silently could leak what the step made, or build on what it did not.
#
# Only an operator leaves STUCK: `RetryAsked` tries the same step again with fresh attempts, `StopAsked` undoes; a
# second `StopAsked` with `force` gives up the one undo that is stuck, and goes on with the next. After a retry the
# deadline is gone, or it would end the run again at once; and so are the children: attempts count from 1 again, and
# would find the failed child of the same number. One that is still open is joined all the same.
#
# A crash is no event. A new daemon finds the run at the first step without a record and calls that step again, which
# is why steps say "make it so" (`contract`). Two guards stand around this: `rewind` starts over when the host was
# booted in between, since what steps made in memory is gone; `resumed` parks a run at which daemon after daemon died,
# since a step that kills its caller must not keep a node down.
#
# Time enters as `now` and chance as `jitter`, both in the event or beside it: the same events give the same run.


class Due(ValueObject, frozen=True):
    """A delayed run's time has come, or a queued run's turn. `first`: nothing is before it on its resource."""

    first: bool


class Finished(ValueObject, frozen=True):
    """The current step succeeded; `result` is what it recorded, as MessagePack."""

    result: bytes


class HandedOff(ValueObject, frozen=True):
    """The current step succeeded, and the run `to` of another flow does the rest."""

    to: RunId


class Tried(ValueObject, frozen=True):
    """The current step did not succeed and may succeed next time. `jitter` is uniform in [0, 1), for the backoff;
    `after_s` is the step's own wish in seconds, None for its backoff. Not `counted`: it was the host's fault, and costs
    the step none of its attempts."""

    fault: Fault
    jitter: float
    after_s: float | None = None
    counted: bool = True


class GaveUp(ValueObject, frozen=True):
    """The current step will never succeed: the run is undone and fails with `fault`."""

    fault: Fault


class Undone(ValueObject, frozen=True):
    """The current step was undone."""


class UndoFailed(ValueObject, frozen=True):
    """The current step's undo did not succeed and may succeed next time. `jitter` is uniform in [0, 1)."""

    fault: Fault
    jitter: float


class StopAsked(ValueObject, frozen=True):
    """A user, an operator or the deadline wants the run to end as `ending`, with `fault` as the reason. `force` also
    gives up the one undo at which the run is stuck."""

    ending: Ending
    fault: Fault
    force: bool = False


class RetryAsked(ValueObject, frozen=True):
    """An operator wants the current step tried again, now."""


class Parked(ValueObject, frozen=True):
    """The engine cannot go on with this run; `why` is told to the operator."""

    why: str


Event: TypeAlias = Due | Finished | HandedOff | Tried | GaveUp | Undone | UndoFailed | StopAsked | RetryAsked | Parked


HOST_WAIT_S = 5.0  # between tries that the host cannot serve, short of descriptors, memory or disk
VAIN_RESUMES = 5  # so many daemons in a row may end while a run is at one attempt of one step


def transition(run: Run, flow: Flow[Any], event: Event, now: float) -> Run:
    """The run after the event; the same run when the event comes too late. `now` is Unix seconds."""
    match event:
        case Due():
            return _due(run, event, now)
        case Finished():
            return _finished(run, flow, event, now) if run.state is State.RUNNING else run
        case HandedOff():
            done = replace(run, handed_to=event.to, finished=(*run.finished, run.step))
            return _end(done, Ending.DONE, now) if run.state is State.RUNNING else run
        case Tried():
            return _tried(run, flow, event, now) if run.state is State.RUNNING else run
        case GaveUp():
            return _undo(run, flow, event.fault, now) if run.state is State.RUNNING else run
        case Undone():
            return _undo_next(_popped(run), flow, now) if run.state is State.UNDOING else run
        case UndoFailed():
            return _undo_failed(run, flow, event, now) if run.state is State.UNDOING else run
        case StopAsked():
            return _stop(run, flow, event, now)
        case RetryAsked():
            return _retry(run, flow, now)
        case Parked():
            return run if run.state in ENDED else _park(run, event.why)
        case _:
            assert_never(event)


def fit(run: Run, flow: Flow[Any] | None) -> Run:
    """The run under the flow's definition of today; stuck when that no longer has what the run needs."""
    if flow is None:
        return _park(run, f"its flow {run.flow} no longer exists")
    if flow.find(run.step) is None:
        return _park(run, f"its step {run.step} is no longer in flow {run.flow}")
    if run.definition == flow.definition():
        return run
    try:
        msgspec.msgpack.decode(run.input, type=flow.input)
    except msgspec.ValidationError as error:
        return _park(run, f"its input is no longer what flow {run.flow} takes: {error}")
    note = f"continued at {run.step} although the flow changed from {run.definition} to {flow.definition()}"
    return replace(run, definition=flow.definition(), note=note)


def rewind(run: Run, flow: Flow[Any], epoch: str) -> Run:
    """The run in an epoch that is not the one its steps began in: what they made is gone, so they make it again."""
    if run.state is not State.RUNNING or run.epoch == epoch:
        return run
    fresh = replace(run, step=flow.steps[0].name, attempt=1, finished=(), wake_at=None, epoch=epoch, children={})
    return replace(fresh, note="begun again: the host was restarted")


def resumed(run: Run, now: float, *, waits: bool) -> Run:
    """The run as a new daemon takes it up. One at which daemon after daemon ended is stuck: a step that kills whoever
    calls it must not keep a node down. One that `waits` for a child, or for a later time, is not to blame."""
    taken = replace(run, resumes=run.resumes + 1)
    if run.state not in (State.RUNNING, State.UNDOING) or waits or (run.wake_at is not None and run.wake_at > now):
        return taken
    if run.vain_resumes < VAIN_RESUMES:
        return replace(taken, vain_resumes=run.vain_resumes + 1)
    what = "the undo of step" if run.state is State.UNDOING else "step"
    return _park(
        taken, f"the daemon ended {VAIN_RESUMES + 1} times in a row in {what} {run.step}, attempt {run.attempt}"
    )


def end_without_flow(run: Run, event: StopAsked, now: float) -> Run:
    """An operator ends a run whose flow is gone: there is nothing left that could undo it."""
    return _end(replace(run, fault=event.fault), event.ending, now)


def _due(run: Run, event: Due, now: float) -> Run:
    if run.state not in (State.DELAYED, State.QUEUED):
        return run
    if not event.first:
        return replace(run, state=State.QUEUED, wake_at=None)
    return replace(run, state=State.RUNNING, started_at=now, wake_at=None)


def _finished(run: Run, flow: Flow[Any], event: Finished, now: float) -> Run:
    following = flow.following(run.step)
    finished = (*run.finished, run.step)
    if following is None:
        return _end(replace(run, finished=finished, result=event.result), Ending.DONE, now)
    return replace(run, finished=finished, step=following.name, attempt=1, wake_at=None)


def _tried(run: Run, flow: Flow[Any], event: Tried, now: float) -> Run:
    if not event.counted:
        pause_s = HOST_WAIT_S * (0.75 + event.jitter / 2)
        return replace(run, wake_at=now + pause_s, wait_s=pause_s)
    wait_s = _wait_s(run, flow, event.jitter)
    if wait_s is None:
        return _undo(run, flow, event.fault, now)
    return _again(run, now, wait_s if event.after_s is None else event.after_s)


def _undo_failed(run: Run, flow: Flow[Any], event: UndoFailed, now: float) -> Run:
    wait_s = _wait_s(run, flow, event.jitter, undoing=True)
    if wait_s is None:
        return _park(run, f"undo of {run.step} failed: {event.fault.text}")
    return _again(run, now, wait_s)


def _again(run: Run, now: float, wait_s: float) -> Run:
    return replace(run, attempt=run.attempt + 1, wake_at=now + wait_s, wait_s=wait_s)


def _wait_s(run: Run, flow: Flow[Any], jitter: float, *, undoing: bool = False) -> float | None:
    """None when the attempts of the step, or of its undo, are used up."""
    step = flow.find(run.step)
    assert step is not None, f"a step that was called is in its flow: {run.step}"
    backoff = step.undo_backoff if undoing and step.undo_backoff is not None else step.backoff
    return backoff.wait_s(run.attempt, jitter) if run.attempt < backoff.attempts else None


def _stop(run: Run, flow: Flow[Any], event: StopAsked, now: float) -> Run:
    match run.state:
        case State.QUEUED | State.DELAYED:
            return _end(replace(run, fault=event.fault), event.ending, now)
        case State.RUNNING:
            return _undo(run, flow, event.fault, now, event.ending)
        case State.STUCK if run.ending is None:
            return _undo(run, flow, event.fault, now, event.ending)
        case State.STUCK if event.force:
            return _undo_next(_popped(replace(run, state=State.UNDOING)), flow, now)
        case _:
            return run


def _retry(run: Run, flow: Flow[Any], now: float) -> Run:
    match run.state:
        case State.STUCK if run.started_at is None and run.ending is None:
            return replace(run, state=State.QUEUED, fault=None, note="", deadline_at=None)
        case State.STUCK:
            state = State.RUNNING if run.ending is None else State.UNDOING
            fault = None if run.ending is None else run.fault
            again = replace(run, state=state, fault=fault, attempt=1, note="", wake_at=None, deadline_at=None)
            return fit(replace(again, children={}), flow)
        case State.RUNNING | State.UNDOING if run.wake_at is not None and run.wake_at > now:
            return replace(run, wake_at=None)
        case State.FAILED:
            return _begin_again(run, flow)
        case _:
            return run


def _begin_again(run: Run, flow: Flow[Any]) -> Run:
    """From the first step: the finished ones have been undone."""
    first, definition = flow.steps[0].name, flow.definition()
    again = replace(run, state=State.QUEUED, step=first, attempt=1, finished=(), definition=definition, note="")
    return replace(again, fault=None, ending=None, started_at=None, ended_at=None, deadline_at=None, children={})


def _undo(run: Run, flow: Flow[Any], fault: Fault, now: float, ending: Ending = Ending.FAILED) -> Run:
    """Turn back. The step under way may be half made, so it comes first; one that is gone from the flow cannot."""
    stack = (*run.finished, run.step) if flow.find(run.step) else run.finished
    undoing = replace(run, state=State.UNDOING, ending=ending, fault=fault, finished=stack, wake_at=None, note="")
    return _undo_next(replace(undoing, vain_resumes=0), flow, now)


def _undo_next(run: Run, flow: Flow[Any], now: float) -> Run:
    """Go to the last step that can be undone; end when there is none."""
    for left in range(len(run.finished), 0, -1):
        name = run.finished[left - 1]
        step = flow.find(name)
        here = replace(run, finished=run.finished[:left], step=name, attempt=1, wake_at=None)
        if step is None:
            return _park(here, f"its step {name} is no longer in flow {run.flow} and cannot be undone")
        if step.undo is not None:
            return here
    return _end(replace(run, finished=()), run.ending or Ending.FAILED, now)


def _popped(run: Run) -> Run:
    return replace(run, finished=run.finished[:-1])


def _park(run: Run, why: str) -> Run:
    return replace(run, state=State.STUCK, note=why, wake_at=None, vain_resumes=0)


def _end(run: Run, ending: Ending, now: float) -> Run:
    return replace(run, state=State(ending.value), ending=ending, ended_at=now, wake_at=None)


# What an attempt came to: from a step's outcome, or from what it raised, to an event and a line of history. Pure.


class Verdict(ValueObject, frozen=True):
    """`event` is None for a hand-off: that event is made inside the transaction, with the successor's id."""

    outcome: StepStatus
    event: Event | None
    fault: Fault | None = None
    result: bytes | None = None
    """The result that the step gives to later ones, as MessagePack; None for nothing."""
    commit: Commit | None = None
    hand_off: HandOff | None = None
    late: bool = False
    """The verdict's record may be written with the next one of the run."""


def of_outcome(outcome: Outcome, jitter: float) -> Verdict:
    match outcome:
        case Done(result, commit, late):
            data = _encode(result)
            return Verdict(StepStatus.DONE, Finished(data), result=data, commit=commit, late=late and commit is None)
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
    return Verdict(StepStatus.RETRY, Tried(fault, jitter, counted=not is_the_hosts(leaf)), fault)


def is_the_hosts(error: BaseException) -> bool:
    """Whether the host, and nothing about this run, is short of what the step needs."""
    if isinstance(error, HawkerError):
        return isinstance(error.__cause__, OSError) and error.__cause__.errno in _DESCRIPTORS
    return isinstance(error, OSError) and error.errno in _EXHAUSTED


def of_undo(error: BaseException | None, jitter: float) -> Verdict:
    if error is None:
        return Verdict(StepStatus.UNDONE, Undone())
    fault = fault_of(leaf_of(error))
    return Verdict(StepStatus.UNDO_FAILED, UndoFailed(fault, jitter), fault)


def _encode(result: Any) -> bytes:
    return msgspec.msgpack.encode(result)
