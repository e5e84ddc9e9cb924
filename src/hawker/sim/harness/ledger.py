"""What is said and found in a run. Each simulator adds what its clients were told."""

from collections.abc import Callable, Iterable

from hawker.clock import Clock
from hawker.proof.violation import Violation
from hawker.sim.harness.trace import Speaker, Trace


class RunLedger:
    """`operations` are the calls that were answered, refusals included. `alarm` is called when something was found."""

    def __init__(self, clock: Clock, trace: Trace, alarm: Callable[[], None] = lambda: None) -> None:
        self.found: list[Violation] = []
        self.operations = 0
        self._clock, self._trace, self._alarm = clock, trace, alarm

    def say(self, kind: Speaker, text: str) -> None:
        self._trace.add(self._clock.monotonic(), kind, text)

    def find(self, violations: Iterable[Violation]) -> None:
        for violation in violations:
            if violation not in self.found:
                self.found.append(violation)
                self.say(Speaker.FOUND, str(violation))
        if self.found:
            self._alarm()
