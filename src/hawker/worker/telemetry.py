"""What the engine tells, as metrics and, where spans are sent anywhere, as traces. Keeps `fsm.observer.Observer`."""

from hawker.fsm.run import Run, StepRecord
from hawker.observe.metrics import RunMetrics
from hawker.worker.traces import Traces


class Telemetry:
    def __init__(self, metrics: RunMetrics, traces: Traces | None = None) -> None:
        self._metrics = metrics
        self._traces = traces

    def accepted(self, run: Run) -> None:
        self._metrics.accepted.labels(run.flow).inc()
        if self._traces is not None:
            self._traces.begin(run)

    def resumed(self, run: Run) -> None:
        self._metrics.resumed.labels(run.flow).inc()
        if self._traces is not None:
            self._traces.begin(run)

    def attempted(self, run: Run, record: StepRecord) -> None:
        self._metrics.attempts.labels(run.flow, record.step, record.outcome.value).inc()
        self._metrics.attempt_seconds.labels(run.flow, record.step).observe(
            _between(record.started_at, record.ended_at)
        )
        if self._traces is not None:
            self._traces.attempt(run, record)

    def ended(self, run: Run) -> None:
        self._metrics.ended.labels(run.flow, run.state.value).inc()
        self._metrics.seconds.labels(run.flow).observe(_between(run.accepted_at, run.ended_at or run.accepted_at))
        if self._traces is not None:
            self._traces.end(run)


def _between(began: float, ended: float) -> float:
    """Records have the wall clock's time, which may have been set back meanwhile."""
    return max(0.0, ended - began)
