"""A run's life, event by event; then whatever order events come in."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hawker.fsm.contract import Backoff, Ending, Flow, Step
from hawker.fsm.run import ENDED, Fault, Run, State
from hawker.fsm.transition import (
    HOST_WAIT_S,
    VAIN_RESUMES,
    Due,
    Event,
    Finished,
    GaveUp,
    HandedOff,
    Parked,
    RetryAsked,
    StopAsked,
    Tried,
    UndoFailed,
    Undone,
    end_without_flow,
    fit,
    resumed,
    transition,
)
from hawker.ids import RunId
from tests.fsm.serving import THING, Job, flow, noting, undoing

NOW = 1000.0
FAULT = Fault(text="broken")
TWICE = Backoff(attempts=2, first_s=1, cap_s=8)


def row(name: str, undo: bool = True) -> Step:
    return Step(name, noting(name), undoing(name) if undo else None, backoff=TWICE)


ABC = flow("make", row("a"), row("b", undo=False), row("c"))


def run_at(step: str, state: State = State.RUNNING, of: Flow[Any] = ABC, **fields: Any) -> Run:
    names = [each.name for each in of.steps]
    run = Run(
        id=RunId("R"),
        flow=of.name,
        definition=of.definition(),
        resource=THING,
        input=b"\x80",
        state=state,
        step=step,
        finished=tuple(names[: names.index(step)]),
        accepted_at=1.0,
        started_at=None if state in (State.QUEUED, State.DELAYED) else 2.0,
    )
    return replace(run, **fields)


def after(run: Run, event: Event, of: Flow[Any] = ABC) -> Run:
    return transition(run, of, event, NOW)


def short(run: Run) -> tuple[str, str, tuple[str, ...], int]:
    return run.state.value, run.step, run.finished, run.attempt


def test_finished_goes_to_the_next_step_with_fresh_attempts() -> None:
    run = after(run_at("a", attempt=2, wake_at=5.0), Finished(b"x"))
    assert short(run) == ("running", "b", ("a",), 1) and run.wake_at is None


def test_the_last_step_ends_the_run_with_its_result() -> None:
    run = after(run_at("c"), Finished(b"x"))
    assert (run.state, run.result, run.ended_at, run.ending) == (State.DONE, b"x", NOW, Ending.DONE)


def test_a_try_waits_for_the_backoff() -> None:
    run = after(run_at("a"), Tried(FAULT, jitter=0.0))
    assert short(run) == ("running", "a", (), 2) and run.wake_at == NOW + 0.5


def test_a_try_waits_as_long_as_the_step_says() -> None:
    later = after(run_at("a"), Tried(FAULT, jitter=0.9, after_s=30))
    assert (later.wake_at, later.wait_s) == (NOW + 30, 30)


def test_a_try_that_the_host_could_not_serve_costs_no_attempt() -> None:
    spared = after(run_at("c", attempt=2), Tried(FAULT, jitter=0.5, counted=False))
    assert (spared.state, spared.attempt, spared.wait_s) == (State.RUNNING, 2, HOST_WAIT_S)


def test_the_last_attempt_undoes_the_step_itself_first() -> None:
    run = after(run_at("c", attempt=2), Tried(FAULT, jitter=0.0))
    assert short(run) == ("undoing", "c", ("a", "b", "c"), 1)
    assert (run.fault, run.ending) == (FAULT, Ending.FAILED)


def test_giving_up_undoes_the_step_itself_first() -> None:
    assert short(after(run_at("c"), GaveUp(FAULT))) == ("undoing", "c", ("a", "b", "c"), 1)


def test_giving_up_with_nothing_to_undo_ends_at_once() -> None:
    plain = flow("make", row("a", undo=False))
    run = after(run_at("a", of=plain), GaveUp(FAULT), plain)
    assert (run.state, run.ended_at, run.fault) == (State.FAILED, NOW, FAULT)


def test_undone_goes_back_over_steps_without_undo() -> None:
    undoing_c = after(run_at("c"), GaveUp(FAULT))
    undoing_a = after(undoing_c, Undone())
    assert short(undoing_a) == ("undoing", "a", ("a",), 1)
    assert short(after(undoing_a, Undone())) == ("failed", "a", (), 1)


def test_an_undo_is_tried_again_and_then_stuck() -> None:
    first = after(run_at("c"), GaveUp(FAULT))
    second = after(first, UndoFailed(Fault(text="jammed"), jitter=0.0))
    assert (second.attempt, second.state, second.fault) == (2, State.UNDOING, FAULT)
    stuck = after(second, UndoFailed(Fault(text="jammed"), jitter=0.0))
    assert (stuck.state, stuck.note) == (State.STUCK, "undo of c failed: jammed")
    again = after(stuck, RetryAsked())
    assert short(again) == ("undoing", "c", ("a", "b", "c"), 1) and again.note == ""


def test_an_undo_has_a_patience_of_its_own() -> None:
    step = Step("a", noting("a"), undoing("a"), backoff=Backoff(attempts=1), undo_backoff=Backoff(attempts=3))
    patient = flow("make", step)
    run = after(run_at("a", of=patient), GaveUp(FAULT), patient)
    for attempt in (2, 3):
        run = after(run, UndoFailed(Fault(text="jammed"), jitter=0.0), patient)
        assert (run.state, run.attempt) == (State.UNDOING, attempt)
    assert after(run, UndoFailed(Fault(text="jammed"), jitter=0.0), patient).state is State.STUCK


def test_a_stuck_undo_is_given_up_by_force_only() -> None:
    stuck = run_at("c", State.STUCK, ending=Ending.FAILED, finished=("a", "b", "c"))
    assert after(stuck, StopAsked(Ending.CANCELLED, FAULT)) is stuck
    assert short(after(stuck, StopAsked(Ending.FAILED, FAULT, force=True))) == ("undoing", "a", ("a",), 1)


def test_stop_undoes_towards_its_ending() -> None:
    run = after(run_at("c"), StopAsked(Ending.CANCELLED, FAULT))
    assert short(run) == ("undoing", "c", ("a", "b", "c"), 1)
    for _ in range(2):
        run = after(run, Undone())
    assert run.state is State.CANCELLED


@pytest.mark.parametrize("state", [State.QUEUED, State.DELAYED])
def test_stop_ends_a_run_that_has_not_begun(state: State) -> None:
    assert after(run_at("a", state), StopAsked(Ending.CANCELLED, FAULT)).state is State.CANCELLED


def test_a_step_that_finishes_after_the_stop_changes_nothing() -> None:
    stopped = after(run_at("b"), StopAsked(Ending.CANCELLED, FAULT))
    late = (Finished(b""), Tried(FAULT, 0.0), GaveUp(FAULT), HandedOff(RunId("S")))
    assert all(after(stopped, event) is stopped for event in late)


def test_a_hand_off_ends_the_run_as_done() -> None:
    run = after(run_at("b"), HandedOff(RunId("S")))
    assert (run.state, run.handed_to, run.finished) == (State.DONE, "S", ("a", "b"))


def test_a_parked_run_goes_on_where_it_was() -> None:
    parked = after(run_at("b"), Parked("jammed"))
    assert (parked.state, parked.note) == (State.STUCK, "jammed")
    assert short(after(parked, RetryAsked())) == ("running", "b", ("a",), 1)


def test_a_run_that_was_parked_before_its_turn_gets_in_line_again() -> None:
    parked = after(run_at("a", State.QUEUED), Parked("jammed"))
    again = after(parked, RetryAsked())
    assert (parked.state, again.state, again.note) == (State.STUCK, State.QUEUED, "")


def test_a_retry_of_an_undo_of_a_run_that_never_began_goes_on_undoing() -> None:
    run = run_at("a", State.QUEUED)
    for event in (Parked("jammed"), StopAsked(Ending.CANCELLED, FAULT), Parked("jammed")):
        run = after(run, event)
    again = after(run, RetryAsked())
    assert (again.state, again.step, again.ending) == (State.UNDOING, "a", Ending.CANCELLED)


def test_a_retry_of_a_failed_run_begins_again() -> None:
    failed = replace(run_at("a"), state=State.FAILED, ended_at=NOW, ending=Ending.FAILED, fault=FAULT, finished=())
    again = after(failed, RetryAsked())
    assert short(again) == ("queued", "a", (), 1)
    assert (again.ended_at, again.ending, again.fault) == (None, None, None)


@pytest.mark.parametrize("state", [State.RUNNING, State.DONE, State.CANCELLED, State.QUEUED, State.DELAYED])
def test_a_retry_without_need_changes_nothing(state: State) -> None:
    run = run_at("a", state)
    assert after(run, RetryAsked()) is run


def test_a_changed_flow_with_the_step_continues_and_says_so() -> None:
    longer = flow("make", row("z"), *ABC.steps)
    run = fit(run_at("b"), longer)
    assert (run.state, run.definition) == (State.RUNNING, longer.definition())
    assert run.note.startswith("continued at b although the flow changed")


@pytest.mark.parametrize(
    ("today", "note"),
    [
        (None, "its flow make no longer exists"),
        (flow("make", row("z")), "its step b is no longer in flow make"),
    ],
)
def test_a_flow_without_the_step_leaves_the_run_stuck(today: Flow[Job] | None, note: str) -> None:
    run = fit(run_at("b"), today)
    assert (run.state, run.note) == (State.STUCK, note)


def test_an_input_that_no_longer_fits_leaves_the_run_stuck() -> None:
    other = flow("make", row("z"), *ABC.steps)
    run = fit(run_at("b", input=b"\x81\xa4size\xa1x"), other)
    assert run.state is State.STUCK and run.note.startswith("its input is no longer what flow make takes")


def test_an_undo_that_is_gone_from_the_flow_leaves_the_run_stuck() -> None:
    shorter = flow("make", row("b"), row("c"))
    run = after(after(run_at("c", finished=("a",)), GaveUp(FAULT), shorter), Undone(), shorter)
    assert (run.state, run.step) == (State.STUCK, "a")
    assert after(run, StopAsked(Ending.FAILED, FAULT, force=True), shorter).state is State.FAILED


def test_a_run_without_a_flow_can_be_ended() -> None:
    run = end_without_flow(run_at("b", State.STUCK), StopAsked(Ending.FAILED, FAULT), NOW)
    assert (run.state, run.fault) == (State.FAILED, FAULT)


# Whatever order events come in.

EVENTS = st.one_of(
    st.builds(Due, st.booleans()),
    st.just(Finished(b"")),
    st.just(HandedOff(RunId("S"))),
    st.builds(Tried, st.just(FAULT), st.floats(0, 0.99)),
    st.just(GaveUp(FAULT)),
    st.just(Undone()),
    st.builds(UndoFailed, st.just(FAULT), st.floats(0, 0.99)),
    st.builds(StopAsked, st.sampled_from([Ending.FAILED, Ending.CANCELLED]), st.just(FAULT), st.booleans()),
    st.just(RetryAsked()),
    st.just(Parked("jammed")),
)
FLOWS = st.lists(st.booleans(), min_size=1, max_size=5).map(
    lambda undos: flow("make", *(row(f"s{number}", undo) for number, undo in enumerate(undos)))
)


def check(run: Run, of: Flow[Any]) -> None:
    names = tuple(step.name for step in of.steps)
    assert run.finished == names[: len(run.finished)]
    assert (run.state in ENDED) == (run.ended_at is not None)
    assert 1 <= run.attempt <= TWICE.attempts
    match run.state:
        case State.RUNNING:
            assert run.finished == names[: names.index(run.step)] and run.ending is None
        case State.UNDOING:
            step = of.find(run.step)
            assert run.finished[-1] == run.step and step is not None and step.undo is not None
            assert run.ending in (Ending.FAILED, Ending.CANCELLED)
        case State.DONE:
            assert run.finished == names or run.handed_to is not None
        case State.FAILED | State.CANCELLED:
            assert run.fault is not None and run.finished in ((), names[:0])


@given(FLOWS, st.lists(EVENTS, max_size=40))
def test_every_order_of_events_keeps_the_run_whole(of: Flow[Any], events: list[Event]) -> None:
    run = run_at(of.steps[0].name, State.QUEUED, of)
    for event in events:
        before, run = run, transition(run, of, event, NOW)
        check(run, of)
        if before.state in ENDED and not (before.state is State.FAILED and isinstance(event, RetryAsked)):
            assert run is before
        if before.state is State.UNDOING:
            assert run.state in (State.UNDOING, State.STUCK, *ENDED)


@given(FLOWS, st.lists(EVENTS, max_size=20))
def test_run_whose_calls_succeed_ends_after_any_history(of: Flow[Any], events: list[Event]) -> None:
    run = run_at(of.steps[0].name, State.QUEUED, of)
    for event in events:
        run = transition(run, of, event, NOW)
    for _ in range(3 * len(of.steps) + 3):
        if run.state is State.STUCK:
            run = transition(run, of, RetryAsked(), NOW)
        run = transition(run, of, Undone() if run.state is State.UNDOING else Finished(b""), NOW)
        run = transition(run, of, Due(first=True), NOW)
    assert run.state in ENDED


# A run that daemon after daemon ends at.


@pytest.mark.parametrize("state", [State.RUNNING, State.UNDOING])
def test_a_run_that_so_many_daemons_ended_at_is_stuck(state: State) -> None:
    run = run_at("a", state)
    for number in range(1, VAIN_RESUMES + 1):
        run = resumed(run, NOW, waits=False)
        assert (run.state, run.vain_resumes) == (state, number)
    stuck = resumed(run, NOW, waits=False)
    assert (stuck.state, stuck.resumes) == (State.STUCK, VAIN_RESUMES + 1)
    assert "the daemon ended 6 times in a row" in stuck.note and "step a, attempt 1" in stuck.note


@pytest.mark.parametrize(
    ("fields", "waits"),
    [({}, True), ({"wake_at": NOW + 1}, False), ({"state": State.STUCK}, False), ({"state": State.QUEUED}, False)],
)
def test_a_run_that_only_waits_is_never_to_blame(fields: dict[str, Any], waits: bool) -> None:
    run = replace(run_at("a"), **fields)
    for _ in range(3 * VAIN_RESUMES):
        run = resumed(run, NOW, waits=waits)
    assert (run.state, run.vain_resumes, run.resumes) == (fields.get("state", State.RUNNING), 0, 3 * VAIN_RESUMES)


def test_an_operator_gives_a_stuck_run_as_many_daemons_again() -> None:
    stuck = resumed(run_at("a", vain_resumes=VAIN_RESUMES), NOW, waits=False)
    again = transition(stuck, ABC, RetryAsked(), NOW)
    assert (again.state, again.vain_resumes) == (State.RUNNING, 0)
    undone = transition(stuck, ABC, StopAsked(Ending.FAILED, FAULT, force=True), NOW)
    assert (undone.state, undone.vain_resumes) == (State.UNDOING, 0)
