"""One scheduler with the whole fleet in its head. Orders wait in one queue; it decides one after another, and knows of
all it decided. What it cannot know at once is which host is down. It is as fast as one process is.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from bench.schedulers.courier import Word
from bench.schedulers.host import Host
from bench.schedulers.policy import Tools
from bench.schedulers.tally import Refusal
from bench.schedulers.timeline import PARKED, Process
from bench.schedulers.view import View
from bench.schedulers.workload import Order

Choose = Callable[[View, Order], tuple[int | None, int]]
"""The host, and how many a scan looks at to find it."""


def first_fit(view: View, order: Order) -> tuple[int | None, int]:
    """The first with room, always in the same order: hosts fill up one after another."""
    number = view.first(order)
    return number, view.count if number is None else number + 1


def spread(view: View, order: Order) -> tuple[int | None, int]:
    """The emptiest of all."""
    return view.emptiest(order), view.count


class Central:
    def __init__(self, tools: Tools, choose: Choose) -> None:
        self._tools = tools
        self._choose = choose
        self._view = View(tools.hosts)
        self._queue: deque[Order] = deque()
        self._idle = False
        self._desk: Process[Any] = self._decide()
        tools.timeline.resume(self._desk)

    def submit(self, order: Order) -> None:
        self._enqueue(order)

    def released(self, host: Host, order: Order) -> None:
        self._view.give(host.number, order)

    def background(self, seconds: float) -> int:
        """Heartbeats that every fleet has are not counted."""
        return 0

    def noticed(self, host: Host) -> None:
        self._view.note(host)

    def _enqueue(self, order: Order) -> None:
        self._queue.append(order)
        if self._idle:
            self._idle = False
            self._tools.timeline.resume(self._desk)

    def _decide(self) -> Process[None]:
        tools = self._tools
        while True:
            if not self._queue:
                self._idle = True
                yield PARKED
            order = self._queue.popleft()
            if tools.is_late(order):
                tools.refuse(order, Refusal.TOO_LATE)
                continue
            number, looked = self._choose(self._view, order)
            tools.tally.decided(looked=looked)
            if number is not None:
                self._view.take(number, order)
            yield tools.costs.decide_s + looked * tools.costs.look_s
            if number is None:
                tools.refuse(order, Refusal.NO_ROOM)
            else:
                tools.timeline.resume(self._place(tools.hosts[number], order))

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
            self._view.correct(host)
        else:
            self._view.give(host.number, order)
        self._enqueue(order)
