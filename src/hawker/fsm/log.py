"""The engine's log lines: each carries run, flow, step, resource kind and resource id."""

import logging

from hawker.fsm.run import Run


class RunLog:
    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def say(self, run: Run, level: int, phrase: str, raised: BaseException | None = None, **fields: object) -> None:
        """One line about `run`; `raised` adds its traceback, `fields` go with the ids and win over them."""
        if self._logger.isEnabledFor(level):
            where = {"resource_kind": run.resource.kind, "resource_id": run.resource.id}
            ids = {"run": run.id, "flow": run.flow, "step": run.step, **where}
            self._logger.log(level, phrase, exc_info=raised, extra={**ids, **fields})
