"""Spans on their way out: bounded, counted, and never in anybody's way."""

import logging
from functools import partial

import pytest

from hawker.observe.span_queue import BATCH_LIMIT, SpanQueue
from tests.observe.spans import Collector, counted, span, span_metrics
from tests.waiting import wait_for

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
    monkeypatch.setattr("hawker.observe.span_queue.PAUSE_S", CLOSE_S)  # the end cuts it short
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
