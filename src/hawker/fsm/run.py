"""What is stored about a run: the run itself, one record per attempt of a step, and an error as it is stored with a
run. Values only.

A run keeps its input and results encoded; its steps know the types.
"""

from enum import StrEnum
from typing import cast

import msgspec

from hawker import errors
from hawker.clock import Clock
from hawker.errors import HawkerError, NoRoom
from hawker.fsm.contract import Ending, Resource
from hawker.ids import RunId, new_ulid


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`kind` is the name of a class in `errors`, or empty for what is outside the family. `text` is for people."""

    text: str
    kind: str = ""
    scope: str = ""
    """The scope of `NoRoom`: host, region or quota; else empty."""
    shortfall: dict[str, int] = {}
    """The amounts that are missing, of `NoRoom`, by resource, each 1 or more."""
    nearest: str | None = None
    """The nearest region that has room, of `NoRoom`; None where none has."""

    @property
    def status(self) -> int:
        return _class_of(self.kind).status

    @property
    def retry(self) -> bool:
        return _class_of(self.kind).retry


def fault_of(error: BaseException | str) -> Fault:
    if isinstance(error, str):
        return Fault(text=error)
    if isinstance(error, NoRoom):
        parts = {"scope": error.scope, "shortfall": error.shortfall, "nearest": error.nearest}
        return msgspec.structs.replace(Fault(text=str(error), kind="NoRoom"), **parts)
    if isinstance(error, HawkerError):
        return Fault(text=str(error), kind=_known_kind(type(error)))
    return Fault(text=f"{type(error).__name__}: {error}")


def error_of(fault: Fault) -> HawkerError:
    """The error again, with its text as it was. What is outside the family becomes the family's base: an internal
    error, status 500, that a retry does not help."""
    error = _class_of(fault.kind).__new__(_class_of(fault.kind), fault.text)
    if isinstance(error, NoRoom):
        error.scope, error.shortfall, error.nearest = fault.scope, fault.shortfall, fault.nearest
    return error  # `__init__` is left out: it would put the prefix before the text once more


def _class_of(kind: str) -> type[HawkerError]:
    found = getattr(errors, kind, HawkerError) if kind else HawkerError
    assert issubclass(found, HawkerError), kind
    return cast(type[HawkerError], found)


def _known_kind(found: type[BaseException]) -> str:
    """The nearest class of the family itself, for errors that a room has made more special."""
    names: list[str] = [cls.__name__ for cls in found.__mro__]
    return next(name for name in names if name in vars(errors))


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
    """The name of the flow."""
    definition: str
    """A hash of the flow's steps when the run began; another one parks a run whose step is gone."""
    resource: Resource
    input: bytes
    """The input that the flow was given, as MessagePack of its input type."""
    state: State
    step: str
    accepted_at: float
    attempt: int = 1
    """The number of the attempt of the step that is next, 1 or more."""
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
    """The text of what the run waits for or was told last; empty for nothing."""


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a `Run` that is needed to count runs."""

    id: RunId
    state: State


class StepStatus(StrEnum):
    """The end of one attempt of a step, or of its undo; stored in its record."""

    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"
    HANDED_OFF = "handed_off"
    UNDONE = "undone"
    UNDO_FAILED = "undo_failed"


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt of a step or of its undo."""

    step: str
    """The name of the step."""
    attempt: int
    """The number of the attempt, 1 or more; counts for each step anew."""
    outcome: StepStatus
    started_at: float
    """The time at which the attempt began, in Unix seconds."""
    ended_at: float
    """The time at which the attempt ended, in Unix seconds."""
    fault: Fault | None = None
    result: bytes | None = None
    """The result that the step gave to later ones, as MessagePack; None for nothing."""


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
