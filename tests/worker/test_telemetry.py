"""Spans of runs: which trace, below what, and what they say."""

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from hawker.fsm.contract import Ending, Resource, Retry, Step
from hawker.fsm.run import Run, State, StepRecord, StepStatus, fault_of
from hawker.ids import RunId
from hawker.observe.metrics import build_metrics
from hawker.observe.spans import Span, SpanQueue, span_of, trace_of
from hawker.store.memory_store import MemoryStore
from hawker.worker.telemetry import ERROR_CHARS, Telemetry, Traces
from tests.fsm.serving import Held, accept, carry_out, failing, flow, serving, step
from tests.observe.spans import span_metrics

ULID = "01ARZ3NDEKTSV4RRFFQ69G5F"


def run(number: int, flow: str = "create", **fields: object) -> Run:
    whole = Run(
        id=RunId(f"{ULID}{number:02}"),
        flow=flow,
        definition="",
        resource=Resource(kind="machine", id="148e21ea7d1289"),
        input=b"",
        state=State.DONE,
        step="launch",
        accepted_at=100.0,
        ended_at=107.5,
    )
    return replace(whole, **fields)


def record(outcome: StepStatus = StepStatus.DONE, **fields: object) -> StepRecord:
    return replace(StepRecord(step="image", attempt=2, outcome=outcome, started_at=101.0, ended_at=103.0), **fields)


