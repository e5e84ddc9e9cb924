"""When a container's check passes: so many good answers in a row, or so many bad ones, turn it. Pure."""

from dataclasses import dataclass

from hawker.config.effective_containers import Healthcheck


@dataclass(frozen=True, slots=True)
class Tally:
    """What the answers so far come to. `passing` is None until there were enough of one kind."""

    passing: bool | None = None
    good: int = 0
    bad: int = 0

    def counted(self, check: Healthcheck, good: bool) -> "Tally":
        """With one more answer."""
        if good:
            enough = self.good + 1 >= check.successes
            return Tally(True if enough else self.passing, good=min(self.good + 1, check.successes))
        enough = self.bad + 1 >= check.failures
        return Tally(False if enough else self.passing, bad=min(self.bad + 1, check.failures))

    @property
    def status(self) -> str:
        """As the API has it."""
        return {None: "warning", True: "passing", False: "critical"}[self.passing]
