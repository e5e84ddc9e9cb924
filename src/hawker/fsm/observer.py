"""Who watches the engine at work: metrics and spans, behind a protocol, so that the engine knows neither."""

from typing import Protocol

from hawker.fsm.run import Run, StepRecord


class Observer(Protocol):
    """Told in the event loop's thread, once it is committed. Must be quick and must not raise."""

    def accepted(self, run: Run) -> None:
        """A new run; also one that another was handed off to."""

    def resumed(self, run: Run) -> None:
        """A run of an earlier daemon goes on under this one; parents come before their children."""

    def attempted(self, run: Run, record: StepRecord) -> None:
        """One attempt of a step, or of its undo, came to its end; `run` is the run before that."""

    def ended(self, run: Run) -> None: ...


class Silent:
    """Keeps `Observer`, and nothing else."""

    def accepted(self, run: Run) -> None:
        pass

    def resumed(self, run: Run) -> None:
        pass

    def attempted(self, run: Run, record: StepRecord) -> None:
        pass

    def ended(self, run: Run) -> None:
        pass
