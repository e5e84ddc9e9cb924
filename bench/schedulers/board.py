"""What hosts published of themselves, as a broker reads it in the catalog: late, and never the last word.

Kept sorted by how good a bid each promises, so that the candidates of the broker's own `rounds` are found without the
scan and the sort that it makes for each order; they are the same ones, in the same rounds. The model charges the scan.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from bench.schedulers.costs import Costs
from bench.schedulers.host import Host
from bench.schedulers.timeline import Timeline
from bench.schedulers.valuation import promise
from hawker.clock import Clock
from hawker.market.preferences import Preferences

_Key = tuple[float, int]


class Board:
    """A host tells what is left on it within `publish_s` of a change, once for all changes of that time."""

    def __init__(
        self, hosts: Sequence[Host], preferences: Preferences, costs: Costs, timeline: Timeline, clock: Clock
    ) -> None:
        self.published = 0
        self._hosts = hosts
        self._preferences = preferences
        self._costs = costs
        self._timeline = timeline
        self._clock = clock
        self._pending = bytearray(len(hosts))
        self._keys: list[_Key | None] = [self._key(host) for host in hosts]
        self._sorted: list[_Key] = sorted(key for key in self._keys if key is not None)

    def __len__(self) -> int:
        return len(self._sorted)

    def changed(self, host: Host) -> None:
        if not self._pending[host.number]:
            self._pending[host.number] = 1
            wait_s = self._costs.publish_s * self._clock.random()
            self._timeline.call(wait_s + self._costs.delay_s, self._publish, host)

    def noticed(self, host: Host) -> None:
        """Who is down is left out."""
        self._leave(host)
        if host.up:
            self._enter(host)

    def rounds(self, seed: float) -> Iterator[list[Host]]:
        """Works as `hawker.market.survey.rounds` does. What is published meanwhile may move hosts between its
        rounds."""
        limits = self._preferences.limits
        if not self._sorted:
            return
        if len(self._sorted) <= limits.ask_all_up_to:
            yield [self._hosts[number] for _, number in self._sorted]
            return
        asked: list[int] = []
        for _ in range(limits.ask_rounds):
            passed = self._places(asked)
            best = list(islice(_others(passed, len(self._sorted)), limits.ask_best))
            lots = self._lots(sorted([*passed, *best]), limits.ask_random, seed)
            chosen = [self._sorted[place][1] for place in (*best, *lots)]
            if not chosen:
                return
            asked.extend(chosen)
            yield [self._hosts[number] for number in chosen]

    def _places(self, numbers: Iterable[int]) -> list[int]:
        """Where these stand now, ascending."""
        keys = (self._keys[number] for number in numbers)
        return sorted(bisect_left(self._sorted, key) for key in keys if key is not None)

    def _lots(self, passed: Sequence[int], count: int, seed: float) -> list[int]:
        """Evenly from all places that are left, beginning where chance decides."""
        left = len(self._sorted) - len(passed)
        count = min(count, left)
        return [_skipping(int((seed + index) * (left / count)) % left, passed) for index in range(count)]

    def _publish(self, host: Host) -> None:
        self._pending[host.number] = 0
        if host.up and self._keys[host.number] is not None:
            self.published += 1
            self._leave(host)
            self._enter(host)

    def _key(self, host: Host) -> _Key:
        cpus, memory = 1 - host.cpus_left / host.cpus, 1 - host.memory_left / host.memory_mib
        return -promise(cpus, memory, self._preferences), host.number

    def _enter(self, host: Host) -> None:
        key = self._keys[host.number] = self._key(host)
        insort(self._sorted, key)

    def _leave(self, host: Host) -> None:
        key = self._keys[host.number]
        if key is not None:
            del self._sorted[bisect_left(self._sorted, key)]
            self._keys[host.number] = None


def _others(passed: Sequence[int], count: int) -> Iterator[int]:
    """The places below `count` that are not among these."""
    return (place for place in range(count) if place not in passed)


def _skipping(place: int, passed: Sequence[int]) -> int:
    """What is at `place` among all that are not in `passed`, which ascends."""
    for each in passed:
        if each > place:
            break
        place += 1
    return place
