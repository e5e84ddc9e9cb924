"""Several schedulers that share one table, as in Omega and Nomad. Each decides on its own snapshot, which is stale, and
commits to the table, which takes a change only when the host still has the room. Who was slower looks again.

Each looks at hosts in random order until it has seen log2(hosts) with room, and takes the fullest of them, as Nomad's
bin packing does.
"""

import math
from collections import deque
from typing import Any

from bench.schedulers.courier import Word
from bench.schedulers.host import Host
from bench.schedulers.policy import Tools
from bench.schedulers.tally import Refusal
from bench.schedulers.timeline import PARKED, Desk, Process
from bench.schedulers.view import View
from bench.schedulers.workload import Order
from hawker.clock import Clock


class Snapshot:
    """What was left on each host when its owner looked last, and what it did itself since then."""

    def __init__(self, table: "Table") -> None:
        self.read_at_s = 0.0
        self._table = table
        self._seen = 0
        self.count = table.count
        self._left = [table.left(number) for number in range(table.count)]

    def refresh(self, now: float) -> None:
        for number in self._table.changed_since(self._seen):
            self._left[number] = self._table.left(number)
        self._seen = self._table.changes
        self.read_at_s = now

    def fits(self, number: int, order: Order) -> bool:
        cpus, memory_mib = self._left[number]
        return order.cpus <= cpus and order.memory_mib <= memory_mib

    def memory_left(self, number: int) -> int:
        return self._left[number][1]

    def take(self, number: int, order: Order) -> None:
        cpus, memory_mib = self._left[number]
        self._left[number] = (cpus - order.cpus, memory_mib - order.memory_mib)


class Table:
    """The one state that all share, and the list of hosts that changed lately, from which snapshots are brought up to
    date. A snapshot that is older than the list is read anew."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.count = view.count
        self.changes = 0
        self._recent: deque[int] = deque(maxlen=4 * view.count + 64)

    def left(self, number: int) -> tuple[int, int]:
        return self._view.left(number)

    def changed_since(self, seen: int) -> list[int]:
        new = self.changes - seen
        if new > len(self._recent):
            return list(range(self.count))
        return [self._recent[-back] for back in range(1, new + 1)]

    def commit(self, number: int, order: Order) -> bool:
        if not self._view.fits(number, order):
            return False
        self._view.take(number, order)
        self._note(number)
        return True

    def give(self, number: int, order: Order) -> None:
        self._view.give(number, order)
        self._note(number)

    def correct(self, host: Host) -> None:
        self._view.correct(host)
        self._note(host.number)

    def note(self, host: Host) -> None:
        self._view.note(host)
        self._note(host.number)

    def _note(self, number: int) -> None:
        self.changes += 1
        self._recent.append(number)


def fullest_of_some(snapshot: Snapshot, order: Order, clock: Clock) -> tuple[int | None, int]:
    """The host, and how many were looked at. A walk from a random start with a random stride sees each host once;
    it ends at the log2(hosts)th that has room, or the second if that is more."""
    best: int | None = None
    count, found = snapshot.count, 0
    wanted = max(2, math.ceil(math.log2(count)))
    stride = 1 + int(clock.random() * count)
    while math.gcd(stride, count) != 1:
        stride += 1
    number = int(clock.random() * count)
    for looked in range(1, count + 1):
        if snapshot.fits(number, order):
            if best is None or snapshot.memory_left(number) < snapshot.memory_left(best):
                best = number
            found += 1
            if found == wanted:
                return best, looked
        number = (number + stride) % count
    return best, count


class Optimistic:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._table = Table(View(tools.hosts))
        self._applier = Desk(tools.timeline)
        self._queue: deque[Order] = deque()
        self._idle: list[Process[Any]] = []
        for _ in range(tools.costs.schedulers):
            self._begin()

    def submit(self, order: Order) -> None:
        self._enqueue(order)

    def released(self, host: Host, order: Order) -> None:
        self._table.give(host.number, order)

    def background(self, seconds: float) -> int:
        """Heartbeats that every fleet has are not counted."""
        return 0

    def noticed(self, host: Host) -> None:
        self._table.note(host)

    def _begin(self) -> None:
        snapshot = Snapshot(self._table)
        itself: list[Process[None]] = []
        itself.append(self._schedule(snapshot, itself))
        self._tools.timeline.resume(itself[0])

    def _enqueue(self, order: Order) -> None:
        self._queue.append(order)
        if self._idle:
            self._tools.timeline.resume(self._idle.pop())

    def _schedule(self, snapshot: Snapshot, itself: list[Process[None]]) -> Process[None]:
        while True:
            if not self._queue:
                self._idle.append(itself[0])
                yield PARKED
                continue
            order = self._queue.popleft()
            if self._tools.is_late(order):
                self._tools.refuse(order, Refusal.TOO_LATE)
                continue
            number = yield from self._win(snapshot, order)
            if isinstance(number, Refusal):
                self._tools.refuse(order, number)
            else:
                self._tools.timeline.resume(self._place(self._tools.hosts[number], order))

    def _win(self, snapshot: Snapshot, order: Order) -> Process[int | Refusal]:
        """A host that the table gave to this order."""
        tools, costs = self._tools, self._tools.costs
        is_fresh = False
        for _ in range(costs.conflicts):
            if is_fresh or tools.timeline.now - snapshot.read_at_s > costs.sync_s:
                snapshot.refresh(tools.timeline.now)
                is_fresh = True
            number, looked = fullest_of_some(snapshot, order, tools.clock)
            tools.tally.decided(looked=looked)
            yield costs.decide_s + looked * costs.look_s
            if number is not None:
                yield self._applier.serve(costs.commit_s)
                if self._table.commit(number, order):
                    snapshot.take(number, order)
                    return number
                tools.tally.conflicts += 1
            elif is_fresh:
                return Refusal.NO_ROOM
            is_fresh = True
        return Refusal.CONFLICTS

    def _place(self, host: Host, order: Order) -> Process[None]:
        tools = self._tools
        answer = yield from tools.courier.deliver(host, order)
        if answer.word is Word.FILLED:
            tools.tally.placed(host, order, answer.runs_at_s)
            return
        if answer.word is Word.IN_DOUBT:
            tools.refuse(order, Refusal.IN_DOUBT)
            return
        if answer.word is Word.NO_ROOM:
            self._table.correct(host)
        else:
            self._table.give(host.number, order)
        self._enqueue(order)
