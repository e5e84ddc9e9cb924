"""Inbound ordering of one scope: where each stream is, what waits to be applied, what the reorder buffer holds until a
hole is filled, what is missing, and whom to pull it from: who told of it, then the owner, then anybody. The storage
gets each origin's changes in order and without a hole.

A stream is where the storage has it (`vector`), or where it will be once all that was handed over is applied (`where`).
The first question waits for 20 ms and a round trip, since most holes are filled by a copy that is under way.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from hawker.catalog.anti_entropy import VersionVector
from hawker.catalog.change import Delta, Position, ReplicatedTx
from hawker.catalog.fan_out import ReplicaPeers, pick
from hawker.catalog.messages import Want, size_of
from hawker.ids import NodeId

WAIT_S = 0.02
FIRST_TIMEOUT_S = 0.15
LAST_TIMEOUT_S = 2.0
ATTEMPTS = 10
SOURCES = 3


class Missing:
    """One stream that is behind. `sources` are the nodes that have it, `bulky` when an answer is too long for a
    message."""

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
    """The streams that are behind, by origin. `due` is when to ask; infinitely late while a question over a stream is
    out."""

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
        """Notes that something of a stream came, and more is there."""
        missing = self._missing.get(origin)
        if missing is not None:
            missing.attempts = 0
            if missing.asked is not None:
                missing.sources = [missing.asked, *missing.sources[: SOURCES - 1]]
            missing.due = min(missing.due, now)

    def bulky(self, origin: NodeId, source: NodeId, now: float) -> None:
        """Notes that an answer is too long for a message; `source` has it."""
        missing = self._missing.get(origin)
        if missing is not None:
            missing.bulky = True
            missing.sources = [source, *missing.sources[: SOURCES - 1]]
            missing.due = min(missing.due, now)

    def later(self, due: float) -> None:
        """Puts all questions off: nothing is asked before `due`."""
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


TXS = 1024
BYTES = 4 << 20
TOTAL_BYTES = 64 << 20


# Transactions that came before those ahead of them: held until the hole is filled, within bounds. What does not fit
# goes, the furthest first; it is pulled again once the stream is there.


class ReorderBuffer:
    """The reorder buffers of a scope: for each origin, what is ahead of its stream in one epoch."""

    def __init__(self, *, txs: int = TXS, size: int = BYTES, total: int = TOTAL_BYTES) -> None:
        self._txs, self._size, self._total = txs, size, total
        self._held: dict[NodeId, dict[int, tuple[ReplicatedTx, int]]] = {}
        self._bytes: dict[NodeId, int] = {}
        self.bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def has(self, origin: NodeId, epoch: int, version: int) -> bool:
        held = self._held.get(origin, {}).get(version)
        return held is not None and held[0].epoch == epoch

    def epoch(self, origin: NodeId) -> int:
        """The epoch of what is held; -1 with nothing held."""
        return next((tx.epoch for tx, _ in self._held.get(origin, {}).values()), -1)

    def lowest(self, origin: NodeId) -> int | None:
        return min(self._held.get(origin, ()), default=None)

    def hold(self, tx: ReplicatedTx, size: int) -> bool:
        """Takes a transaction in, and says whether it did. A newer epoch drops what an older one left; an older one is
        refused."""
        epoch = self.epoch(tx.origin)
        if epoch > tx.epoch:
            return False
        if epoch not in (-1, tx.epoch):
            self.drop(tx.origin)
        held = self._held.setdefault(tx.origin, {})
        if tx.version in held:
            return False
        if self.bytes + size > self._total:
            self.dropped += 1
            return False
        held[tx.version] = (tx, size)
        self._count(tx.origin, size)
        while len(held) > self._txs or self._bytes[tx.origin] > self._size:
            self._forget(tx.origin, max(held))
            self.dropped += 1
        return tx.version in held

    def follow(self, origin: NodeId, epoch: int, version: int) -> Iterator[tuple[ReplicatedTx, int]]:
        """Take out what comes right after `version`, as far as it is whole. What is behind that goes too."""
        held = self._held.get(origin)
        if not held or self.epoch(origin) != epoch:
            return
        for stale in [number for number in held if number <= version]:
            self._forget(origin, stale)
        while (found := held.get(version + 1)) is not None:
            version += 1
            self._forget(origin, version)
            yield found

    def drop(self, origin: NodeId) -> None:
        for version in list(self._held.get(origin, ())):
            self._forget(origin, version)
        self._held.pop(origin, None)

    def _forget(self, origin: NodeId, version: int) -> None:
        _, size = self._held[origin].pop(version)
        self._count(origin, -size)

    def _count(self, origin: NodeId, size: int) -> None:
        self._bytes[origin] = self._bytes.get(origin, 0) + size
        self.bytes += size


MAX_READY = 20_000
MAX_ORIGINS = 10_000


class InFlight:
    """The part of a stream that was handed over and is not applied yet. `came_to` and `since` are of a reset whose last
    part is still to come; then `version` is -1, and `since` at least 0."""

    __slots__ = ("came_to", "epoch", "items", "since", "version")

    def __init__(self) -> None:
        self.epoch = 0
        self.version = 0
        self.items = 0
        self.came_to = -1
        self.since = -1


class Inbound:
    """`ready` is for the caller to apply, in its order; `fences` are known and not put up yet. While it is `stalled`,
    nothing can be applied, and there is no room for anything."""

    def __init__(
        self, me: NodeId, positions: Mapping[NodeId, Position], vector: type[VersionVector] = VersionVector
    ) -> None:
        self._me = me
        self.vector = vector(positions)
        self.reorder_buffer = ReorderBuffer()
        self.pulls = Pulls()
        self.ready: deque[ReplicatedTx | Delta] = deque()
        self.fences: dict[NodeId, int] = {}
        self.stalled = False
        self._ahead: dict[NodeId, InFlight] = {}

    @property
    def full(self) -> bool:
        return self.stalled or len(self.ready) >= MAX_READY

    def where(self, origin: NodeId) -> tuple[int, int]:
        """The epoch and version of the stream of `origin`, what was handed over counted."""
        ahead = self._ahead.get(origin)
        if ahead is not None:
            return ahead.epoch, ahead.version
        position = self.vector.get(origin)
        return position.epoch, position.applied

    def fence(self, origin: NodeId) -> int:
        """Up to which epoch it is ignored, as far as is known; -1 for never forgotten."""
        return max(self.vector.get(origin).fence, self.fences.get(origin, -1))

    def _counts(self, origin: NodeId, epoch: int) -> bool:
        return epoch > self.fence(origin)

    def lacks(self, origin: NodeId, epoch: int, version: int) -> bool:
        """Whether somebody who is there has more, and there is room for it."""
        return (
            version >= 0 and self._counts(origin, epoch) and (epoch, version) > self.where(origin) and self.room(origin)
        )

    def room(self, origin: NodeId) -> bool:
        """Bounds: of what waits to be applied, and of how many origins anybody can make up."""
        known = self.vector.get(origin) != Position() or origin in self.pulls
        return not self.full and (known or len(self.vector) + len(self.pulls) < MAX_ORIGINS)

    def gaps(self) -> int:
        """Versions that are known to be missing."""
        count = 0
        for missing in self.pulls.all():
            epoch, version = self.where(missing.origin)
            count += max(1, missing.version - max(0, version) if missing.epoch == epoch else missing.version)
        return count

    def want(self, missing: Missing) -> Want:
        """The question for a missing stream: from where it is here, or on with the reset that is under way."""
        epoch, version = self.where(missing.origin)
        ahead = self._ahead.get(missing.origin)
        if ahead is not None and ahead.version < 0 and ahead.since >= 0:
            return Want(origin=missing.origin, epoch=epoch, after=ahead.came_to, since=ahead.since)
        return Want(origin=missing.origin, epoch=epoch, after=version)

    def is_news(self, origin: NodeId, epoch: int, version: int) -> bool:
        """Whether `take_tx` would have a transaction."""
        where = self.where(origin)
        if not (self._is_new(epoch, version, *where) and self._counts(origin, epoch) and self.room(origin)):
            return False
        return self._is_next(epoch, version, *where) or not self.reorder_buffer.has(origin, epoch, version)

    def take_tx(self, tx: ReplicatedTx, sender: NodeId, soon: float) -> bool:
        """Take a transaction; True when it is news. One that comes too early is held in the reorder buffer, and what is
        before it is pulled from `soon` on (monotonic seconds): mostly it is under way already."""
        if not self.is_news(tx.origin, tx.epoch, tx.version):
            return False
        epoch, version = self.where(tx.origin)
        if self._is_next(tx.epoch, tx.version, epoch, version):
            self._hand_over(tx, tx.epoch, tx.version)
            self.follow(tx.origin)
            return True
        target = tx.version if version < 0 else tx.version - 1
        self.pulls.want(tx.origin, tx.epoch, target, sender, soon)
        return self.reorder_buffer.hold(tx, size_of(tx))

    def take_delta(self, delta: Delta, now: float) -> None:
        """Take a delta if it fits where its stream is; else it is dropped, and pulled again when it is missing."""
        origin = delta.origin
        if not (self._counts(origin, delta.epoch) and self.room(origin) and self._fits(delta)):
            return
        unfinished = delta.reset and not delta.last
        ahead = self._hand_over(delta, delta.epoch, -1 if unfinished else delta.upto)
        if unfinished:
            ahead.came_to = delta.upto
            ahead.since = delta.head if delta.after < 0 else ahead.since
        else:
            ahead.since = -1
            self.follow(origin)
        self.pulls.hurry(origin, now)

    def follow(self, origin: NodeId) -> None:
        """Hand over what the reorder buffer holds and now comes next, and drop what can no longer come."""
        epoch, version = self.where(origin)
        if version < 0:
            return
        held = self.reorder_buffer.epoch(origin)
        if (epoch, version) == (0, 0):
            epoch = held
        if held < epoch or not self._counts(origin, held):
            self.reorder_buffer.drop(origin)
        else:
            for tx, _ in self.reorder_buffer.follow(origin, epoch, version):
                self._hand_over(tx, tx.epoch, tx.version)
        self.pulls.met(origin, *self.where(origin))

    def applied(self, origins: Iterable[NodeId]) -> None:
        """An item of each is done with, whether it went in or was passed over; `moved` tells which."""
        for origin in origins:
            ahead = self._ahead.get(origin)
            if ahead is not None:
                ahead.items -= 1
                if ahead.items <= 0 and not (ahead.version < 0 and ahead.since >= 0):
                    del self._ahead[origin]

    def moved(self, origin: NodeId, position: Position) -> bool:
        """The storage has a stream elsewhere, after a batch, a fence or a renewal. Whether it is further."""
        before = self.vector.get(origin)
        self.vector.set(origin, position)
        ahead = self._ahead.get(origin)
        if ahead is not None and ahead.items <= 0 and (ahead.epoch, -1) != (position.epoch, position.applied):
            del self._ahead[origin]
        if (position.epoch, position.applied) == (before.epoch, before.applied):
            return False
        self.follow(origin)
        return position.applied >= 0

    def fenced(self, origin: NodeId, epoch: int) -> None:
        """The storage has put up a fence."""
        if self.fences.get(origin, epoch + 1) <= epoch:
            del self.fences[origin]

    def _is_new(self, new_epoch: int, new_version: int, epoch: int, version: int) -> bool:
        return new_epoch > epoch or (new_epoch == epoch and new_version > version)

    def _is_next(self, new_epoch: int, new_version: int, epoch: int, version: int) -> bool:
        same = new_epoch == epoch or (epoch, version) == (0, 0)
        # A stream never heard of (0, 0) may begin in any epoch, with version 1. In any other case a new epoch begins by
        # a reset: a transaction of it, even its first, would leave rows of the old epoch that the owner no longer has.
        # A stream in the middle of a reset is at -1 and takes no transaction, only the rest of the reset.
        return same and version >= 0 and new_version == version + 1

    def _fits(self, delta: Delta) -> bool:
        """Whether a delta goes on from where its stream is, by the rules of `Storage.apply`. It repeats them because
        the stream is further than the storage knows: what was handed over counts as applied."""
        epoch, version = self.where(delta.origin)
        if not delta.reset:
            return delta.epoch == epoch and 0 <= delta.after <= version < delta.upto
        if delta.after < 0:
            further = version < 0 or delta.head > version
            return delta.epoch > epoch or (delta.epoch == epoch and further)
        ahead = self._ahead.get(delta.origin)
        return ahead is not None and ahead.since >= 0 and (ahead.epoch, ahead.came_to) == (delta.epoch, delta.after)

    def _hand_over(self, item: ReplicatedTx | Delta, epoch: int, version: int) -> InFlight:
        ahead = self._ahead.setdefault(item.origin, InFlight())
        ahead.epoch, ahead.version = epoch, version
        ahead.items += 1
        self.ready.append(item)
        return ahead
