"""What a bystander saw of an attack, compared with what it sees alone. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hawker.chaos.hostile.bystander import Sighting
from hawker.chaos.tally import quantile

TIMES = 2.0
FLOOR_MS = 300.0
ORDER_FLOOR_MS = 1000.0
"""What an operation may take longer at the 99th percentile, however quick it is alone: a host with two cores has such
moments by itself. An order is three calls and some dozens of processes."""

_REMEMBERED = 400  # looks of each kind


class LatencyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Of one kind of operation of the bystander, in milliseconds."""

    operation: str
    """Which one it is."""
    count: int
    """How often it was done in the scene."""
    p50_ms: float
    """In the scene: half of them took no longer."""
    p99_ms: float
    """In the scene: of a hundred 99 took no longer."""
    alone_p50_ms: float
    """The same while nobody attacked."""
    alone_p99_ms: float
    """The same while nobody attacked."""

    @property
    def slow(self) -> bool:
        """Over twice what it takes alone, and by more than a host has by itself."""
        floor_ms = ORDER_FLOOR_MS if self.operation == "order" else FLOOR_MS
        return self.p99_ms > max(TIMES * self.alone_p99_ms, self.alone_p99_ms + floor_ms)

    @property
    def times(self) -> float:
        return self.p99_ms / max(1.0, self.alone_p99_ms)

    def __str__(self) -> str:
        return (
            f"{self.operation} took {self.p99_ms:.0f} ms at p99 and {self.p50_ms:.0f} ms at p50, "
            f"alone {self.alone_p99_ms:.0f} ms and {self.alone_p50_ms:.0f} ms"
        )


class HostileRow(msgspec.Struct, frozen=True, kw_only=True):
    """One scene. `worst` is the operation of the bystander that slowed down most in the last play; it was played more
    than once when something was slow."""

    scene: str
    """Its name."""
    by: str
    """Who attacks: a word of `From`."""
    shared: str
    """What the attack is after."""
    seconds: float
    """How long all plays of it took."""
    plays: int
    """1 or more."""
    worst: LatencyFigures | None
    findings: tuple[str, ...]
    """What must not be, for people; none is good."""


class HostileReport(msgspec.Struct, frozen=True, kw_only=True):
    """`findings` belong to no scene."""

    seconds: float
    """How long the trial took."""
    rows: tuple[HostileRow, ...]
    findings: tuple[str, ...]

    @property
    def found(self) -> int:
        return sum(len(row.findings) for row in self.rows) + len(self.findings)


class Alone:
    """What the bystander saw lately while nobody attacked, in seconds by kind of operation."""

    def __init__(self) -> None:
        self.taken_s: dict[str, list[float]] = defaultdict(list)

    def learn(self, looks: Iterable[Sighting]) -> None:
        for look in looks:
            if not look.wrong:
                self.taken_s[look.kind] = [*self.taken_s[look.kind], look.seconds][-_REMEMBERED:]


def during(looks: Iterable[Sighting], began: float, ended: float) -> list[Sighting]:
    """Those that were under way at some time between."""
    return [look for look in looks if look.began < ended and look.ended > began]


def figures(looks: Sequence[Sighting], alone: Mapping[str, Sequence[float]]) -> Iterator[LatencyFigures]:
    """Of each kind that was looked at, and is known from before."""
    for kind in sorted({look.kind for look in looks} & alone.keys()):
        taken = [look.seconds for look in looks if look.kind == kind]
        yield LatencyFigures(
            operation=kind,
            count=len(taken),
            p50_ms=_ms(taken, 0.5),
            p99_ms=_ms(taken, 0.99),
            alone_p50_ms=_ms(alone[kind], 0.5),
            alone_p99_ms=_ms(alone[kind], 0.99),
        )


def _ms(taken_s: Sequence[float], share: float) -> float:
    return round(quantile(taken_s, share) * 1000, 1)


def wrong(looks: Iterable[Sighting]) -> list[str]:
    """What went wrong, each text once, with how often."""
    counts: dict[str, int] = defaultdict(int)
    for look in looks:
        if look.wrong:
            counts[f"{look.kind}: {look.wrong}"] += 1
    return [text if count == 1 else f"{text} ({count} times)" for text, count in counts.items()]


class Strays:
    """What is left on the host, told by looks at it. The bystander orders and destroys machines all the while: what of
    them is seen between an order and its place in the list of machines is in one look alone."""

    def __init__(self) -> None:
        self._before: frozenset[str] | None = None

    def left(self, look: frozenset[str]) -> frozenset[str]:
        """What this look and the one before have both seen; after the first one, all of it."""
        before, self._before = self._before, look
        return look if before is None else look & before
