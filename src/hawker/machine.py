"""A machine's states and the rules about them: which operation is legal when, and what follows an exit.

Values only; the config is in `config`, records and what moves a machine from state to state in `worker/`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import assert_never

from hawker.errors import Conflict, HawkerError, WrongState


class State(StrEnum):
    """The states of the Machines API (contract 3.1)."""

    CREATED = "created"
    CREATING = "creating"
    STARTING = "starting"
    STARTED = "started"
    STOPPING = "stopping"
    STOPPED = "stopped"
    RESTARTING = "restarting"
    UPDATING = "updating"
    REPLACING = "replacing"
    REPLACED = "replaced"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    FAILED = "failed"
    LAUNCH_FAILED = "launch_failed"
    DESTROYING = "destroying"
    DESTROYED = "destroyed"


SETTLED = frozenset({State.STARTED, State.STOPPED, State.SUSPENDED, State.FAILED, State.DESTROYED})
"""The resting states that `wait?state=settled` waits for."""

OFF = frozenset({State.STOPPED, State.FAILED})
"""Resting without an instance."""

AT_REST = OFF | {State.STARTED, State.SUSPENDED}
"""Resting; a suspended machine has its instance, held still."""

WITH_INSTANCE = AT_REST - OFF

GONE = frozenset({State.DESTROYING, State.DESTROYED})


class Operation(StrEnum):
    START = "start"
    STOP = "stop"
    SUSPEND = "suspend"
    RESTART = "restart"
    UPDATE = "update"
    DESTROY = "destroy"
    SIGNAL = "signal"
    EXEC = "exec"
    MEMORY = "change the memory of"


class OperationVerdict(Enum):
    GO = "go"
    NOTHING_TO_DO = "nothing to do"


@dataclass(frozen=True, slots=True)
class _Rule:
    """In which states an operation may begin, and in which what it is for is so, or on its way."""

    go: frozenset[State]
    nothing: frozenset[State] = frozenset()


_UP = frozenset({State.STARTED})
_BEGINNING = frozenset({State.STARTING, State.RESTARTING})

RULES: Mapping[Operation, _Rule] = {
    Operation.START: _Rule(OFF | {State.SUSPENDED}, _UP | _BEGINNING),
    Operation.STOP: _Rule(frozenset(State) - OFF - GONE - {State.STOPPING}, OFF | {State.STOPPING}),
    Operation.SUSPEND: _Rule(_UP, frozenset({State.SUSPENDED, State.SUSPENDING})),
    Operation.RESTART: _Rule(AT_REST),
    Operation.UPDATE: _Rule(AT_REST),
    Operation.DESTROY: _Rule(OFF | {State.SUSPENDED}, GONE),
    Operation.SIGNAL: _Rule(_UP),
    Operation.EXEC: _Rule(_UP),
    Operation.MEMORY: _Rule(_UP),
}
"""The rule of each operation. A state that is in neither column refuses the operation."""


def judge(operation: Operation, state: State, *, force: bool = False) -> OperationVerdict:
    """Whether `operation` may begin in `state`; a destroy by force always may. Raises `WrongState` or `Conflict` with
    the texts clients match on."""
    rule = RULES[operation]
    if state in rule.nothing:
        return OperationVerdict.NOTHING_TO_DO
    if state in rule.go or (operation is Operation.DESTROY and force):
        return OperationVerdict.GO
    raise _refusal(operation, state)


def _refusal(operation: Operation, state: State) -> HawkerError:
    match operation, state:
        case Operation.START, State.STOPPING:
            return WrongState("machine still active, refusing to start")
        case Operation.START, State.UPDATING | State.REPLACING:
            return WrongState("machine getting replaced, refusing to start")
        case Operation.DESTROY, _:
            return WrongState("unable to destroy machine, not currently stopped")
        case Operation.UPDATE, _ if state not in GONE:
            return Conflict("machine update failed due to concurrent update")
        case _:
            return WrongState(f"unable to {operation} machine from current state: '{state}'")


class Policy(StrEnum):
    """The policy that says when an exited machine is started again."""

    NO = "no"
    ALWAYS = "always"
    ON_FAILURE = "on-failure"


RESTART_WINDOW_S = 300.0
_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 30.0


@dataclass(frozen=True, slots=True)
class Restart:
    """The decision after an exit: the machine starts again after `delay_s` seconds as the `count`-th try in a row, or
    stays off when `delay_s` is None."""

    delay_s: float | None
    count: int


def after_exit(policy: Policy, max_retries: int, *, exit_code: int, ran_s: float, count: int) -> Restart:
    """Contract 3.5: on-failure retries a non-zero exit up to `max_retries` within five minutes; a machine that ran
    longer than that starts a new count. The delay doubles from half a second to 30 s, so nothing loops hot."""
    if ran_s >= RESTART_WINDOW_S:
        count = 0
    match policy:
        case Policy.NO:
            again = False
        case Policy.ALWAYS:
            again = True
        case Policy.ON_FAILURE:
            again = exit_code != 0 and count < max_retries
        case _:
            assert_never(policy)
    if not again:
        return Restart(delay_s=None, count=count)
    return Restart(delay_s=min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(count, 16)), count=count + 1)
