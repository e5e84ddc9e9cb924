"""What is stored about a run: the run itself and one record per attempt of a step. Values only.

A run keeps its input and results encoded; its steps know the types.
"""

from enum import StrEnum

import msgspec

from hawker.clock import Clock
from hawker.fsm.contract import Ending, Resource
from hawker.fsm.fault import Fault
from hawker.ids import RunId, new_ulid


class State(StrEnum):
    """`WAITING` is never stored: it is how a running run is shown while it waits for time, a child or a queue."""

    QUEUED = "queued"  # behind another run of its resource
    DELAYED = "delayed"  # not due yet; does not hold its resource
    RUNNING = "running"
    WAITING = "waiting"
    UNDOING = "undoing"
    STUCK = "stuck"  # needs an operator: retry or abort; holds its resource
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({State.DONE, State.FAILED, State.CANCELLED})


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One execution of a flow. Times are Unix seconds.

    While it runs, `step` is the first step whose completion is not recorded and `finished` the steps before it; while
    it undoes, `finished` is what is left to undo, `step` the last of them, and `ending` how the run will end.
    """

    id: RunId
    flow: str
    definition: str
    resource: Resource
    input: bytes
    state: State
    step: str
    accepted_at: float
    attempt: int = 1
    finished: tuple[str, ...] = ()
    records: int = 0  # how many attempts are in the history
    started_at: float | None = None
    ended_at: float | None = None
    deadline_at: float | None = None
    wake_at: float | None = None  # when a delayed run is due, or the next attempt
    wait_s: float | None = None  # how far off that was when it was decided: no wait is longer, whatever a clock says
    ending: Ending | None = None
    fault: Fault | None = None
    result: bytes | None = None  # of the last step, once done
    parent: RunId | None = None
    children: dict[str, RunId] = {}  # by where and for what they were started; see `context.py`
    handed_from: RunId | None = None
    handed_to: RunId | None = None
    resumes: int = 0  # how many times a new daemon took it up again
    vain_resumes: int = 0  # of these, the last ones in a row that recorded nothing; see `transition.resumed`
    epoch: str = ""  # of the host, when its steps began; see `Runner`
    note: str = ""


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """What counting runs needs of a `Run`."""

    id: RunId
    state: State


class StepStatus(StrEnum):
    """How one attempt of a step, or of its undo, ended; stored in its record."""

    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"
    HANDED_OFF = "handed_off"
    UNDONE = "undone"
    UNDO_FAILED = "undo_failed"


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt of a step or of its undo."""

    step: str
    attempt: int
    outcome: StepStatus
    started_at: float
    ended_at: float
    fault: Fault | None = None
    result: bytes | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """The unended runs of one resource in order; the first is the active one."""

    runs: tuple[RunId, ...]


_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def next_run_id(clock: Clock, last: RunId) -> RunId:
    """A ULID that sorts after `last`, also within one millisecond and when the wall clock goes back."""
    fresh = new_ulid(clock)
    return RunId(fresh if fresh > last else _successor(last))


def _successor(ulid: str) -> str:
    kept = ulid.rstrip(_DIGITS[-1])
    bumped = _DIGITS[_DIGITS.index(kept[-1]) + 1]
    return kept[:-1] + bumped + _DIGITS[0] * (len(ulid) - len(kept))
