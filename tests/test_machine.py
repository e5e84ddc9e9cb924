import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.errors import Conflict, HawkerError, WrongState
from hawker.machine import RESTART_WINDOW_S, Operation, Policy, State, Verdict, after_exit, judge

GO, NOTHING = Verdict.GO, Verdict.NOTHING_TO_DO


@pytest.mark.parametrize(
    ("operation", "state", "verdict"),
    [
        (Operation.START, State.STOPPED, GO),
        (Operation.START, State.FAILED, GO),
        (Operation.START, State.STARTED, NOTHING),
        (Operation.STOP, State.STARTED, GO),
        (Operation.STOP, State.CREATED, GO),
        (Operation.STOP, State.STOPPED, NOTHING),
        (Operation.RESTART, State.STARTED, GO),
        (Operation.RESTART, State.STOPPED, GO),
        (Operation.UPDATE, State.STOPPED, GO),
        (Operation.DESTROY, State.STOPPED, GO),
        (Operation.DESTROY, State.DESTROYING, NOTHING),
        (Operation.SIGNAL, State.STARTED, GO),
        (Operation.EXEC, State.STARTED, GO),
    ],
)
def test_a_legal_operation(operation: Operation, state: State, verdict: Verdict) -> None:
    assert judge(operation, state) is verdict


@pytest.mark.parametrize(
    ("operation", "state", "error", "text"),
    [
        (Operation.START, State.CREATED, WrongState, "unable to start machine from current state: 'created'"),
        (Operation.START, State.STOPPING, WrongState, "machine still active, refusing to start"),
        (Operation.START, State.UPDATING, WrongState, "machine getting replaced, refusing to start"),
        (Operation.STOP, State.DESTROYING, WrongState, "unable to stop machine"),
        (Operation.RESTART, State.CREATED, WrongState, "unable to restart machine"),
        (Operation.UPDATE, State.STARTING, Conflict, "machine update failed due to concurrent update"),
        (Operation.UPDATE, State.DESTROYED, WrongState, "unable to update machine"),
        (Operation.DESTROY, State.STARTED, WrongState, "unable to destroy machine, not currently stopped"),
        (Operation.SIGNAL, State.STOPPED, WrongState, "unable to signal machine"),
        (Operation.EXEC, State.STARTING, WrongState, "unable to exec machine"),
    ],
)
def test_an_illegal_operation_says_why(operation: Operation, state: State, error: type[HawkerError], text: str) -> None:
    with pytest.raises(error, match=text):
        judge(operation, state)


def test_a_running_machine_can_be_destroyed_by_force() -> None:
    assert judge(Operation.DESTROY, State.STARTED, force=True) is GO


@given(st.sampled_from(Operation), st.sampled_from(State), st.booleans())
def test_every_pair_has_an_answer(operation: Operation, state: State, force: bool) -> None:
    try:
        assert judge(operation, state, force=force) in Verdict
    except HawkerError as error:
        assert error.status in (409, 412)


def test_policy_no_never_restarts() -> None:
    assert after_exit(Policy.NO, 10, exit_code=1, ran_s=1, count=0).delay_s is None


def test_on_failure_leaves_a_clean_exit_alone() -> None:
    assert after_exit(Policy.ON_FAILURE, 10, exit_code=0, ran_s=1, count=0).delay_s is None


def test_on_failure_gives_up_after_max_retries() -> None:
    count = 0
    tries = 0
    while (restart := after_exit(Policy.ON_FAILURE, 10, exit_code=1, ran_s=1, count=count)).delay_s is not None:
        count, tries = restart.count, tries + 1
    assert tries == 10


def test_a_long_run_starts_a_new_count() -> None:
    restart = after_exit(Policy.ON_FAILURE, 10, exit_code=1, ran_s=RESTART_WINDOW_S, count=10)
    assert restart.delay_s == 0.5 and restart.count == 1


@given(st.integers(0, 10_000))
def test_always_restarts_with_a_growing_but_capped_delay(count: int) -> None:
    delay = after_exit(Policy.ALWAYS, 0, exit_code=0, ran_s=0, count=count).delay_s
    following = after_exit(Policy.ALWAYS, 0, exit_code=0, ran_s=0, count=count + 1).delay_s
    assert delay is not None and following is not None
    assert 0.5 <= delay <= following <= 30.0
