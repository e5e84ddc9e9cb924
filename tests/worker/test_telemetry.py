"""What the engine tells, as numbers; with a real engine below."""

from collections.abc import Callable

import pytest

from hawker.fsm.contract import Retry, Step
from hawker.observe.metrics import build_metrics
from hawker.store.memory_store import MemoryStore
from hawker.worker.telemetry import Telemetry
from tests.fsm.serving import Held, accept, carry_out, failing, flow, serving, step
from tests.worker.test_traces import Told, record, run

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


async def test_what_a_new_daemon_takes_up_is_counted() -> None:
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
