"""Durable flows: what a flow, a step and its outcome are. Pure values; nothing here knows what a machine is.

A step says *make it so*: it may run twice, must notice what is already there, and its result is recorded in the same
transaction as whatever else its `commit` writes. See ARCHITECTURE.md, "Steps are idempotent".
"""

import hashlib
import re
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import cache
from math import inf
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.ids import RunId
from hawker.store.contract import Tx
from hawker.value_object import ValueObject

D_co = TypeVar("D_co", covariant=True)  # the dependencies that every step of a runner shares
I = TypeVar("I", bound=msgspec.Struct)  # noqa: E741 - a flow's input
I_co = TypeVar("I_co", bound=msgspec.Struct, covariant=True)
T = TypeVar("T")

ATTEMPTS_LIMIT = 1000  # each one is a record in the run's history
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")

_EDGES = frozenset({"before", "after", "undo", "undone"})

Commit: TypeAlias = Callable[[Tx], None]


class Resource(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The resource that a run works on; at most one run per resource is active. `kind` is a word of the room that owns
    the flow, such as `machine`; `id` is unique within the kind."""

    kind: str
    id: str


class Done(ValueObject, frozen=True):
    """The step succeeded. `result` (msgspec-encodable) is recorded, for later steps and for whoever waits for the run;
    `commit` writes to the store in the same transaction, so both are there or neither.

    `late`: the record is written with the next one of the run, or a moment later, and the next step begins before that.
    After a crash in between the run goes back to this step. Only for a step that may be repeated after the next ones
    have done something, and whose undo, or the undo of an earlier step, also takes back what those did. No effect with
    a `commit`, for a durable step, and for a flow's last one."""

    result: Any = None
    commit: Commit | None = None
    late: bool = False


class Retry(ValueObject, frozen=True):
    """Call the step again, after `after_s` seconds or, without one, after the step's backoff. Counts against the step's
    attempts; when these are used up the run is undone and fails. `reason` is in the run's history."""

    reason: str
    after_s: float | None = None


class Abort(ValueObject, frozen=True):
    """Give up: undo this step and the finished ones in reverse order and end the run as failed with this error."""

    error: HawkerError | str


class HandOff(ValueObject, frozen=True):
    """End this run as done and continue as a new run of `flow` with `input` on the same resource. The end, the new run
    and what `commit` writes are one transaction."""

    flow: str
    input: msgspec.Struct
    commit: Commit | None = None


Outcome: TypeAlias = Done | Retry | Abort | HandOff


class Backoff(ValueObject, frozen=True):
    """Exponential backoff with jitter: after failed attempt n (from 1) a step waits random(0.5..1) * min(`cap_s`,
    `first_s` * 2**(n-1)) seconds. `attempts` counts all tries, the first one included: 1 to `ATTEMPTS_LIMIT`. Raises
    `ValueError` for figures out of range."""

    attempts: int = 5
    first_s: float = 0.2
    cap_s: float = 10.0

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= ATTEMPTS_LIMIT:
            raise ValueError(f"attempts must be 1 to {ATTEMPTS_LIMIT}, not {self.attempts}")
        if not 0 <= self.first_s <= self.cap_s < inf:
            raise ValueError("a backoff needs 0 <= first_s <= cap_s")

    def wait_s(self, attempt: int, jitter: float) -> float:
        """The seconds to wait after failed attempt `attempt` (from 1). `jitter` is uniform in [0, 1)."""
        return float((0.5 + jitter / 2) * min(self.cap_s, self.first_s * 2 ** min(attempt - 1, 63)))


class StepContext(Protocol[D_co, I_co]):
    """The context that a step is given: its run, what the run was accepted with, and the runner's dependencies and
    clock."""

    @property
    def run_id(self) -> RunId:
        """The id of the run, the same for all attempts and after a crash, so what a step makes can be named after
        it."""

    @property
    def resource(self) -> Resource:
        """The resource that the run works on."""

    @property
    def input(self) -> I_co:
        """The input that the run was accepted with; it never changes."""

    @property
    def deps(self) -> D_co:
        """The dependencies that the runner was built with, shared by all steps."""

    @property
    def clock(self) -> Clock:
        """The only source of time and chance in a step."""

    @property
    def attempt(self) -> int:
        """The number of the attempt, 1 for the first try."""

    def result(self, step: str, type: type[T]) -> T:
        """The result that an earlier step of this run recorded. Raises `LookupError` when that step has not
        finished."""

    def finished(self, step: str) -> bool:
        """Whether the step's completion is recorded. An undo asks it about its own step, which may be half made."""

    def reach(self, point: str) -> None:
        """Reaches one of the points that the step declares: here a test may kill the process."""

    async def child(self, flow: str, resource: Resource, input: msgspec.Struct) -> Any:
        """Start the run of `flow` on another resource, or join the one of the same flow that is active there; wait for
        it; return its last step's result. Raises the child's error if it failed. Safe to repeat after a crash.
        Cancelling this run leaves the child running: others may have joined it."""


StepCall: TypeAlias = Callable[[StepContext[Any, Any]], Awaitable[Outcome]]
UndoCall: TypeAlias = Callable[[StepContext[Any, Any]], Awaitable[None]]


class Step(ValueObject, frozen=True):
    """One row of a flow's table. Raises `ValueError` for a row that cannot be.

    `do` may raise: an error of Hawker's family that says `retry` is retried, another one gives up at once; anything
    else, and taking longer than `timeout_s`, is retried. `undo` runs for each finished step and for the step under
    way: it must cope with one that is half made or not begun, and with being repeated. `durable` makes the record
    of its completion durable before the next step begins, for an intent whose effect will leave the host. `points` are
    the places inside it where chaos may kill the daemon, those of its undo with `undo.` before them; see `failpoint`.
    """

    name: str  # lower_snake, unique in its flow; it is stored, so renaming it parks runs that are at it
    do: StepCall
    undo: UndoCall | None = None  # None: nothing to take back, the undo of the run skips this step
    timeout_s: float = 60.0  # seconds for one attempt of the step or of its undo, above 0
    backoff: Backoff = msgspec.field(default_factory=Backoff)  # how often `do` is tried, and the waits in between
    undo_backoff: Backoff | None = None  # the same for `undo`; that of the step when None
    queue: str | None = None  # a named queue whose concurrency limit this step waits for
    durable: bool = False
    waits: bool = False  # for others, most of its time: daemons that end meanwhile are not held against the run
    points: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"step {self.name!r}: a name is lower_snake")
        _check_points(self)
        if not 0 < self.timeout_s < inf:
            raise ValueError(f"step {self.name}: timeout_s must be positive and finite")
        if self.queue is not None and not _NAME.fullmatch(self.queue):
            raise ValueError(f"step {self.name}: queue {self.queue!r}: a name is lower_snake")


