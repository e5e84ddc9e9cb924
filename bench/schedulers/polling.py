"""Workers that claim orders from one queue. Each polls on its own beat, takes the first order that fits among the next
few of the queue, and polls again as soon as that is done; with nothing to take it waits for its beat.

Nobody decides, so nobody can tell that an order fits nowhere: it waits until its time is over.
"""

from bisect import bisect_right
from itertools import islice

from bench.schedulers.courier import Word
from bench.schedulers.host import Host
from bench.schedulers.policy import Tools
from bench.schedulers.tally import Refusal
from bench.schedulers.timeline import PARKED, Process
from bench.schedulers.workload import Order


class Polling:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._queue: dict[int, Order] = {}
        beats = sorted((tools.clock.random() * tools.costs.poll_s, host.number) for host in tools.hosts)
        self._beats = [beat for beat, _ in beats]
        self._turn = [number for _, number in beats]
        self._claiming: set[int] = set()
        self._asleep = True
        self._round = self._go_round()
        tools.timeline.resume(self._round)

    def submit(self, order: Order) -> None:
        self._enqueue(order)
        self._tools.timeline.call(self._tools.costs.patience_s, self._expire, order)

    def released(self, host: Host, order: Order) -> None:
        """Its worker knows, and nobody else has to."""

    def noticed(self, host: Host) -> None:
        """A host that is down does not poll."""

    def background(self, seconds: float) -> int:
        """The polls on the beat, most of them in vain."""
        return int(len(self._turn) * seconds / self._tools.costs.poll_s)

    def _enqueue(self, order: Order) -> None:
        self._queue[order.number] = order
        if self._asleep:
            self._asleep = False
            self._tools.timeline.resume(self._round)

    def _expire(self, order: Order) -> None:
        if self._queue.pop(order.number, None) is not None:
            self._tools.refuse(order, Refusal.TOO_LATE)

    def _go_round(self) -> Process[None]:
        """Plays the polls on the beat, one host after another, while there is something in the queue."""
        timeline, poll_s = self._tools.timeline, self._tools.costs.poll_s
        while True:
            if not self._queue:
                self._asleep = True
                yield PARKED
            beat = timeline.now % poll_s
            turn = bisect_right(self._beats, beat)
            wait_s = self._beats[turn] - beat if turn < len(self._beats) else poll_s - beat + self._beats[0]
            yield wait_s + 1e-9
            self._poll(self._tools.hosts[self._turn[turn % len(self._turn)]])

    def _poll(self, host: Host) -> None:
        if not host.up or host.number in self._claiming:
            return
        for order in islice(self._queue.values(), self._tools.costs.window):
            if host.fits(order):
                del self._queue[order.number]
                self._tools.timeline.resume(self._claim(host, order))
                return

    def _claim(self, host: Host, order: Order) -> Process[None]:
        """It is this worker's until it says otherwise, or is known not to have it."""
        tools = self._tools
        self._claiming.add(host.number)
        answer = yield from tools.courier.deliver(host, order)
        if answer.word is Word.FILLED:
            tools.tally.placed(host, order, answer.runs_at_s)
        elif answer.word is Word.IN_DOUBT:
            tools.refuse(order, Refusal.IN_DOUBT)
        elif tools.is_late(order):
            tools.refuse(order, Refusal.TOO_LATE)
        else:
            self._enqueue(order)
        tools.tally.decided(asked=1)
        self._claiming.discard(host.number)
        self._poll(host)