class Kept:
    """An exporter that keeps the spans themselves."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def export(self, spans: Sequence[Span]) -> str | None:
        self.spans += spans
        return None

    def close(self) -> None:
        """Nothing to close."""


class Told:
    """Traces, and what was sent of them once all is told."""

    def __init__(self) -> None:
        self._kept = Kept()
        self._spool = SpanQueue(self._kept, span_metrics())
        self.traces = Traces(self._spool)

    def spans(self) -> list[Span]:
        self._spool.close(10)
        return self._kept.spans


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_run_is_a_span_with_its_attempts_below(told: Told) -> None:
    create = run(1, resumes=1)
    told.traces.begin(create)
    told.traces.attempt(create, record())
    told.traces.end(create)
    attempt, whole = told.spans()
    assert (attempt.name, attempt.parent, attempt.trace) == ("create.image", whole.id, whole.trace)
    assert (whole.name, whole.parent, whole.trace, whole.id) == (
        "create",
        None,
        trace_of(create.id),
        span_of(create.id),
    )
    assert (whole.started_at, whole.ended_at, attempt.started_at, attempt.ended_at) == (100.0, 107.5, 101.0, 103.0)
    about = {
        "hawker.run": create.id,
        "hawker.flow": "create",
        "hawker.resource.kind": "machine",
        "hawker.resource.id": "148e21ea7d1289",
    }
    assert whole.attributes == {**about, "hawker.resumes": 1, "hawker.outcome": "done"}
    assert attempt.attributes == {
        **about,
        "hawker.step": "image",
        "hawker.attempt": 2,
        "hawker.outcome": "done",
    }


def test_a_child_of_a_child_is_in_the_first_ones_trace(told: Told) -> None:
    first, second = run(1), run(2, "pull", parent=RunId(f"{ULID}01"))
    third = run(3, "fetch", parent=second.id)
    for each in (first, second, third):
        told.traces.begin(each)
    told.traces.attempt(third, record())
    for each in (third, second, first):
        told.traces.end(each)
    assert {span.trace for span in told.spans()} == {trace_of(first.id)}
    assert [span.parent for span in told.spans()] == [span_of(third.id), span_of(second.id), span_of(first.id), None]


def test_an_heir_is_in_the_trace_of_what_it_was_handed_by(told: Told) -> None:
    create = run(1)
    start = run(2, "start", handed_from=create.id)
    told.traces.begin(create)
    told.traces.begin(start)
    told.traces.end(create)
    told.traces.end(start)
    assert [(span.trace, span.parent) for span in told.spans()] == [
        (trace_of(create.id), None),
        (trace_of(create.id), span_of(create.id)),
    ]


def test_a_new_daemon_goes_on_with_the_same_trace(told: Told) -> None:
    parent, child = run(1), run(2, "pull", parent=RunId(f"{ULID}01"))
    told.traces.begin(parent)
    told.traces.begin(child)
    told.traces.end(child)
    later = Told()
    later.traces.begin(parent)
    later.traces.begin(child)
    later.traces.end(child)
    assert told.spans() == later.spans()


@pytest.mark.parametrize("outcome", [StepStatus.RETRY, StepStatus.FAILED, StepStatus.UNDO_FAILED])
def test_an_attempt_that_failed_says_why(told: Told, outcome: StepStatus) -> None:
    told.traces.attempt(run(1), record(outcome, fault=fault_of("no such image")))
    [span] = told.spans()
    assert (span.error, span.attributes["hawker.outcome"]) == ("no such image", outcome.value)


def test_a_run_that_failed_says_why_in_text_that_can_be_sent(told: Told) -> None:
    fault = fault_of("bad \udcff name " + "x" * 5000)
    told.traces.end(run(1, state=State.FAILED, ending=Ending.FAILED, fault=fault))
    [span] = told.spans()
    assert span.error is not None and span.error.startswith("bad ? name") and len(span.error) == ERROR_CHARS


def test_nothing_is_remembered_of_runs_that_have_ended(told: Told) -> None:
    for number in range(20):
        told.traces.begin(run(number))
        told.traces.end(run(number))
    assert told.traces._open == {}


pytestmark = pytest.mark.anyio


async def test_runs_and_attempts_are_counted_by_flow_step_and_outcome() -> None:
    metrics, store = build_metrics("test"), MemoryStore()
    make = flow("make", step("copy"), Step("try", failing(Retry("not yet", 0.0))))
    broken = flow("broken", Step("fail", failing(*[ValueError("no")] * 9)))
    async with serving(store, make, broken, observer=Telemetry(metrics.runs)) as runner:
        await carry_out(store, runner, "make")
        await carry_out(store, runner, "broken")
    value: Callable[..., float | None] = metrics.registry.get_sample_value
    assert value("hawker_runs_accepted_total", {"flow": "make"}) == 1
    assert value("hawker_runs_ended_total", {"flow": "make", "outcome": "done"}) == 1
    assert value("hawker_runs_ended_total", {"flow": "broken", "outcome": "failed"}) == 1
    tries = {"flow": "make", "step": "try"}
    assert value("hawker_step_attempts_total", {**tries, "outcome": "retry"}) == 1
    assert value("hawker_step_attempts_total", {**tries, "outcome": "done"}) == 1
    assert value("hawker_step_duration_seconds_count", tries) == 2
    assert value("hawker_run_duration_seconds_count", {"flow": "make"}) == 1


async def test_a_machine_a_new_daemon_takes_up_is_counted() -> None:
    metrics, store, held = build_metrics("test"), MemoryStore(), Held()
    make = flow("make", Step("hold", held))
    async with serving(store, make) as runner:
        await accept(store, runner, "make")
        await held.reached.wait()
    async with serving(store, make, observer=Telemetry(metrics.runs)):
        assert metrics.registry.get_sample_value("hawker_runs_resumed_total", {"flow": "make"}) == 1


def test_a_clock_that_was_set_back_makes_no_time_negative() -> None:
    metrics = build_metrics("test")
    telemetry = Telemetry(metrics.runs)
    telemetry.attempted(run(1), record(started_at=9.0, ended_at=2.0))
    telemetry.ended(run(1, accepted_at=9.0, ended_at=2.0))
    assert metrics.registry.get_sample_value("hawker_run_duration_seconds_sum", {"flow": "create"}) == 0
    labels = {"flow": "create", "step": "image"}
    assert metrics.registry.get_sample_value("hawker_step_duration_seconds_sum", labels) == 0


def test_spans_are_made_where_they_are_sent_somewhere() -> None:
    told = Told()
    telemetry = Telemetry(build_metrics("test").runs, told.traces)
    telemetry.resumed(run(1))
    telemetry.accepted(run(2))
    telemetry.attempted(run(2), record())
    telemetry.ended(run(2))
    assert [span.name for span in told.spans()] == ["create.image", "create"]