def _check_points(step: Step) -> None:
    """An undo's points need an undo; the names of the edges are taken."""
    for point in step.points:
        name = point.removeprefix("undo.")
        if not _NAME.fullmatch(name) or name in _EDGES or (name != point and step.undo is None):
            raise ValueError(f"step {step.name}: it cannot have a point {point!r}")


class Ending(Enum):
    """The end of a run: every step done, given up, or stopped on request. The last two have been undone."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Flow(ValueObject, Generic[I], frozen=True):
    """An ordered table of steps. A bad table (no steps, a name twice, a name that is not lower_snake, a timeout that is
    not positive) raises `ValueError` when the module is imported. `name` is stored with each run. `input` is what a run
    is accepted with. `deadline_s` is seconds from acceptance until the run is undone; None for no deadline. `on_end`
    runs in the transaction that ends the run, however it ends."""

    name: str
    input: type[I]
    steps: tuple[Step, ...]
    deadline_s: float | None = None
    on_end: Callable[[Tx, "EndedRun[I]"], None] | None = None

    def __post_init__(self) -> None:
        names = [step.name for step in self.steps]
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"flow {self.name!r}: a name is lower_snake")
        if not names:
            raise ValueError(f"flow {self.name}: it has no steps")
        if len(set(names)) < len(names):
            raise ValueError(f"flow {self.name}: a step's name is used twice")
        if self.deadline_s is not None and not 0 < self.deadline_s < inf:
            raise ValueError(f"flow {self.name}: deadline_s must be positive and finite")

    def find(self, step: str) -> Step | None:
        """The row of that name; None when the flow has none, as after an upgrade."""
        return next((row for row in self.steps if row.name == step), None)

    def following(self, step: str) -> Step | None:
        """The row after `step`; none after the last."""
        names = [row.name for row in self.steps]
        return next(iter(self.steps[names.index(step) + 1 :]), None)

    def definition(self) -> str:
        """A short hash of what a resumed run depends on: the steps, their order, which of them can be undone, and the
        input's fields."""
        rows = [(step.name, step.undo is not None, step.durable, step.queue) for step in self.steps]
        return hashlib.sha256(repr((self.name, _fields_of(self.input), rows)).encode()).hexdigest()[:16]


@cache
def _fields_of(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """Name and type of each field."""
    return [(field.encode_name, str(field.type)) for field in msgspec.structs.fields(kind)]


class EndedRun(ValueObject, Generic[I_co], frozen=True):
    """The ended run as `on_end` sees it. `error` is the text of the fault, None for a run that is done; `now` is Unix
    seconds; `deps` are the runner's."""

    run_id: RunId
    resource: Resource
    input: I_co
    ending: Ending
    error: str | None
    now: float
    deps: Any


class WhenBusy(Enum):
    """The way in which a run is accepted when its resource has an active one."""

    QUEUE = "queue"  # accept it; it begins when all runs before it have ended
    REFUSE = "refuse"  # raise a conflict that names the active run
    JOIN = "join"  # return the active run if it is of the same flow, else queue
