"""Everything that happened in a run, line by line, and its digest: two runs are the same if their digests are. The
ledger notes what was said and found; each simulator adds what its clients were told.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from hashlib import blake2b

from hawker.clock import Clock
from hawker.proof.violation import Violation
from hawker.value_object import ValueObject


class Speaker(StrEnum):
    """Who speaks. `COMMIT` and `STATE` are for the digest and for `--trace`; a story leaves them out."""

    CLIENT = "client"
    NATURE = "nature"
    DAEMON = "daemon"
    COMMIT = "commit"
    FOUND = "found"


class TraceLine(ValueObject, frozen=True):
    """`at` is in virtual seconds since the beginning."""

    at: float
    kind: Speaker
    text: str
    """What was done or seen, for people."""

    def __str__(self) -> str:
        minutes, seconds = divmod(self.at, 60)
        return f"{int(minutes):5d}:{seconds:09.6f}  {self.kind.value:7} {self.text}"


class Trace:
    """`keeps` false: the lines are only counted into the digest."""

    def __init__(self, keeps: bool = True) -> None:
        self.lines: list[TraceLine] = []
        self._keeps = keeps
        self._hash = blake2b(digest_size=8)

    def add(self, at: float, kind: Speaker, text: str) -> None:
        line = TraceLine(at, kind, text)
        self._hash.update(f"{line}\n".encode())
        if self._keeps or kind is not Speaker.COMMIT:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


MOST_FOUND = 20
"""Violations of one run that are kept."""


class RunLedger:
    """`operations` are the calls that were answered, refusals included. `alarm` is called when something was found."""

    def __init__(self, clock: Clock, trace: Trace, alarm: Callable[[], None] = lambda: None) -> None:
        self.found: list[Violation] = []
        self.operations = 0
        self.trace = trace
        self._clock, self._alarm = clock, alarm

    def say(self, kind: Speaker, text: str) -> None:
        self.trace.add(self._clock.monotonic(), kind, text)

    def find(self, violations: Iterable[Violation]) -> None:
        for violation in violations:
            if violation not in self.found and len(self.found) < MOST_FOUND:
                self.found.append(violation)
                self.say(Speaker.FOUND, str(violation))
        if self.found:
            self._alarm()


_WORDS_MAX = 160
