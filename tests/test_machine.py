from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.errors import Conflict, HawkerError, WrongState
from hawker.machine import (
    AT_REST,
    GONE,
    RESTART_WINDOW_S,
    SETTLED,
    WITH_INSTANCE,
    Operation,
    OperationVerdict,
    Policy,
    State,
    after_exit,
    judge,
)

GO, NOTHING = OperationVerdict.GO, OperationVerdict.NOTHING_TO_DO


TABLE = """
                start   stop    suspend restart update  destroy signal  exec    memory
created         412     go      412     412     409     412     412     412     412
creating        412     go      412     412     409     412     412     412     412
starting        nothing go      412     412     409     412     412     412     412
started         nothing go      go      go      go      412     go      go      go
stopping        412     nothing 412     412     409     412     412     412     412
stopped         go      nothing 412     go      go      go      412     412     412
restarting      nothing go      412     412     409     412     412     412     412
updating        412     go      412     412     409     412     412     412     412
replacing       412     go      412     412     409     412     412     412     412
replaced        412     go      412     412     409     412     412     412     412
suspending      412     go      nothing 412     409     412     412     412     412
suspended       go      go      nothing go      go      go      412     412     412
failed          go      nothing 412     go      go      go      412     412     412
launch_failed   412     go      412     412     409     412     412     412     412
destroying      412     412     412     412     412     nothing 412     412     412
destroyed       412     412     412     412     412     nothing 412     412     412
"""
"""What follows each operation in each state: it begins, there is nothing to do, or it is refused with that status."""


def rows() -> Iterator[tuple[Operation, State, str]]:
    head, *lines = TABLE.strip("\n").splitlines()
    names = {each.name.lower(): each for each in Operation}
    operations = [names[word] for word in head.split()]
    for line in lines:
        state, *answers = line.split()
        yield from ((operation, State(state), answer) for operation, answer in zip(operations, answers, strict=True))


def answer_to(operation: Operation, state: State, *, force: bool = False) -> str:
    try:
        return {GO: "go", NOTHING: "nothing"}[judge(operation, state, force=force)]
    except HawkerError as error:
        return str(error.status)


@pytest.mark.parametrize(("operation", "state", "answer"), rows())
def test_an_operation_in_a_state(operation: Operation, state: State, answer: str) -> None:
    assert answer_to(operation, state) == answer


def test_the_table_has_every_operation_in_every_state() -> None:
    assert [(operation, state) for operation, state, _ in rows()] == [(o, s) for s in State for o in Operation]


@pytest.mark.parametrize("state", State)
def test_force_only_widens_a_destroy(state: State) -> None:
    assert answer_to(Operation.DESTROY, state, force=True) == ("nothing" if state in GONE else "go")
    assert all(answer_to(o, state, force=True) == answer_to(o, state) for o in Operation if o is not Operation.DESTROY)


def test_the_resting_states_are_those_that_settle_a_wait() -> None:
    assert AT_REST | {State.DESTROYED} == SETTLED
    assert {State.STARTED, State.SUSPENDED} == WITH_INSTANCE


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
        (Operation.SIGNAL, State.SUSPENDED, WrongState, "unable to signal machine from current state: 'suspended'"),
        (Operation.SUSPEND, State.STOPPED, WrongState, "unable to suspend machine from current state: 'stopped'"),
        (Operation.MEMORY, State.STOPPED, WrongState, "unable to change the memory of machine from current state"),
        (Operation.EXEC, State.STARTING, WrongState, "unable to exec machine"),
    ],
)
def test_an_illegal_operation_says_why(operation: Operation, state: State, error: type[HawkerError], text: str) -> None:
    with pytest.raises(error, match=text):
        judge(operation, state)


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
