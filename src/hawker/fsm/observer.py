"""Who watches the engine at work: metrics and spans, behind a protocol that alone the engine knows; its log lines."""

import logging
from typing import Protocol

from hawker.fsm.run import Run, StepRecord


class Observer(Protocol):
    """Told in the event loop's thread, once it is committed. Must be quick and must not raise."""

    def accepted(self, run: Run) -> None:
        """A new run; also one that another was handed off to."""

    def resumed(self, run: Run) -> None:
        """A run of an earlier daemon goes on under this one; parents come before their children."""

    def attempted(self, run: Run, record: StepRecord) -> None:
        """Notes that one attempt of a step, or of its undo, came to its end; `run` is the run before that."""

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


class RunLog:
    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def say(self, run: Run, level: int, phrase: str, raised: BaseException | None = None, **fields: object) -> None:
        """Logs one line about `run`; `raised` adds its traceback, `fields` go with the ids and win over them."""
        if self._logger.isEnabledFor(level):
            where = {"resource_kind": run.resource.kind, "resource_id": run.resource.id}
            ids = {"run": run.id, "flow": run.flow, "step": run.step, **where}
            self._logger.log(level, phrase, exc_info=raised, extra={**ids, **fields})
