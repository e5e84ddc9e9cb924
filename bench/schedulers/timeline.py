"""Discrete events: what happens next happens at its moment, and nothing in between. Events of one moment come in the
order in which they were planned, so a run is the same every time.

A process is a generator that yields how many seconds it waits; `yield PARKED` waits until somebody resumes it.
"""

import heapq
from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

PARKED = None
Process = Generator[float | None, None, T]
"""Ends with a `T`."""


class Timeline:
    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []

    def call(self, delay_s: float, function: Callable[..., object], *arguments: object) -> None:
        """Call it so much later."""
        self.events += 1
        heapq.heappush(self._heap, (self.now + delay_s, self.events, function, arguments))

    def resume(self, process: Process[Any]) -> None:
        """Begin a process, or go on with one that is parked, now."""
        self.call(0.0, self._step, process)

    def _step(self, process: Process[Any]) -> None:
        for wait_s in process:
            if wait_s is not PARKED:
                self.call(wait_s, self._step, process)
            return

    def run(self, until: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, function, arguments = heapq.heappop(heap)
            function(*arguments)
        self.now = max(self.now, until)


class Desk:
    """One pair of hands: what comes while it is busy waits its turn."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._free_at = 0.0

    def wait_s(self) -> float:
        """Until it is free."""
        return max(0.0, self._free_at - self._timeline.now)

    def serve(self, work_s: float) -> float:
        """How long from now until this much work is done, after all that came before."""
        self._free_at = max(self._timeline.now, self._free_at) + work_s
        return self._free_at - self._timeline.now
