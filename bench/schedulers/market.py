"""The market: brokers that keep nothing ask a few workers for bids, rank them with the project's own code, and order
from the best; from the next best when that one has no room any more. The worker that admits is the one who decides.
"""

from bench.schedulers.board import Board
from bench.schedulers.courier import Word
from bench.schedulers.host import Host
from bench.schedulers.policy import Tools
from bench.schedulers.tally import Refusal
from bench.schedulers.timeline import Desk, Process
from bench.schedulers.valuation import ranked, remembering
from bench.schedulers.workload import Order


class Market:
    """Each order goes to the next broker in turn."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._preferences = remembering(tools.preferences)
        self._board = Board(tools.hosts, self._preferences, tools.costs, tools.timeline, tools.clock)
        self._brokers = [Desk(tools.timeline) for _ in range(tools.costs.brokers)]

    def submit(self, order: Order) -> None:
        self._tools.timeline.resume(self._fill(order))

    def released(self, host: Host, order: Order) -> None:
        self._board.changed(host)

    def noticed(self, host: Host) -> None:
        self._board.noticed(host)

    def background(self, seconds: float) -> int:
        """What hosts published."""
        return self._board.published

    def _fill(self, order: Order) -> Process[None]:
        """Round by round, until somebody fills it, it cannot be known, or nobody is left to ask."""
        tools, why = self._tools, Refusal.NO_ROOM
        broker = self._brokers[order.number % len(self._brokers)]
        looked = len(self._board)
        work_s = tools.costs.decide_s + looked * tools.costs.look_s
        for asked in self._board.rounds(tools.clock.random()):
            yield broker.serve(work_s + len(asked) * tools.costs.ask_s)
            if tools.is_late(order):
                why = Refusal.TOO_LATE
                break
            yield 2 * max(tools.courier.delay_s() for _ in asked)
            tools.tally.decided(looked=looked, asked=len(asked))
            looked, work_s = 0, 0.0
            word = yield from self._order(order, ranked(asked, order, self._preferences))
            if word is Word.FILLED:
                return
            if word is Word.IN_DOUBT:
                why = Refusal.IN_DOUBT
                break
        tools.refuse(order, why)

    def _order(self, order: Order, best_first: list[Host]) -> Process[Word]:
        """The last word; of the first who fills it, the only one."""
        tools, word = self._tools, Word.NO_ROOM
        for host in best_first:
            answer = yield from tools.courier.deliver(host, order)
            self._board.changed(host)
            word = answer.word
            if word is Word.FILLED:
                tools.tally.placed(host, order, answer.runs_at_s)
            if word in (Word.FILLED, Word.IN_DOUBT):
                break
        return word
