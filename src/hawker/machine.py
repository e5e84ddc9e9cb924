"""A machine's states and the rules about them: which operation is legal when, and what follows an exit.

Values only; the config is in `config`, records and what moves a machine from state to state in `worker/`.
"""

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

OFF = frozenset({State.STOPPED, State.SUSPENDED, State.FAILED})
"""Resting without an instance."""

GONE = frozenset({State.DESTROYING, State.DESTROYED})


class Operation(StrEnum):
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    UPDATE = "update"
    DESTROY = "destroy"
    SIGNAL = "signal"
    EXEC = "exec"


class Verdict(Enum):
    GO = "go"
    NOTHING_TO_DO = "nothing to do"


def judge(operation: Operation, state: State, *, force: bool = False) -> Verdict:
    """Whether `operation` may begin in `state`. Raises `WrongState` or `Conflict` with the texts clients match on."""
    refusal = _refusal(operation, state, force)
    if refusal is not None:
        raise refusal
    return Verdict.NOTHING_TO_DO if state in _NOTHING_TO_DO[operation] else Verdict.GO


_NOTHING_TO_DO: dict[Operation, frozenset[State]] = {
    Operation.START: frozenset({State.STARTED, State.STARTING, State.RESTARTING}),
    Operation.STOP: frozenset({State.STOPPED, State.SUSPENDED, State.FAILED, State.STOPPING}),
    Operation.RESTART: frozenset(),
    Operation.UPDATE: frozenset(),
    Operation.DESTROY: GONE,
    Operation.SIGNAL: frozenset(),
    Operation.EXEC: frozenset(),
}


def _refusal(operation: Operation, state: State, force: bool) -> HawkerError | None:
    unable = WrongState(f"unable to {operation} machine from current state: '{state}'")
    match operation:
        case Operation.START:
            return _start_refusal(state)
        case Operation.STOP:
            return unable if state in GONE else None
        case Operation.RESTART:
            return None if state in OFF | {State.STARTED} else unable
        case Operation.UPDATE:
            if state in OFF | {State.STARTED}:
                return None
            return unable if state in GONE else Conflict("machine update failed due to concurrent update")
        case Operation.DESTROY:
            stopped = force or state in OFF | GONE
            return None if stopped else WrongState("unable to destroy machine, not currently stopped")
        case Operation.SIGNAL | Operation.EXEC:
            return None if state is State.STARTED else unable
        case _:
            assert_never(operation)


def _start_refusal(state: State) -> WrongState | None:
    if state in OFF or state in _NOTHING_TO_DO[Operation.START]:
        return None
    if state is State.STOPPING:
        return WrongState("machine still active, refusing to start")
    if state in (State.UPDATING, State.REPLACING):
        return WrongState("machine getting replaced, refusing to start")
    return WrongState(f"unable to start machine from current state: '{state}'")


class Policy(StrEnum):
    """When an exited machine is started again."""

    NO = "no"
    ALWAYS = "always"
    ON_FAILURE = "on-failure"


RESTART_WINDOW_S = 300.0
_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 30.0


@dataclass(frozen=True, slots=True)
class Restart:
    """What follows an exit: start again after `delay_s` as the `count`-th try in a row, or rest when None."""

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
