"""Runs and history as callers see them."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hawker.errors import NotFound
from hawker.fair.turns import Share, Turns
from hawker.fsm.run import Fault, State, StepRecord, StepStatus
from hawker.fsm.view import QueueView, queue_view_of, step_view_of, view_of
from tests.fsm.test_transition import run_at

GONE = Fault(text="gone", kind="NotFound")


def test_input_and_result_are_plain_values() -> None:
    run = run_at("c", State.DONE, input=msgspec.msgpack.encode({"size": 3}), result=msgspec.msgpack.encode([1, "a"]))
    assert (view_of(run).input, view_of(run).result) == ({"size": 3}, [1, "a"])


@pytest.mark.parametrize(
    ("state", "waiting_for", "shown"),
    [
        (State.RUNNING, "", State.RUNNING),
        (State.RUNNING, "time", State.WAITING),
        (State.QUEUED, "turn", State.QUEUED),
        (State.UNDOING, "time", State.UNDOING),
    ],
)
def test_a_running_run_that_waits_is_shown_as_waiting(state: State, waiting_for: str, shown: State) -> None:
    view = view_of(run_at("b", state), waiting_for)
    assert (view.state, view.waiting_for) == (shown, waiting_for)


@pytest.mark.anyio
async def test_a_queue_shows_its_limit_and_what_is_under_way() -> None:
    turns = Turns(Share(name="pulls", total=3, each=3, key="organization", over="it waits"))
    await turns.take("a run")
    assert queue_view_of("pulls", turns) == QueueView(name="pulls", limit=3, active=1, waiting=0)


def test_a_failed_run_has_its_error_as_it_was_raised() -> None:
    view = view_of(run_at("b", State.FAILED, fault=GONE))
    assert isinstance(view.failure, NotFound)
    assert (view.ended, view.error) == (True, "gone")


def test_a_run_that_undoes_has_an_error_but_has_not_failed_yet() -> None:
    view = view_of(run_at("b", State.UNDOING, fault=GONE))
    assert (view.ended, view.error, view.failure) == (False, "gone", None)


def test_a_stuck_run_says_why_it_is_stuck() -> None:
    stuck = run_at("b", State.STUCK, fault=GONE, note="undo of b failed: jammed")
    assert view_of(stuck).error == "undo of b failed: jammed"
    assert view_of(replace(stuck, note="")).error == "gone"


def test_a_line_of_history_is_decoded() -> None:
    fields: dict[str, Any] = {"step": "a", "attempt": 2, "started_at": 1.0, "ended_at": 2.0}
    done = step_view_of(StepRecord(outcome=StepStatus.DONE, result=msgspec.msgpack.encode(7), **fields))
    failed = step_view_of(StepRecord(outcome=StepStatus.FAILED, fault=GONE, **fields))
    assert (done.result, done.error) == (7, None)
    assert (failed.result, failed.error) == (None, "gone")
