"""Spans, on their way from a run to a collector: the value, a queue of bounded length with one thread that sends, and
what loads the exporter by name when an endpoint is set. How bytes are sent is `otlp`'s business.

Ids are computed from the ids of runs, so that a daemon that takes a run up again goes on with the same trace.
Invariant: `put` never waits and never raises. A collector that is away or slow, or more spans than may be sent, costs
spans, which are counted, and nothing else; a stop waits for it no longer than it is told to. OpenTelemetry's
BatchSpanProcessor does not hold this: its caller makes the whole span and logs each one that is dropped, its rate has
no bound (a full batch wakes it at once), and the SDK is an extra that takes 200 ms to load.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from importlib import import_module
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Protocol

from hawker import log
from hawker.errors import CannotStart
from hawker.ids import RunId
from hawker.observe.metrics import SpanMetrics
from hawker.value_object import ValueObject

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_SPAN_BITS = (1 << 64) - 1

Attribute = str | int


class Span(ValueObject, frozen=True, kw_only=True):
    """Times are Unix seconds. `error` is what went wrong, if anything."""

    trace: int
    """The id of the trace, 128 bits, from the id of the first run of its tree."""
    id: int
    """The id of the span, 64 bits, never 0."""
    parent: int | None
    """The id of the span that it is part of; None for the first one of a trace."""
    name: str
    """The name of the span: `FLOW` of a run, `FLOW.STEP` of an attempt at a step."""
    started_at: float
    ended_at: float
    attributes: Mapping[str, Attribute]
    error: str | None = None


class SpanOrigin(ValueObject, frozen=True, kw_only=True):
    """The node that spans come from."""

    node: str
    """The id of the node."""
    region: str
    """The region of the node."""
    version: str
    """The version of hawker."""


def trace_of(run_id: RunId) -> int:
    """The trace that begins with a run: its ULID as a number of 128 bits (26 digits of 5 bits hold two more)."""
    value = 0
    for digit in run_id:
        value = value << 5 | _CROCKFORD.index(digit)
    return value & (1 << 128) - 1


def span_of(run_id: RunId) -> int:
    """The span of a run: the last 64 of its random bits; of another run in the same millisecond they differ too."""
    return trace_of(run_id) & _SPAN_BITS or 1


def span_of_attempt(run_id: RunId, step: str, attempt: int, started_at: float) -> int:
    """An attempt that is made again after a crash is a span of its own."""
    text = f"{run_id} {step} {attempt} {started_at!r}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") or 1


QUEUE_LIMIT = 8192  # spans that wait; what comes beyond is dropped
BATCH_LIMIT = 512  # spans in one request
PAUSE_S = 0.25  # before each batch, for spans to gather; so no more than 2,048 a second, a tenth of a cpu, are sent

_log = log.bind("hawker.observe")


MakeSpan = Callable[[], Span]


class SpanExporter(Protocol):
    """Called from one thread only."""

    def export(self, spans: Sequence[Span]) -> str | None:
        """Send them, in a bounded time; why it could not be done, if it could not."""

    def close(self) -> None:
        """End an `export` that is under way in another thread soon."""


class SpanQueue:
    """Its thread begins at once. `limit` is how many spans may wait."""

    def __init__(self, exporter: SpanExporter, metrics: SpanMetrics, limit: int = QUEUE_LIMIT) -> None:
        self._exporter = exporter
        self._metrics = metrics
        self._queue: Queue[MakeSpan | None] = Queue(limit)
        self._closing = Event()
        self._failing = False
        self._thread = Thread(target=self._run, name="hawker-spans", daemon=True)
        self._thread.start()

    def put(self, make: MakeSpan) -> None:
        """`make` is called in the queue's thread, if at all; it must not raise. A full queue drops it, counted."""
        try:
            self._queue.put_nowait(make)
        except Full:
            self._metrics.dropped.inc()

    def close(self, timeout_s: float) -> None:
        """Send what waits, for so long and no longer; blocks."""
        self._closing.set()
        with suppress(Full):  # the thread is at work then, and looks by itself
            self._queue.put_nowait(None)
        self._thread.join(timeout_s)
        self._exporter.close()

    def _run(self) -> None:
        while not (self._closing.is_set() and self._queue.empty()):
            batch = self._gather()
            if batch:
                self._send(batch)

    def _gather(self) -> list[Span]:
        """The next span, with those that come soon after it."""
        found = [self._queue.get()]
        self._closing.wait(PAUSE_S)
        with suppress(Empty):
            while len(found) < BATCH_LIMIT:
                found.append(self._queue.get_nowait())
        return [make() for make in found if make is not None]

    def _send(self, batch: list[Span]) -> None:
        reason = self._exporter.export(batch)
        (self._metrics.sent if reason is None else self._metrics.dropped).inc(len(batch))
        if reason is not None and not self._failing:
            _log.warning("spans cannot be sent", extra={"reason": reason})
        elif reason is None and self._failing:
            _log.info("spans are taken again")
        self._failing = reason is not None


MakeExporter = Callable[[str, SpanOrigin], SpanExporter]

_MODULE = "hawker.observe.otlp"


def load_exporter(module: str = _MODULE) -> MakeExporter:
    """The function that makes an exporter to an OTLP endpoint. Raises `CannotStart` when the extra is not installed."""
    try:
        made: MakeExporter = import_module(module).OtlpExporter
    except ModuleNotFoundError as error:
        text = f"otel_endpoint is set and {error.name} is not installed: install hawker[otel], or unset it"
        raise CannotStart(text) from error
    return made
