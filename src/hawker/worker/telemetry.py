"""What the engine tells, as metrics and, where spans are sent anywhere, as traces. Keeps `fsm.observer.Observer`."""

from prometheus_client import Counter, Histogram

from hawker.fsm.run import Run, StepRecord, StepStatus
from hawker.observe.metrics import RunMetrics
from hawker.worker.traces import Traces

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
