"""Spans: ids that a new daemon computes again, a bounded queue, an exporter that is loaded at need."""

import logging
import subprocess
import sys
from functools import partial

import pytest

from hawker.clock import ManualClock
from hawker.errors import CannotStart
from hawker.fsm.run import next_run_id
from hawker.ids import RunId, new_ulid
from hawker.observe.otlp import OtlpExporter
from hawker.observe.spans import BATCH_LIMIT, SpanQueue, load_exporter, span_of, span_of_attempt, trace_of
from tests.observe.spans import Collector, counted, span, span_metrics
from tests.waiting import wait_for

RUN = RunId("01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_a_trace_is_the_runs_ulid_as_a_number() -> None:
    assert f"{trace_of(RUN):032x}" == "01563e3ab5d3d6764c61efb99302bd5b"


def test_the_largest_ulid_fits_into_a_trace() -> None:
    assert trace_of(RunId("Z" * 26)) == (1 << 128) - 1


def test_no_run_has_the_span_that_means_none() -> None:
    assert span_of(RunId("0" * 26)) == 1


def test_runs_of_one_millisecond_have_spans_of_their_own() -> None:
    clock = ManualClock()
    ids = [RunId(new_ulid(clock))]
    for _ in range(100):
        ids.append(next_run_id(clock, ids[-1]))
    assert len({span_of(run_id) for run_id in ids}) == len(ids)


def test_an_attempt_has_the_same_span_whoever_computes_it_and_another_when_it_is_made_again() -> None:
    assert span_of_attempt(RUN, "copy", 1, 2.5) == span_of_attempt(RUN, "copy", 1, 2.5)
    others = {
        span_of_attempt(RUN, "copy", 1, 2.5),
        span_of_attempt(RUN, "copy", 1, 9.0),
        span_of_attempt(RUN, "copy", 2, 2.5),
        span_of_attempt(RUN, "move", 1, 2.5),
    }
    assert len(others) == 4 and all(0 < each < 1 << 64 for each in others)


CLOSE_S = 60.0


def test_spans_are_sent_in_order_and_counted() -> None:
    collector, metrics = Collector(), span_metrics()
    spool = SpanQueue(collector, metrics)
    names = [f"span {number}" for number in range(BATCH_LIMIT * 2 + 1)]
    for name in names:
        spool.put(partial(span, name))
    spool.close(CLOSE_S)
    assert collector.taken == names and collector.closed
    assert counted(metrics) == (len(names), 0)


def test_spans_that_come_soon_after_one_another_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hawker.observe.spans.PAUSE_S", CLOSE_S)  # the end cuts it short
    collector = Collector()
    spool = SpanQueue(collector, span_metrics())
    for _ in range(10):
        spool.put(span)
    spool.close(CLOSE_S)
    assert collector.batches == 1


def test_span_beyond_a_full_queue_is_dropped_at_once_and_counted() -> None:
    collector, metrics = Collector(), span_metrics()
    collector.gate.clear()
    spool = SpanQueue(collector, metrics, limit=3)
    spool.put(partial(span, "under way"))
    wait_for(collector.reached.is_set)
    for number in range(5):
        spool.put(partial(span, str(number)))
    assert counted(metrics) == (0, 2)
    collector.gate.set()
    spool.close(CLOSE_S)
    assert collector.taken == ["under way", "0", "1", "2"]
    assert counted(metrics) == (4, 2)


def test_batch_that_the_collector_refuses_is_dropped_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    collector, metrics = Collector(), span_metrics()
    collector.refuses = "connection refused"
    spool = SpanQueue(collector, metrics)
    for batch in (1, 2):
        spool.put(span)
        wait_for(lambda batch=batch: collector.batches == batch)  # type: ignore[misc]
    collector.refuses = None
    spool.put(span)
    with caplog.at_level(logging.INFO, "hawker.observe"):
        spool.close(CLOSE_S)
    assert counted(metrics) == (1, 2)
    assert [record.message for record in caplog.records] == ["spans cannot be sent", "spans are taken again"]


def test_a_collector_that_hangs_does_not_hold_up_the_end() -> None:
    collector = Collector()
    collector.gate.clear()
    spool = SpanQueue(collector, span_metrics())
    spool.put(span)
    wait_for(collector.reached.is_set)
    spool.close(0.01)
    assert collector.closed


def test_the_end_of_an_idle_spool_is_at_once() -> None:
    spool = SpanQueue(Collector(), span_metrics())
    spool.close(CLOSE_S)
    assert not spool._thread.is_alive()


def test_the_exporter_is_opentelemetrys() -> None:
    assert load_exporter() is OtlpExporter


def test_without_the_extra_the_daemon_says_what_to_install() -> None:
    with pytest.raises(CannotStart, match=r"hawker\.observe\.absent is not installed: install hawker\[otel\]"):
        load_exporter("hawker.observe.absent")


def test_a_node_without_an_endpoint_does_not_pay_for_it() -> None:
    code = "import sys, hawker.up; print(sorted(name for name in sys.modules if name.startswith('opentelemetry')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == "[]"
