"""What the engine tells, as metrics and, where spans are sent anywhere, as traces. Keeps `fsm.observer.Observer`."""

from functools import partial

from prometheus_client import Counter, Histogram

from hawker.fsm.run import Run, State, StepRecord, StepStatus
from hawker.ids import RunId
from hawker.observe.metrics import RunMetrics
from hawker.observe.spans import Attribute, Span, SpanQueue, span_of, span_of_attempt, trace_of

ERROR_CHARS = 1000
_GOOD = frozenset({StepStatus.DONE, StepStatus.HANDED_OFF, StepStatus.UNDONE})


class Traces:
    def __init__(self, spool: SpanQueue) -> None:
        self._spool = spool
        self._open: dict[RunId, int] = {}

    def begin(self, run: Run) -> None:
        """Parents come first, and a run that hands off ends after its heir has begun."""
        before = run.parent or run.handed_from
        self._open[run.id] = trace_of(run.id) if before is None else self._trace(before)

    def attempt(self, run: Run, record: StepRecord) -> None:
        self._spool.put(partial(_of_attempt, self._trace(run.id), run, record))

    def end(self, run: Run) -> None:
        self._spool.put(partial(_of_run, self._trace(run.id), run))
        self._open.pop(run.id, None)

    def _trace(self, run_id: RunId) -> int:
        """Of a run that has ended: its own, which is right for all but a child of a child."""
        return self._open.get(run_id) or trace_of(run_id)


def _of_run(trace: int, run: Run) -> Span:
    before = run.parent or run.handed_from
    return Span(
        trace=trace,
        id=span_of(run.id),
        parent=None if before is None else span_of(before),
        name=run.flow,
        started_at=run.accepted_at,
        ended_at=run.accepted_at if run.ended_at is None else run.ended_at,
        attributes={**_about(run), "hawker.resumes": run.resumes, "hawker.outcome": run.state.value},
        error=None if run.state is State.DONE else _text("" if run.fault is None else run.fault.text),
    )


def _of_attempt(trace: int, run: Run, record: StepRecord) -> Span:
    return Span(
        trace=trace,
        id=span_of_attempt(run.id, record.step, record.attempt, record.started_at),
        parent=span_of(run.id),
        name=f"{run.flow}.{record.step}",
        started_at=record.started_at,
        ended_at=record.ended_at,
        attributes={
            **_about(run),
            "hawker.step": record.step,
            "hawker.attempt": record.attempt,
            "hawker.outcome": record.outcome.value,
        },
        error=None if record.outcome in _GOOD else _text("" if record.fault is None else record.fault.text),
    )


def _about(run: Run) -> dict[str, Attribute]:
    where = {"hawker.resource.kind": run.resource.kind, "hawker.resource.id": run.resource.id}
    return {"hawker.run": run.id, "hawker.flow": run.flow, **where}


def _text(error: str) -> str:
    """What protobuf takes, and not more than a reader does."""
    return error[:ERROR_CHARS].encode(errors="replace").decode()


# Runs and attempts of steps as spans, each sent when it has ended. A child's are in its parent's trace. Which trace
# an open run is in is remembered here; a new daemon learns it again from the runs that it takes up. Spans are made
# by the thread that sends them, so that one that is dropped costs the engine next to nothing.

_Key = tuple[str, str, StepStatus]


class Telemetry:
    """The series of each kind of attempt is looked up once: a busy engine makes thousands a second."""

    def __init__(self, metrics: RunMetrics, traces: Traces | None = None) -> None:
        self._metrics = metrics
        self._traces = traces
        self._attempts: dict[_Key, tuple[Counter, Histogram]] = {}

    def accepted(self, run: Run) -> None:
        self._metrics.accepted.labels(run.flow).inc()
        if self._traces is not None:
            self._traces.begin(run)

    def resumed(self, run: Run) -> None:
        self._metrics.resumed.labels(run.flow).inc()
        if self._traces is not None:
            self._traces.begin(run)

    def attempted(self, run: Run, record: StepRecord) -> None:
        key = (run.flow, record.step, record.outcome)
        count, seconds = self._attempts.get(key) or self._series(key)
        count.inc()
        seconds.observe(_between(record.started_at, record.ended_at))
        if self._traces is not None:
            self._traces.attempt(run, record)

    def ended(self, run: Run) -> None:
        self._metrics.ended.labels(run.flow, run.state.value).inc()
        self._metrics.seconds.labels(run.flow).observe(_between(run.accepted_at, run.ended_at or run.accepted_at))
        if self._traces is not None:
            self._traces.end(run)

    def _series(self, key: _Key) -> tuple[Counter, Histogram]:
        flow, step, outcome = key
        count = self._metrics.attempts.labels(flow, step, outcome.value)
        found = self._attempts[key] = count, self._metrics.attempt_seconds.labels(flow, step)
        return found


def _between(began: float, ended: float) -> float:
    """Records have the wall clock's time, which may have been set back meanwhile."""
    return max(0.0, ended - began)
