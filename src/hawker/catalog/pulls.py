"""What this replica knows to be missing, and whom it asks next: who told of it, then the owner, then anybody.

The first question waits for 20 ms and a round trip, since most holes are filled by a copy that is under way.
"""

from collections.abc import Callable, Iterable

from hawker.catalog.fan_out import ReplicaPeers, pick
from hawker.ids import NodeId

WAIT_S = 0.02
FIRST_TIMEOUT_S = 0.15
LAST_TIMEOUT_S = 2.0
ATTEMPTS = 10
SOURCES = 3


class Missing:
    """One stream that is behind. `sources` are those who have it, `bulky` when an answer is too long for a message."""

    __slots__ = ("asked", "attempts", "bulky", "due", "epoch", "origin", "sources", "version")

    def __init__(self, origin: NodeId, due: float) -> None:
        self.origin = origin
        self.epoch = 0
        self.version = 0
        self.due = due
        self.attempts = 0
        self.bulky = False
        self.sources: list[NodeId] = []
        self.asked: NodeId | None = None


class Pulls:
    """By origin. `due` is when to ask; infinitely late while a question over a stream is out."""

    def __init__(self) -> None:
        self._missing: dict[NodeId, Missing] = {}
        self._given_up: list[NodeId] = []

    def __len__(self) -> int:
        return len(self._missing)

    def __contains__(self, origin: NodeId) -> bool:
        return origin in self._missing

    def all(self) -> Iterable[Missing]:
        return self._missing.values()

    def want(self, origin: NodeId, epoch: int, version: int, source: NodeId, due: float) -> Missing:
        missing = self._missing.get(origin)
        if missing is None:
            missing = self._missing[origin] = Missing(origin, due)
        if (epoch, version) > (missing.epoch, missing.version):
            missing.epoch, missing.version = epoch, version
        if source not in missing.sources:
            missing.sources.insert(0, source)
            del missing.sources[SOURCES:]
        return missing

    def met(self, origin: NodeId, epoch: int, version: int) -> None:
        """The stream has come so far: forget what was wanted up to there, or ask on at once."""
        missing = self._missing.get(origin)
        if missing is not None and (epoch, version) >= (missing.epoch, missing.version):
            del self._missing[origin]

    def hurry(self, origin: NodeId, now: float) -> None:
        """Something of it came, and more is there."""
        missing = self._missing.get(origin)
        if missing is not None:
            missing.attempts = 0
            if missing.asked is not None:
                missing.sources = [missing.asked, *missing.sources[: SOURCES - 1]]
            missing.due = min(missing.due, now)

    def bulky(self, origin: NodeId, source: NodeId, now: float) -> None:
        """It is too long for a message; `source` has it."""
        missing = self._missing.get(origin)
        if missing is not None:
            missing.bulky = True
            missing.sources = [source, *missing.sources[: SOURCES - 1]]
            missing.due = min(missing.due, now)

    def later(self, due: float) -> None:
        """Nothing is asked before that."""
        for missing in self._missing.values():
            missing.due = max(missing.due, due)

    def given_up(self) -> list[NodeId]:
        """The streams that were dropped since the last call."""
        found, self._given_up = self._given_up, []
        return found

    def next_due(self) -> float:
        if not self._missing:
            return float("inf")
        return min((missing.due for missing in self._missing.values()), default=float("inf"))

    def take(self, now: float, peers: ReplicaPeers, random: Callable[[], float]) -> list[tuple[NodeId, Missing]]:
        """Whom to ask for what, now. What nobody could answer is dropped: anti-entropy will find it again."""
        questions: list[tuple[NodeId, Missing]] = []
        for missing in [each for each in self._missing.values() if each.due <= now]:
            whom = _whom(missing, peers, random)
            if whom is None or missing.attempts >= ATTEMPTS:
                del self._missing[missing.origin]
                self._given_up.append(missing.origin)
                continue
            missing.asked = whom
            missing.due = now + min(LAST_TIMEOUT_S, FIRST_TIMEOUT_S * 2**missing.attempts) + 4 * peers.rtt_s(whom)
            missing.attempts += 1
            questions.append((whom, missing))
        return questions


def _whom(missing: Missing, peers: ReplicaPeers, random: Callable[[], float]) -> NodeId | None:
    """A source that was not asked yet is taken out of the list; a bulky stream stays with who announced it."""
    while missing.sources:
        source = missing.sources.pop(0)
        if source in peers:
            return source
    if missing.attempts % 2 == 1 and missing.origin in peers:
        return missing.origin
    return next(iter(pick(peers.alive, 1, random)), None)
