"""Spans and exporters for tests."""

import threading
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from hawker.observe.metrics import Families, SpanMetrics
from hawker.observe.spans import Span


def span(name: str = "create", *, error: str | None = None, parent: int | None = None) -> Span:
    return Span(
        trace=0x1563E3AB5D3D6764C61EFB99302BD5B,
        id=0x4C61EFB99302BD5B,
        parent=parent,
        name=name,
        started_at=1_700_000_000.25,
        ended_at=1_700_000_001.5,
        attributes={"hawker.flow": name, "hawker.attempt": 2},
        error=error,
    )


class Collector:
    """An exporter that keeps what it is given. `gate` holds it up; `refuses` is why it cannot send."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.batches = 0
        self.refuses: str | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        self.closed = False

    def export(self, spans: Sequence[Span]) -> str | None:
        self.reached.set()
        assert self.gate.wait(60)
        refuses = self.refuses
        if refuses is None:
            self.taken += [each.name for each in spans]
        self.batches += 1  # the last of it: whoever sees the batch may change what comes of the next one
        return refuses

    def close(self) -> None:
        self.closed = True
        self.gate.set()


def span_metrics() -> SpanMetrics:
    return SpanMetrics(Families(CollectorRegistry()))


def counted(metrics: SpanMetrics) -> tuple[int, int]:
    """Sent and dropped."""
    samples = [family.samples[0].value for counter in (metrics.sent, metrics.dropped) for family in counter.collect()]
    return int(samples[0]), int(samples[1])
