"""What a soak counts: calls by kind and outcome with how long they took, faults, recoveries, findings."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hawker.errors import DeadlineExceeded, Fault, HawkerError, Unavailable


class CallVerdict(StrEnum):
    """How a call ended, as its client saw it."""

    OK = "ok"
    REFUSED = "refused"  # typed: the machine is in another state, is held by a lease, there is no room
    UNAVAILABLE = "unavailable"  # nothing was changed; the node is away or cannot write
    LOST = "lost"  # the connection went, or no answer came: it may have happened
    INTERNAL = "internal"  # the node met an error that it has no word for


_LOST_TEXTS = ("the connection to http", "no answer from http")
"""How the client, and not the node, says what went wrong."""


def outcome_of(error: HawkerError) -> CallVerdict:
    own = any(text in str(error) for text in _LOST_TEXTS)
    match error:
        case Unavailable():
            return CallVerdict.UNAVAILABLE
        case Fault() | DeadlineExceeded() if own:
            return CallVerdict.LOST
        case Fault():
            return CallVerdict.INTERNAL
        case _:
            return CallVerdict.REFUSED


@dataclass(frozen=True, slots=True)
class SoakFinding:
    """Something that must not be. `at_s` since the soak began; `log` the end of the daemon's log then."""

    at_s: float
    what: str
    log: str = ""


@dataclass(frozen=True, slots=True)
class SoakTally:
    """`gaps_s`: how long each time the node did not answer; `rests_s`: how long it took to come to rest, after which it
    was compared with its promises."""

    calls: defaultdict[str, Counter[CallVerdict]] = field(default_factory=lambda: defaultdict(Counter))
    latencies_ms: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    faults: Counter[str] = field(default_factory=Counter)
    boots_ms: list[float] = field(default_factory=list)
    recoveries_ms: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    findings: list[SoakFinding] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    rests_s: list[float] = field(default_factory=list)

    def called(self, operation: str, outcome: CallVerdict, seconds: float) -> None:
        self.calls[operation][outcome] += 1
        if outcome is CallVerdict.OK:
            self.latencies_ms[operation].append(seconds * 1000)


def quantile(values: Sequence[float], share: float) -> float:
    """The nearest-rank quantile; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
